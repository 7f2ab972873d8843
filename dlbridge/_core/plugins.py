"""Packages that add sources and targets by entry points. An entry point is loaded when its name is first needed."""

from importlib.metadata import EntryPoint, entry_points

from dlbridge._core.locks import ForkableLock

TARGETS = "dlbridge.targets"    # an entry point has the name of its target
SOURCES = "dlbridge.sources"    # an entry point has the name of the package whose types it takes

_found: dict[str, tuple[EntryPoint, ...]] = {}
_begun: set[EntryPoint] = set()
_loaded: set[EntryPoint] = set()
_calling = ForkableLock()       # a thread that needs the same name waits until the other has registered it


def found(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of the installed packages. They are looked up once, since that reads all of the metadata."""
    if group not in _found:
        _found[group] = tuple(entry_points(group=group))
    return _found[group]


def load(group: str, name: str) -> bool:
    """Call every function of a name that was not called before. True if something may have been registered."""
    wanted = [point for point in found(group) if point.name == name and point not in _loaded]
    if not wanted:
        return False
    with _calling.lock:
        if any(point in _begun for point in wanted):
            return False        # the function that is being called converts something itself
        for point in wanted:
            if point not in _loaded:        # another thread may have loaded it while this one waited
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
