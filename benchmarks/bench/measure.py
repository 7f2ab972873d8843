"""The method: statements that are compared run in turns, in random order, in chunks below a scheduler's slice.

The process stays on one CPU, garbage is not collected, and the destruction of a result belongs to its call. Each
statement of a group gets one chunk of about 0.4 ms in every round. The figure that is quoted is the ratio of two
medians over the rounds of one run, because bare times change with the load of the machine and such ratios change
little. The scheduler would cut longer chunks, and they would measure other processes. Even so another process can spoil
a whole run, so a check measures again what falls short, and takes the best run: a goal is about what the machine can
do, and not about what else it does.
"""

import gc
import math
import os
import random
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from timeit import Timer
from types import ModuleType
from typing import NamedTuple, TypeVar

from bench.groups import load
from bench.rows import Inputs, Missing, Names, Row, Sample, Settings, Statements, statements
from dlbridge import MissingLibraryError
from dlbridge._core.system_memory import available_bytes

CHUNK_SECONDS = 4e-4
# The part of a chunk that is run before the clock starts, because the statement before it has filled the caches.
WARM_UP = 1 / 8
# Seconds; a statement that takes longer is timed by one call.
SLOW = 0.2

Tick = Callable[[], None]
Key = TypeVar("Key")


class Address(NamedTuple):
    """The address of a row: the name of its group and its own."""

    group: str
    row: str


class Figure(NamedTuple):
    """What was measured for one label of a row; ``ratio`` is dlbridge's median divided by this one."""

    statement: str
    median: float
    minimum: float
    ratio: float = 1.0
    paired: float = 1.0                 # the median of the ratios of each round


@dataclass(frozen=True)
class Result:
    """A row of one run; ``missing`` has the labels that could not be measured, with the reasons."""

    address: Address
    unit: str
    ours: Figure | None = None
    natives: Mapping[str, Figure] = field(default_factory=dict)
    floor: Figure | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


class Floors(NamedTuple):
    """The C floors, or why there are none."""

    module: ModuleType | None
    reason: str = ""


def loop(statement: str, names: Names, settings: Settings) -> Sample:
    """Make a sampler of the nanoseconds of one call, from a chunk of calls."""
    timer = Timer(statement, globals=names)
    timer.timeit(1)                     # the first call may do what happens once, such as an import
    calls, seconds = 1, timer.timeit(1)
    if seconds < SLOW:
        seconds = min(timer.repeat(3, 1))
        while seconds < CHUNK_SECONDS / 2:
            calls *= 2
            seconds = min(timer.repeat(3, calls))
    calls = max(1, round(calls * CHUNK_SECONDS / seconds))
    warm = math.ceil(calls * WARM_UP) if calls > 1 else 0

    def sample() -> float:
        timer.timeit(warm)
        return timer.timeit(calls) / calls * 1e9

    return sample


def run(
    rows: Mapping[Address, Row], settings: Settings, floors: Floors, tick: Callable[[int, int], None],
) -> dict[Address, Result]:
    """Measure rows; those of a group with the same number of rounds take turns. ``tick(done, all)`` follows a round."""
    batches: dict[tuple[str, bool, int], dict[Address, Row]] = {}
    for address, row in rows.items():
        rounds = max(1, math.ceil(settings.rounds * row.share))
        batches.setdefault((address.group, row.pinned, rounds), {})[address] = row
    total = sum(rounds for _, _, rounds in batches)
    done = 0
    results: dict[Address, Result] = {}

    def step() -> None:
        nonlocal done
        done += 1
        tick(done, total)

    for (group, pinned, rounds), batch in batches.items():
        # torch warns of read-only memory that its own converters share.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results |= run_batch(batch, group_inputs(group, floors), rounds, pinned, settings, step)
    return {address: results[address] for address in rows}


