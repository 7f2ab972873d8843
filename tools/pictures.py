"""Draw docs/plan.svg, the picture of a Plan on the documentation's first page: python tools/pictures.py."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import dlbridge

PICTURE = Path(__file__).parents[1] / "docs" / "plan.svg"
# An image does not know the colour of the page that it is on; this grey can be read on white and on black.
GREY = "#768390"


def picture() -> str:
    """The plan for a flipped image, as a file of its own."""
    image = np.zeros((1080, 1920, 3), "uint8")
    html = dlbridge.explain(image[:, ::-1], "torch")._repr_html_()
    svg = re.search(r"<svg.*?</svg>", html, re.DOTALL)
    assert svg is not None
    text = svg[0].replace("currentColor", GREY).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return re.sub(r"var\([^,()]*, ([^()]*)\)", r"\1", text) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
