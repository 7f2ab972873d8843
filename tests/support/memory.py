"""How much memory a process takes, as Linux counts it. Nothing is sampled: the kernel keeps the highest value."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

PROCESS = Path("/proc/self")


def reset_peak() -> int:
    """Begin a new peak, and return the bytes that are resident now."""
    (PROCESS / "clear_refs").write_text("5")        # proc(5): resets the peak resident set size
    return status("VmRSS")


def peak() -> int:
    return status("VmHWM")


def growth(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a function returns, and the bytes by which the process grew at most while it ran."""
    before = reset_peak()
    result = function(*arguments)
    return result, peak() - before


def typical(measure: Callable[..., tuple[int, ...]], *arguments: Any) -> tuple[float, ...]:
    """The medians of what is measured three times: a system that is short of memory may take pages in between."""
    return tuple(map(median, zip(*[measure(*arguments) for _ in range(3)], strict=True)))


def private() -> int:
    """The bytes that this process alone has: what it shares with others, as Ray's store, is not counted."""
    return sum(kibibytes for name, kibibytes in fields("smaps_rollup") if name.startswith("Private_"))


def status(name: str) -> int:
    return next(count for field, count in fields("status") if field == name)


def fields(file: str) -> list[tuple[str, int]]:
    """The lines of a file of /proc that are a name and a number of kB, in bytes."""
    lines = [line.split() for line in (PROCESS / file).read_text().splitlines()]
    return [(line[0].rstrip(":"), int(line[1]) << 10) for line in lines if len(line) == 3 and line[2] == "kB"]
