"""Eight threads at once, each with an eighth of the calls, on all CPUs.

A function that does very little takes 1.15 times as long in eight threads as in one, which is the cost of the GIL.
"""

import functools
from collections.abc import Callable
from itertools import repeat
from threading import Thread

from bench.rows import Group, Row

__all__ = ["GROUP", "crowd", "functools"]


def crowd(threads: int, calls: int, call: Callable[[], object]) -> None:
    """Make the calls in threads, after one in this thread, because an exception in another thread would be lost."""
    call()

    def work() -> None:
        for _ in repeat(None, calls // threads):
            call()

    crew = [Thread(target=work) for _ in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


def row(name: str, ours: str, native: str, label: str, calls: int) -> Row:
    """Compare eight threads of dlbridge with one thread of dlbridge, and with eight of the native path."""
    return Row(name, f"crowd(8, {calls}, {ours})", {
        "one thread": f"crowd(1, {calls}, {ours})",
        label: f"crowd(8, {calls}, {native})",
    }, share=0.1, pinned=False)


GROUP = Group("eight threads", (
    row("ndarray -> torch, 80,000 calls", "numpy_to_torch", "from_numpy", "torch.from_numpy", 80_000),
    row("tensor -> numpy, 80,000 calls", "torch_to_numpy", "to_numpy", "Tensor.numpy", 80_000),
    row("copy 1 MiB, 128 calls", "copy", "numpy_copy", "numpy.copyto", 128),
), {
    "numpy_to_torch": 'functools.partial(dlbridge.convert, ndarray, "torch")',
    "from_numpy": "functools.partial(torch.from_numpy, ndarray)",
    "torch_to_numpy": 'functools.partial(dlbridge.convert, tensor, "numpy")',
    "to_numpy": "tensor.numpy",
    "strided": "numpy.ones((512, 1024), 'f4')[:, ::2]",
    "copy": 'functools.partial(dlbridge.convert, strided, "numpy", copy=True)',
    "numpy_copy": "lambda: numpy.copyto(numpy.empty(strided.shape, 'f4'), strided)",
})
