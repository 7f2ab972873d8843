"""watch(): where a program copies, for people."""

from __future__ import annotations

import atexit
import html
import os
import sys
from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any, NamedTuple

from dlbridge._core import copies as _copies
from dlbridge._core.locks import ForkableLock, call_in_child
from dlbridge.errors import full_name, shown

MOST_ROWS = 1000                # of a watch; what comes from further places is in one row
FURTHER = "further places"
NO_PLACE = "no code of Python"
NOT_CALLERS = {"torch._dynamo.eval_frame"}      # by which dlbridge calls itself
UNITS = "bytes", "KiB", "MiB", "GiB", "TiB"


class Copy(NamedTuple):
    """The copies of one kind that were made for one line of a program.

    Attributes
    ----------
    times, nbytes : int
        How many were begun, and how many bytes their elements have together, before a change of their type.
    source, device : str
        The type of what was copied, or the protocol that its memory was read by, and where that is.
    target, target_device : str
        What it was copied for, and where the copy is.
    reason, hint : str
        Why it was copied the first time, and what would avoid it.
    place : str
        The file and the line that called dlbridge, which may be another library's.
    path : str
        Where it is in the tree, or among the arguments, that were converted; empty for an array alone.
    """

    times: int
    nbytes: int
    source: str
    device: str
    target: str
    target_device: str
    reason: str
    hint: str
    place: str
    path: str = ""

    def __str__(self) -> str:
        there = self.target if self.target_device == self.device else f"{self.target} on {self.target_device}"
        lines = [f"{count(self.times)}, {size(self.nbytes)}: {self.source} on {self.device} -> {there}",
                 f"  at       {self.place}{', ' if self.path else ''}{self.path}"]
        lines += [f"  because  {self.reason}"] if self.reason else []
        lines += [f"  hint     {self.hint}"] if self.hint else []
        return "\n".join(lines)


class Copies:
    """The copies that are made while it is entered, by :func:`dlbridge.watch`: iterable, most bytes first."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], Copy] = {}

    def __enter__(self) -> Copies:
        import_module("logging")        # not with the first copy: a child that is forked meanwhile could not import it
        with LOCK.lock:
            if self in watching:
                raise RuntimeError("watch: it is entered already (call dlbridge.watch() for another one)")
            watching.append(self)
            _copies.begin(listen)
        return self

    def __exit__(self, *raised: object) -> None:
        with LOCK.lock:
            if self not in watching:
                if python_ends:
                    return
                raise RuntimeError("watch: it is not entered (write with dlbridge.watch() as copies:)")
            watching.remove(self)
            _copies.end()
            for each in [each for those in list(pending.values()) for each in list(those)]:
                if self in each.watches:
                    each.watches.remove(self)
                    self.add(each.kind, each.copy)      # its tree is not done, so its place in it is not known

    def __iter__(self) -> Iterator[Copy]:
        with LOCK.lock:
            rows = list(self._rows.values())
        return iter(sorted(rows, key=lambda row: -row.nbytes))

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        rows = list(self)
        if not rows:
            return "no copies"
        total = f"{count(sum(row.times for row in rows))}, {size(sum(row.nbytes for row in rows))}"
        return "\n".join([f"{total} copied", *map(str, rows)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("times", "bytes", "from", "to", "because", "hint", "at"))
        return f"<table><tr>{head}</tr>{''.join(map(row_of_table, self))}</table>"

    def add(self, kind: Any, copy: Copy) -> bool:
        """Count a copy; whether it is the first of its row."""
        where = copy.source, copy.device, copy.target, copy.target_device, copy.place, copy.path
        key: tuple[Any, ...] = (kind or copy.reason, *where)
        found = self._rows.get(key)
        if found is None and len(self._rows) >= MOST_ROWS:
            key, copy = (FURTHER,), Copy(1, copy.nbytes, "arrays", "any device", "any library", "any device", "", "",
                                         FURTHER)
            found = self._rows.get(key)
        self._rows[key] = copy if found is None else found._replace(
            times=found.times + copy.times, nbytes=found.nbytes + copy.nbytes)
        return found is None


def watch() -> Copies:
    """See every copy that dlbridge makes, or has made by a library, in all threads, and why.

    Returns
    -------
    Copies
        A context manager. What is copied while it is entered is in it, by the line of the program that called dlbridge:
        it prints as a table, and gives a :class:`Copy` for each row, most bytes first.

    Notes
    -----
    The logger "dlbridge" gets each row once, at level INFO, while somebody watches. With ``DLBRIDGE_WATCH=1`` in the
    environment, all of a program is watched, and the table is printed to stderr when Python ends. Each process counts
    for itself.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> with dlbridge.watch() as copies:
    ...     tensor = dlbridge.asdlpack(numpy.zeros((2, 3), ">f4"))
    >>> [copy] = copies
    >>> copy.times, copy.nbytes, copy.reason
    (1, 24, "byte order is not this machine's, and dlbridge has no other")
    """
    return Copies()


# ---- what is noted ---------------------------------------------------------------------------------------------------

LOCK = ForkableLock()
watching: list[Copies] = []         # those that are entered
python_ends = False
called_from: dict[int, str] = {}    # the line that called prefetch(), by the thread that reads for it


class TreeCopy:
    """A copy in a tree, of which it is known later where its leaf is, for those who watched when it was made."""

    def __init__(self, leaf: Any, kind: Any, copy: Copy) -> None:
        self.leaf = leaf
        self.kind = kind
        self.copy = copy
        self.rest = ""              # what is written after the leaf's path
        self.watches = list(watching)


pending: dict[int, list[TreeCopy]] = {}     # by the thread


def listen(
    src: Any, kind: Any, source: str, device: str, target: str, target_device: str, nbytes: int | None, reason: str,
    hint: str,
) -> None:
    """Note a copy for all who watch; ``kind`` is the same for the same reason, whose text may have an address in it.

    ``nbytes`` is None where src has to say it.
    """
    place, in_tree = caller()
    nbytes = bytes_of(src) if nbytes is None else nbytes
    copy = Copy(1, nbytes, source, device, target, target_device, reason, hint, place)
    if in_tree:
        pending.setdefault(get_ident(), []).append(TreeCopy(src, kind, copy))
    else:
        count_copy(kind, copy, watching)


def note_by_library(src: Any, target: str, nbytes: int, reason: str, hint: str, path: str) -> None:
    """Note a copy on the host that a library makes for dlbridge, for all who watch."""
    copy = Copy(1, nbytes, shown(type(src), full_name), "cpu", target, "cpu", reason, hint, caller()[0], path)
    count_copy(None, copy, watching)


def bytes_of(array: Any) -> int:
    """How many bytes an array says that it has; 0 if it does not say it."""
    with suppress(Exception):
        nbytes = array.nbytes
        if type(nbytes) is int:
            return nbytes
    return 0


def caller() -> tuple[str, bool]:
    """The line that called dlbridge, and whether it was for a tree."""
    in_tree = False
    for module, frame in callers():
        if module == "threading" and get_ident() in called_from:
            return called_from[get_ident()], in_tree
        if module.partition(".")[0] != "dlbridge" and module not in NOT_CALLERS:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}", in_tree
        in_tree = in_tree or module.startswith("dlbridge.trees.")
    return NO_PLACE, in_tree


def callers() -> Iterator[tuple[str, FrameType]]:
    """The frames that led here, the last call first, each after the name of its module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield str(frame.f_globals.get("__name__")), frame
        frame = frame.f_back


