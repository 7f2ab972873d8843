"""Packages that add sources and targets, by entry points; each is loaded when its name is first needed."""

from importlib.metadata import EntryPoint, entry_points

from dlbridge._core.locks import ForkableLock

TARGETS = "dlbridge.targets"    # the name is that of the target
SOURCES = "dlbridge.sources"    # the name is the first part of the module of the types

_found: dict[str, tuple[EntryPoint, ...]] = {}
_begun: set[EntryPoint] = set()
_loaded: set[EntryPoint] = set()
_calling = ForkableLock()       # who meets the same name meanwhile waits for what is being registered


def found(group: str) -> tuple[EntryPoint, ...]:
    """What the installed packages offer; looked up once, for it reads the metadata of all of them."""
    if group not in _found:
        _found[group] = tuple(entry_points(group=group))
    return _found[group]


def load(group: str, name: str) -> bool:
    """Call every function that a name stands for and that was not called before; whether to look once more."""
    wanted = [point for point in found(group) if point.name == name and point not in _loaded]
    if not wanted:
        return False
    with _calling.lock:
        if any(point in _begun for point in wanted):
            return False        # it converts itself
        for point in wanted:
            if point not in _loaded:        # while this thread waited
                _begun.add(point)
                try:
                    point.load()()
                    _loaded.add(point)
                finally:
                    _begun.discard(point)
    return True


def names(group: str) -> set[str]:
    """The names that the installed packages offer."""
    return {point.name for point in found(group)}