def run_batch(
    rows: Mapping[Address, Row], inputs: Inputs, rounds: int, pinned: bool, settings: Settings, tick: Tick,
) -> dict[Address, Result]:
    """Measure rows whose statements all take turns."""
    cases: dict[tuple[Address, str], Sample] = {}
    reasons: dict[tuple[Address, str], str] = {}
    for address, row in rows.items():
        for statement in statements(row.ours, *row.natives.values(), *filter(None, [row.floor])):
            try:
                cases[address, statement] = prepare(row, statement, inputs, settings)
            except (Missing, MissingLibraryError) as missing:
                reasons[address, statement] = str(missing)
            except Exception as error:
                # A library of another version may lack the function; the other rows are measured all the same.
                reasons[address, statement] = f"{statement} raises {type(error).__name__}: {error}"
    # The libraries are imported by now: threads that they start at import would otherwise stay on that CPU as well.
    with quiet(pinned):
        samples = take_turns(cases, rounds, tick)
    return {
        address: summarise(address, row, Outcome(
            {statement: values for (at, statement), values in samples.items() if at == address},
            {statement: reason for (at, statement), reason in reasons.items() if at == address},
        ))
        for address, row in rows.items()
    }


def group_inputs(group: str, floors: Floors) -> Inputs:
    """Make the inputs of a group, new for each batch, because some are large."""
    module = load(group)
    return Inputs(module.GROUP, module, floors.module, floors.reason)


def prepare(row: Row, statement: str, inputs: Inputs, settings: Settings) -> Sample:
    """Make a sampler of a statement; raise Missing where the machine lacks something."""
    if row.memory > available_bytes() and not settings.large:
        raise Missing(f"{row.memory / 2**30:.0f} GiB of memory are not available (--large tries all the same)")
    return (row.sampler or loop)(statement, inputs.names(statement), settings)


def take_turns(cases: Mapping[Key, Sample], rounds: int, tick: Tick) -> dict[Key, list[float]]:
    """Measure each case once in every round, in a new random order each time."""
    samples: dict[Key, list[float]] = {key: [] for key in cases}
    for _ in range(rounds):
        for key in random.sample(list(cases), len(cases)):
            samples[key].append(cases[key]())
        tick()
    return samples


class Outcome(NamedTuple):
    """The samples of a row's statements, and the reasons for those that have none."""

    samples: Mapping[str, Sequence[float]]
    reasons: Mapping[str, str]

    def pick(self, some: Statements, best: Callable[..., str]) -> str:
        """Pick the statement that counts among several; raise Missing where one of them could not be measured."""
        for statement in statements(some):
            if statement in self.reasons:
                raise Missing(self.reasons[statement])
        return best(statements(some), key=lambda statement: statistics.median(self.samples[statement]))

    def figure(self, statement: str, ours: str) -> Figure:
        """Summarise the samples of a statement, beside those of dlbridge's."""
        values, own = self.samples[statement], self.samples[ours]
        median = statistics.median(values)
        paired = statistics.median(ratio(mine, other) for mine, other in zip(own, values, strict=True))
        return Figure(statement, median, min(values), ratio(statistics.median(own), median), paired)


def ratio(ours: float, other: float) -> float:
    """Divide our figure by the other; the ratio of two zeros is 1."""
    return ours / other if other else (1.0 if ours == other else math.inf)


def summarise(address: Address, row: Row, outcome: Outcome) -> Result:
    """Put the figures of one row together."""
    try:
        ours = outcome.pick(row.ours, max)
    except Missing as missing:
        return Result(address, row.unit, missing={"dlbridge": str(missing)})
    figures: dict[str, Figure] = {}
    reasons: dict[str, str] = {}
    for label, some in {**row.natives, **({"floor": row.floor} if row.floor else {})}.items():
        try:
            figures[label] = outcome.figure(outcome.pick(some, min), ours)
        except Missing as missing:
            reasons[label] = str(missing)
    floor = figures.pop("floor", None)
    return Result(address, row.unit, outcome.figure(ours, ours), figures, floor, reasons)


@contextmanager
def quiet(pinned: bool) -> Iterator[None]:
    """Switch garbage collection off, and stay on one CPU if that is wanted and the system allows it."""
    collecting = gc.isenabled()
    cpus = os.sched_getaffinity(0) if pinned and hasattr(os, "sched_setaffinity") else None
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if cpus and torch else 0
    gc.collect()
    gc.disable()
    if cpus:
        os.sched_setaffinity(0, {max(cpus)})        # the first CPU serves the interrupts
    if threads and torch:
        torch.set_num_threads(1)                    # more would wait for each other on the one CPU
    try:
        yield
    finally:
        if cpus:
            os.sched_setaffinity(0, cpus)
        if threads and torch:
            torch.set_num_threads(threads)
        if collecting:
            gc.enable()
