"""Packages that add sources and targets, by entry points; each is loaded when its name is first needed."""

from importlib.metadata import EntryPoint, entry_points

TARGETS = "dlbridge.targets"    # the name is that of the target
SOURCES = "dlbridge.sources"    # the name is the first part of the module of the types

_found: dict[str, tuple[EntryPoint, ...]] = {}
_loaded: set[EntryPoint] = set()


def found(group: str) -> tuple[EntryPoint, ...]:
    """What the installed packages offer; looked up once, for it reads the metadata of all of them."""
    if group not in _found:
        _found[group] = tuple(entry_points(group=group))
    return _found[group]


def load(group: str, name: str) -> bool:
    """Call every function that a name stands for and that was not called before; whether there was one."""
    new = [point for point in found(group) if point.name == name and point not in _loaded]
    for point in new:
        _loaded.add(point)      # first, for it may convert
        try:
            point.load()()
        except BaseException:
            _loaded.discard(point)
            raise
    return bool(new)


def names(group: str) -> set[str]:
    """The names that the installed packages offer."""
    return {point.name for point in found(group)}
