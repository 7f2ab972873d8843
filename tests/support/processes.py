"""What another process runs. It imports this by name, as it cannot import a test."""

from typing import Any

import numpy as np

import dlbridge


def doubled(connection: Any) -> None:
    connection.send(dlbridge.asdlpack(np.asarray(connection.recv()) * 2))
    connection.close()


class Samples:
    """A dataset of torch, by its two methods: ten samples of a Tensor and a label."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": dlbridge.asdlpack(np.full((2, 3), index, "float32")), "label": index}
