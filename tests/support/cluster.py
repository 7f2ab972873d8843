"""What the workers of an engine run. They import it by name, as they cannot import a test."""

import os
import signal
import time
from typing import Any

import numpy as np

import dlbridge
from support import memory


def doubled(given: Any) -> Any:
    return dlbridge.asdlpack(dlbridge.convert(given, "numpy") * 2)


def described(given: Any) -> dict[str, Any]:
    """What a worker sees of an array, without the address."""
    return {"type": type(given).__name__, "dtype": str(given.dtype), "shape": tuple(given.shape),
            "strides": tuple(given.strides), "readonly": is_readonly(given), "process": os.getpid()}


def is_readonly(given: Any) -> bool:
    return not given.flags.writeable if isinstance(given, np.ndarray) else given.readonly


def address(given: Any) -> int:
    return given.ctypes.data if isinstance(given, np.ndarray) else given.data_ptr


def total(given: Any) -> float:
    return float(dlbridge.convert(given, "numpy").sum(dtype="float64"))


def peak_with(given: Any) -> int:
    """The peak of this process. The argument is there to be received."""
    return memory.peak()


def data_held(dask_worker: Any) -> int:
    """How many arrays a worker of Dask has. It lets them go some time after the client did."""
    return len(dask_worker.data)


class Giver:
    """An actor of Ray that gives memory of its own."""

    def give(self) -> dict[str, Any]:
        self.whole = dlbridge.shared_empty((3, 4))
        copied, nothing = dlbridge.asdlpack(np.arange(3)), dlbridge.asdlpack(np.zeros((0, 2)))
        part = dlbridge.asdlpack(dlbridge.convert(self.whole, "numpy")[1:, ::2])
        return {"whole": self.whole, "part": part, "copied": copied, "nothing": nothing, "other": 7}

    def process(self) -> int:
        return os.getpid()

    def values(self) -> Any:
        return dlbridge.convert(self.whole, "numpy").tolist()

    def offered(self) -> int:
        """How much it keeps for others."""
        from dlbridge.processes import descriptors

        return len(descriptors.senders[0].offered)


class Taker:
    """An actor of Ray that writes to what it takes."""

    def add_one(self, given: dict[str, Any]) -> dict[str, Any]:
        array = dlbridge.convert(given["whole"], "numpy")
        array += 1
        return {name: dlbridge.convert(each, "numpy").tolist() for name, each in given.items() if name != "other"}


def slow_total(given: Any, seconds: float) -> float:
    time.sleep(seconds)
    return total(given)


@dlbridge.accepts("torch", returns="like")
def softened(block: Any) -> Any:
    """A function of torch: what Dask calls it with are ndarrays, and what Dask gets are ndarrays."""
    import torch

    assert isinstance(block, torch.Tensor)
    return torch.tanh(block)


@dlbridge.accepts("torch", returns="like")
def norms(block: Any) -> Any:
    import torch

    return torch.linalg.vector_norm(block, dim=-1)


@dlbridge.accepts("torch", returns="like")
def neighbours(block: Any) -> Any:
    """The mean of an element, the one before and the one after, as a convolution of torch."""
    import torch

    return torch.nn.functional.conv1d(block[None, None], torch.full((1, 1, 3), 1 / 3, dtype=block.dtype),
                                      padding=1)[0, 0]


def shares_with_torch(given: Any) -> bool:
    """Whether torch takes what came from another process as it lies."""
    return dlbridge.convert(given, "torch", readonly="share", copy=False).data_ptr() == address(given)


class Reader:
    """An actor that keeps what it was given."""

    def __init__(self) -> None:
        self.kept: Any = None
        self.before = 0

    def start(self) -> int:
        """What it has by itself; the imports are done then."""
        dlbridge.convert(np.ones(3), "numpy")
        self.before = memory.private()
        return os.getpid()

    def keep(self, block: Any) -> dict[str, Any]:
        self.kept = block
        return described(block)

    def grown(self) -> int:
        """The private bytes that reading everything added."""
        assert total(self.kept)
        return memory.private() - self.before

    def total(self) -> float:
        return total(self.kept)

    def first(self) -> float:
        return float(dlbridge.convert(self.kept, "numpy").flat[0])

    def aligned(self) -> bool:
        return address(self.kept) % 64 == 0

    def shares_with_torch(self) -> bool:
        return shares_with_torch(self.kept)

    def write_by_torch(self) -> bool:
        """Write into what torch has by default. True is returned where that is other memory."""
        tensor = dlbridge.convert(self.kept, "torch")
        tensor.fill_(-1)
        return tensor.data_ptr() != address(self.kept)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
