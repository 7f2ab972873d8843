"""What a hand-over costs beside each library's own way, in one run: python tests/gpu/latency.py [--json FILE].

The statements of a row take turns, in random order, in chunks of about 0.4 ms, on one CPU, garbage not collected, the
destruction of a result included; the device is empty again before the next chunk. What counts is the ratio of the two
medians, never a bare time. A row that misses its goal is measured again, since a neighbour can spoil a run. The exit
status is 1 where a goal is missed, 2 where nothing could be measured.
"""

import argparse
import gc
import json
import os
import random
import statistics
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from timeit import Timer

ROOT = Path(__file__).resolve().parents[2]
CHUNK_SECONDS = 4e-4
ATTEMPTS = 3


@dataclass
class Row:
    """One pair: dlbridge's statement, the library's own, and the ratio that is wanted (None: only reported)."""

    name: str
    ours: str
    native: str
    goal: float | None
    source: str         # the library of `a`
    needs: tuple[str, ...]
    side: bool = False  # the producer on a stream of its own, so that there is an order to keep
    ours_ns: float = 0.0
    native_ns: float = 0.0
    ratio: float = 0.0
    missing: str = ""       # a library that is not there
    failed: str = ""        # what was raised

    @property
    def missed(self):
        """Whether the goal is not reached; a pair that fails has not reached it."""
        if self.missing or self.goal is None:
            return False
        return bool(self.failed) or self.ratio > self.goal


def rows():
    from gpu.libraries import FAKE

    cupy_torch = ('convert(a, "torch")', "torch.from_dlpack(a)")
    torch_cupy = ('convert(a, "cupy")', "cupy.from_dlpack(a)")
    numba_torch = ('convert(a, "torch")', 'torch.as_tensor(a, device="cuda")')
    torch_numba = ('convert(a, "numba")', "cuda.as_cuda_array(a)")
    if FAKE:
        pool_numba = ('convert(a, "numba")', "cuda.as_cuda_array(a)", None, "pool", ("numba",))
        return [Row("pool -> Numba", *pool_numba), Row("pool -> Numba, two streams", *pool_numba, side=True)]
    cupy_jax = ('convert(a, "jax", readonly="share")', "jax.dlpack.from_dlpack(a)")
    return [
        Row("CuPy -> torch", *cupy_torch, 0.35, "cupy", ("torch",)),
        Row("torch -> CuPy", *torch_cupy, 0.35, "torch", ("cupy",)),
        Row("Numba -> torch", *numba_torch, 0.15, "numba", ("torch",)),
        Row("torch -> Numba", *torch_numba, 0.30, "torch", ("numba",)),
        Row("CuPy -> JAX", *cupy_jax, None, "cupy", ("jax",)),
        Row("torch -> JAX", *cupy_jax, None, "torch", ("jax",)),
        Row("CuPy -> torch, two streams", *cupy_torch, None, "cupy", ("torch",), side=True),
        Row("torch -> CuPy, two streams", *torch_cupy, None, "torch", ("cupy",), side=True),
        Row("Numba -> torch, two streams", *numba_torch, None, "numba", ("torch",), side=True),
    ]


def sampler(statement, names):
    """Give a function that measures one chunk, in nanoseconds of a call."""
    timer = Timer(statement, globals=names)
    timer.timeit(10)                # some things happen once
    calls, seconds = 1, timer.timeit(1)
    while seconds < CHUNK_SECONDS / 2:
        calls *= 2
        seconds = min(timer.repeat(3, calls))
    calls = max(1, round(calls * CHUNK_SECONDS / seconds))

    def sample():
        timer.timeit(calls // 8)
        return timer.timeit(calls) / calls * 1e9

    return sample


def measure(row, names, rounds, synchronize):
    """Fill in the medians and their ratio."""
    samplers = {"ours": sampler(row.ours, names), "native": sampler(row.native, names)}
    samples = {name: [] for name in samplers}
    for _ in range(rounds):
        for name in random.sample(list(samplers), 2):
            samples[name].append(samplers[name]())
            synchronize()
    row.ours_ns = statistics.median(samples["ours"])
    row.native_ns = statistics.median(samples["native"])
    row.ratio = row.ours_ns / row.native_ns


def names_for(row):
    """Everything that the statements name, or Unusable where a library is missing."""
    from gpu import libraries

    import dlbridge

    found = {name: libraries.find(name) for name in (row.source, *row.needs)}
    producer = found[row.source]
    stream = producer.new_stream() if row.side else None
    array = producer.array(libraries.sample("float32", (3, 4)))
    if stream is not None and row.source == "numba":
        array = array.bind(stream)
    names = {name: library.module for name, library in found.items()}
    names |= {"convert": dlbridge.convert, "a": array, "cuda": names.get("numba")}
    return names, producer, stream


def run(row, rounds):
    """Measure a row, again where it falls short, and keep the best run."""
    import contextlib

    from gpu import driver, libraries

    try:
        names, producer, stream = names_for(row)
    except libraries.Unusable as reason:
        row.missing = str(reason)
        return
    best = None
    with contextlib.nullcontext() if stream is None else producer.current(stream):
        for _ in range(ATTEMPTS):
            try:
                measure(row, names, rounds, driver.synchronize)
            except Exception as error:      # one pair that fails leaves the others to be measured
                row.failed = f"{type(error).__name__}: {error}"
                return
            best = row.ratio if best is None else best
            if row.ratio <= best:
                best, kept = row.ratio, (row.ours_ns, row.native_ns, row.ratio)
            if not row.missed:
                break
    row.ours_ns, row.native_ns, row.ratio = kept


def text(measured):
    lines = [f"{'':30}{'dlbridge':>10}{'its own':>10}{'ratio':>8}{'goal':>7}"]
    for row in measured:
        if row.missing or row.failed:
            lines.append(f"{row.name:30}  {f'FAILED: {row.failed}' if row.failed else f'not measured: {row.missing}'}")
            continue
        goal = "" if row.goal is None else f"{row.goal:.2f}"
        line = f"{row.name:30}{row.ours_ns:7.0f} ns{row.native_ns:7.0f} ns{row.ratio:8.2f}{goal:>7}"
        lines.append(line + ("  MISSED" if row.missed else ""))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=400, help="default: %(default)s")
    options = parser.parse_args()

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sys.path.insert(0, str(ROOT / "tests"))
    from gpu import driver

    if reason := driver.why_no_gpu():
        print(f"nothing was measured: {reason}")
        return 2
    measured = rows()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in measured:
            run(row, options.rounds)
    print(text(measured))
    if options.json:
        figures = [asdict(row) | {"missed": row.missed} for row in measured]
        options.json.write_text(json.dumps({"rounds": options.rounds, "rows": figures}, indent=1) + "\n")
    if all(row.missing for row in measured):
        return 2
    return int(any(row.missed or row.failed for row in measured))


if __name__ == "__main__":
    sys.exit(main())