def count_copy(kind: Any, copy: Copy, watches: list[Copies]) -> None:
    with LOCK.lock:
        is_new = [each.add(kind, copy) for each in watches]
    if is_new and all(is_new):
        with suppress(Exception):       # of a filter or a handler: the conversion goes on
            sys.modules["logging"].getLogger("dlbridge").info("%s", copy)


def name_leaf(array: Any) -> None:
    """Name the leaf of those copies of this thread of which only the memory was known."""
    for each in pending.get(get_ident(), ()):
        if each.leaf is None:
            each.leaf = array


def in_this_tree(leaves: Callable[[], Iterable[tuple[str, Any]]]) -> None:
    """Say of the copies that this thread has noted where they are, once a tree is done.

    ``leaves`` gives the leaves of the tree, each after what is written to get it. In a tree that was converted while
    another one was, only those are counted that are in it.
    """
    mine = pending.pop(get_ident(), [])
    found: list[tuple[str, Any]] = []
    with suppress(Exception):           # some containers can be taken apart only once
        found = list(leaves()) if mine else []
    paths = {id(leaf): path for path, leaf in reversed(found)}
    if mine and is_nested():
        pending[get_ident()] = [each for each in mine if id(each.leaf) not in paths]
        mine = [each for each in mine if id(each.leaf) in paths]
    settle(mine, lambda leaf: paths.get(id(leaf), ""))


def is_nested() -> bool:
    """Whether a tree is converted by code that runs while another one is."""
    outside = False
    for module, _ in callers():
        if outside and module.startswith("dlbridge.trees."):
            return True
        outside = outside or module.partition(".")[0] != "dlbridge"
    return False


def settle(those: Iterable[TreeCopy], path_of: Callable[[Any], str]) -> None:
    """Count copies whose places are known by now."""
    for each in those:
        count_copy(each.kind, each.copy._replace(path=path_of(each.leaf) + each.rest), each.watches)


def start_anew() -> None:
    """Each process counts for itself."""
    for each in watching:
        each._rows.clear()


call_in_child(start_anew)
call_in_child(pending.clear)            # other threads are not in the child
call_in_child(called_from.clear)


# ---- how it is shown -------------------------------------------------------------------------------------------------

def count(times: int) -> str:
    return "once" if times == 1 else f"{times:,} times"


def size(nbytes: float) -> str:
    unit = 0
    while nbytes >= 1024 and unit < len(UNITS) - 1:
        nbytes, unit = nbytes / 1024, unit + 1
    return f"{nbytes:,.1f} {UNITS[unit]}" if unit else f"{nbytes} {UNITS[0]}"


def row_of_table(copy: Copy) -> str:
    cells = (f"{copy.times:,}", size(copy.nbytes), f"{copy.source} on {copy.device}",
             f"{copy.target} on {copy.target_device}", copy.reason, copy.hint, f"{copy.place} {copy.path}")
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"


@atexit.register
def end_all() -> None:
    """What converts in the last finalizers finds nothing of Python's that could be told."""
    global python_ends
    python_ends = True
    for each in list(watching):
        each.__exit__()


def watch_the_program() -> None:
    copies = Copies().__enter__()
    atexit.register(lambda: print(copies, file=sys.stderr))


if os.environ.get("DLBRIDGE_WATCH") == "1":
    watch_the_program()
