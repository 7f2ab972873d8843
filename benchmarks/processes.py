"""What it takes to give memory to another process, beside what else does that in the same run.

    python benchmarks/processes.py [--rounds N] [--mebibytes N]

Two processes, begun by spawn: one puts into a queue, the other takes out, and answers. Each row has the medians of its
rounds, in which both ways take turns. "the floor" writes the bytes into new memory with a descriptor and sends a
number. Needs torch.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.multiprocessing
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dlbridge


class Row(NamedTuple):
    """Two ways to send something; each has what it sends made before the time is taken."""

    name: str
    beside: str
    goal: float
    ours: Callable[[], Callable[[], Any]]
    other: Callable[[], Callable[[], Any]]


def answer(inbox: Any, outbox: Any) -> None:
    """The other process."""
    dlbridge.convert(np.ones(3), "numpy")
    outbox.put("ready")
    while (received := inbox.get()) is not None:
        del received
        outbox.put("received")


def written(source: memoryview) -> int:
    """What the kernel needs for it: new memory with a descriptor, with these bytes."""
    descriptor, at = os.memfd_create("floor"), 0
    while at < len(source):
        at += os.pwrite(descriptor, source[at:], at)
    os.close(descriptor)
    return 0


def rows(nbytes: int) -> list[Row]:
    array = np.ones(nbytes, "uint8")
    shared, tensor = dlbridge.shared(array), dlbridge.asdlpack(array)
    shared_by_torch = torch.ones(nbytes, dtype=torch.uint8).share_memory_()
    plain = array.tobytes()
    small = [np.ones(1024, "float32") for _ in range(1000)]
    tensors = [dlbridge.asdlpack(each) for each in small]

    def new_of_torch() -> Callable[[], Any]:
        new = torch.ones(nbytes, dtype=torch.uint8)
        return lambda: new

    return [
        Row("shared(x)", "the floor", 1.2, lambda: lambda: dlbridge.shared(array),
            lambda: lambda: written(memoryview(array))),
        Row("shared(x)", "a new tensor of torch", 1.0, lambda: lambda: dlbridge.shared(array), new_of_torch),
        Row("shared already", "a tensor in torch's shared memory", 0.9, lambda: lambda: shared,
            lambda: lambda: shared_by_torch),
        Row("by value", "bytes", 1.1, lambda: lambda: tensor, lambda: lambda: plain),
        Row("1,000 Tensors of 4 KiB, by value", "1,000 ndarrays", 1.0, lambda: lambda: tensors, lambda: lambda: small),
    ]


def seconds(inbox: Any, outbox: Any, make: Callable[[], Callable[[], Any]]) -> float:
    give = make()
    start = perf_counter()
    inbox.put(give())
    outbox.get()
    return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--mebibytes", type=int, default=64)
    given = parser.parse_args()
    context = torch.multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    other = context.Process(target=answer, args=(inbox, outbox), daemon=True)
    other.start()
    outbox.get()
    table = Table("sent", "beside", "ratio", "goal", "ms", title=f"{given.mebibytes} MiB, {given.rounds} rounds")
    for row in track(rows(given.mebibytes << 20), console=Console(stderr=True), transient=True):
        times: Any = [], []
        for _ in range(given.rounds + 3):
            for each, make in zip(times, (row.ours, row.other), strict=True):
                each.append(seconds(inbox, outbox, make))
        ours, theirs = (statistics.median(each[3:]) for each in times)      # the first ones import, and open sockets
        table.add_row(row.name, row.beside, f"{ours / theirs:.2f}", f"{row.goal:.1f}", f"{1e3 * ours:.2f}")
    inbox.put(None)
    other.join()
    Console().print(table)


if __name__ == "__main__":
    main()
