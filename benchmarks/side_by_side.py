"""dlbridge beside each library's own converter, in one run: ``python benchmarks/side_by_side.py``.

All cases run in random order in every round, in chunks shorter than a scheduler's slice, pinned to one CPU, with the
destruction of the result included. Times differ from machine to machine; the ratio of two medians of one run is what
can be compared.
"""

import os
import random
import statistics
from timeit import Timer

import numpy as np
import torch

import dlbridge

ROUNDS = 400
CHUNK_SECONDS = 4e-4
NAMES = {
    "convert": dlbridge.convert,
    "torch": torch,
    "ndarray": np.ones((3, 4), "f4"),
    "tensor": torch.ones(3, 4),
    "integers": torch.ones(3, 4, dtype=torch.int64),
}
PAIRS = (
    ('convert(ndarray, "torch")', "torch.from_numpy(ndarray)"),
    ('convert(tensor, "numpy")', "tensor.numpy()"),
    ('convert(integers, "numpy")', "integers.numpy()"),
)


def measure(statements: list[str]) -> dict[str, float]:
    """The median of each statement's rounds, in nanoseconds per call."""
    timers = {statement: Timer(statement, globals=NAMES) for statement in statements}
    calls = {name: max(1, round(CHUNK_SECONDS / (timer.timeit(1000) / 1000))) for name, timer in timers.items()}
    rounds: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(ROUNDS):
        for name in random.sample(statements, len(statements)):
            rounds[name].append(timers[name].timeit(calls[name]) / calls[name])
    return {name: statistics.median(times) * 1e9 for name, times in rounds.items()}


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    medians = measure([statement for pair in PAIRS for statement in pair])
    print(f"numpy {np.__version__}, torch {torch.__version__}, {ROUNDS} rounds, median ns\n")
    print("| dlbridge | ns | the library's own | ns | ratio |\n|---|---:|---|---:|---:|")
    for ours, theirs in PAIRS:
        ratio = medians[ours] / medians[theirs]
        print(f"| `{ours}` | {medians[ours]:.0f} | `{theirs}` | {medians[theirs]:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
