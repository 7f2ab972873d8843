"""A pair of libraries: its child converts, compares every bit and the address, and takes the time."""

import statistics
import textwrap
from collections.abc import Callable
from timeit import Timer
from typing import Any, NamedTuple

import numpy as np

import dlbridge
from dlbridge.matrix.rows import Row, rows_of

# The array has 576 bytes. Python's own allocator serves at most 512, so the memory is the C library's, whose addresses
# move on by 16 bytes from one array to the next.
SHAPE, DTYPE, ALIGNMENT = (9, 16), "float32", 64
CALLS, REPEATS = 200, 15
OUTCOMES = ("returned", "shared", "copied", "not here", "impossible", "failed")     # from the best to the worst

Pair = tuple[str, str]          # source and target, each by the name of its library


class Cell(NamedTuple):
    """The result for one pair."""

    outcome: str
    reason: str = ""
    hint: str = ""
    nanoseconds: float | None = None


class Matrix(NamedTuple):
    """A cell for each pair (source, target) of the libraries that are installed here."""

    cells: dict[Pair, Cell]
    versions: dict[str, str]            # of each library that has one
    missing: dict[str, str]             # the other libraries, each with the name that pip installs it by
    machine: dict[str, Any]             # as the benchmark describes it

    @property
    def sources(self) -> list[str]:
        """The libraries whose arrays were converted."""
        return list(dict.fromkeys(source for source, _ in self.cells))

    @property
    def targets(self) -> list[str]:
        """The libraries that the arrays were converted to."""
        return list(dict.fromkeys(target for _, target in self.cells))

    def failed(self) -> dict[Pair, Cell]:
        """Select the pairs that crashed, did not end, or gave wrong values."""
        return {pair: cell for pair, cell in self.cells.items() if cell.outcome == "failed"}


class Wrong(Exception):
    """dlbridge broke a promise; the text says which."""


def look(table: str, source: str, target: str) -> Cell:
    """Look at one pair; an exception becomes a cell."""
    rows = rows_of(table)
    try:
        feed = supplier(rows[source])
    except Exception as error:
        return Cell("not here", f"{source} makes no array here: {in_a_line(error)}")
    try:
        return convert(rows[source], rows[target], feed)
    except dlbridge.DLBridgeError as error:
        of_machine = isinstance(error, dlbridge.DeviceError) and not runs_here(rows[target])
        return Cell("not here" if of_machine else "impossible", error.reason, error.hint)
    except Wrong as error:
        return Cell("failed", str(error))
    except Exception as error:
        return Cell("failed", in_a_line(error))


def runs_here(row: Row) -> bool:
    """Tell whether a library makes arrays on this machine: some need a GPU."""
    try:
        row.make(row.load(), sample_array())
    except Exception:
        return False
    return True


def in_a_line(error: BaseException) -> str:
    """Write an error in one line: its type, and as much of its text as there is room for."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" ...").rstrip(" :")


def sample_array() -> np.ndarray[Any, Any]:
    """Make numbers of every magnitude, with infinities and zeros of both signs, aligned so that each library can share.

    There is no NaN, because pandas takes it for a missing value.
    """
    bits = (np.arange(np.prod(SHAPE), dtype="u8") * 0x9E3779B9 % 2**32).astype("u4")
    bits[~np.isfinite(bits.view(DTYPE))] &= 0xFF800000
    bits[:4] = 0, 0x80000000, 0x7F800000, 0xFF800000
    room = np.empty(bits.nbytes + ALIGNMENT, "u1")
    start = -room.ctypes.data % ALIGNMENT
    array = room[start:start + bits.nbytes].view(DTYPE).reshape(SHAPE)
    array.view("u4")[:] = bits.reshape(SHAPE)
    return array


def supplier(row: Row) -> Callable[[], Any]:
    """Make a function that gives an array of a library; it makes a new one each time if a conversion uses it up."""
    module, array = row.load(), sample_array()
    if row.once:
        return lambda: row.make(module, array)
    # Some libraries share aligned memory only, and alignment is chance. An aligned array is looked for, so that every
    # run gives the same result.
    made = [row.make(module, array)]
    while len(made) < ALIGNMENT and address(made[-1]) % ALIGNMENT:
        made.append(row.make(module, array))
    return lambda: made[-1]


def address(array: Any) -> int:
    """Find the address of an array; it is 0 where asdlpack() fails, as convert() will in turn, with the reason."""
    try:
        return dlbridge.asdlpack(array).data_ptr
    except Exception:
        return 0


def convert(source: Row, target: Row, feed: Callable[[], Any]) -> Cell:
    """Convert, and compare the result with the source and with the plan of explain()."""
    first, second = dlbridge.asdlpack(feed()), dlbridge.asdlpack(feed())
    device = None if first.device.partition(":")[0] in target.devices else target.devices[0]
    keywords: dict[str, Any] = {} if device is None else {"device": device}
    given = feed()
    plan = dlbridge.explain(given, target.name, **keywords)
    made = dlbridge.convert(given, target.name, **keywords)
    shown = dlbridge.asdlpack(made)
    same = shown.data_ptr == first.data_ptr
    compare(source.values(source.load(), feed()),
            target.values(target.load(), dlbridge.convert(feed(), target.name, **keywords)))
    cost = nanoseconds(feed, target.name, device)
    if (made is given) != (plan.action == "return"):
        gives = "the array itself" if made is given else "another array"
        raise Wrong(f"explain() says {plan.action}, and convert() gives {gives}")
    if made is given:
        return Cell("returned", "", "", cost)
    if first.data_ptr != second.data_ptr:
        return Cell("copied", f"each export of {source.name} is a copy", "", cost)
    if plan.action == "copy" and not same:
        return Cell("copied", plan.reason, plan.hint, cost)
    # A library whose exports are copies does not show where its array lies: what explain() says is all that is known.
    if same != (plan.action == "share") and (same or address(made) in (0, shown.data_ptr)):
        raise Wrong(f"explain() says {plan.action}, and the memory is {'the same' if same else 'another'}")
    return Cell("shared", "", "", cost)


def compare(given: Any, came: Any) -> None:
    """Compare bit for bit, because -0.0 equals 0.0."""
    if (given.shape, given.dtype) != (came.shape, came.dtype):
        raise Wrong(f"{given.dtype} {given.shape} arrived as {came.dtype} {came.shape}")
    if given.tobytes() != came.tobytes():
        raise Wrong("values arrived changed")


def nanoseconds(feed: Callable[[], Any], to: str, device: str | None) -> float:
    """Time one call with the destruction of its result: the median of the repeats."""
    keyword = "" if device is None else ", device=device"
    timer = Timer(f"for src in items: convert(src, to{keyword})", f"items = [feed() for _ in range({CALLS})]",
                  globals={"convert": dlbridge.convert, "feed": feed, "to": to, "device": device})
    return statistics.median(timer.repeat(REPEATS, 1)) / CALLS * 1e9
