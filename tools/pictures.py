"""Draw docs/plan.svg, the picture of a Plan on the documentation's first page: python tools/pictures.py."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np

import dlbridge

PICTURE = Path(__file__).parents[1] / "docs" / "plan.svg"


def picture() -> str:
    """The plan for a flipped image, as a file of its own."""
    image = np.zeros((1080, 1920, 3), "uint8")
    html = dlbridge.explain(image[:, ::-1], "torch")._repr_html_()
    address = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert address is not None
    return base64.b64decode(address[1]).decode() + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
