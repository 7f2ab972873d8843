"""Draw docs/architecture.svg, the house: which room stands on which floor.

A room imports only from its own floor and those below, and never in a circle. tests/package/test_house.py holds the
code against the table, and the picture too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlbridge"
PICTURE = ROOT / "docs" / "architecture.svg"


class Room(NamedTuple):
    """Modules that are drawn as one box, by their names from the package on; a folder ends with a dot."""

    label: str
    modules: tuple[str, ...]
    on_the_way: bool = False        # every conversion goes through it


class Floor(NamedTuple):
    """Rooms that stand on the same level."""

    number: int
    rooms: tuple[Room, ...]


FLOORS = (
    Floor(10, (
        Room("__main__", ("__main__",)),
        Room("demo/", ("demo.",)),
        Room("matrix/", ("matrix.",)),
        Room("testing/", ("testing.",)),
    )),
    Floor(9, (
        Room("convert", ("convert", "__init__"), on_the_way=True),
        Room("explain/, watch", ("explain.", "watch")),
        Room("register", ("register",)),
        Room("trees/", ("trees.",)),
        Room("gradients/", ("gradients.",)),
        Room("shards/", ("shards.",)),
        Room("processes/", ("processes.",)),
        Room("face", ("face",)),
    )),
    Floor(8, (
        Room("calls, conversion", ("_core.calls", "_core.conversion"), on_the_way=True),
        Room("route", ("_core.route",), on_the_way=True),
        Room("out, described", ("_core.out", "_core.described")),
        Room("forms", ("_core.forms", "_core.indices")),
    )),
    Floor(7, (
        Room("targets/: a file for each way of delivering", ("_core.targets.",), on_the_way=True),
        Room("uploads", ("_core.uploads",)),
    )),
    Floor(6, (Room("tensor: one Managed that speaks every protocol", ("tensor",)),)),
    Floor(5, (
        Room("sources/", ("_core.sources.",), on_the_way=True),
        Room("native/", ("_core.native.",), on_the_way=True),
        Room("decision, plan", ("_core.decision", "_core.plan", "_core.target"), on_the_way=True),
        Room("steps, place", ("_core.steps", "_core.place", "_core.narrowing"), on_the_way=True),
        Room("exports, capsule", ("_core.exports", "_core.capsule")),
        Room("copies", ("_core.copies",)),
        Room("constant", ("_core.constant",)),
    )),
    Floor(4, (
        Room("request: the keywords, checked once", ("_core.request",)),
        Room("meant: mistakes, and their hints", ("_core.meant",)),
    )),
    Floor(3, (Room("devices/: a row for each device type, the drivers, their streams", ("_core.devices.",)),)),
    Floor(2, (
        Room("block: made, checked, released", ("_core.block", "_core.view"), on_the_way=True),
        Room("dtypes", ("_core.dtypes",)),
        Room("layout", ("_core.layout",)),
        Room("copying", ("_core.copying", "_core.words")),
        Room("libraries/, containers", ("libraries.", "trees.containers")),
    )),
    Floor(1, (
        Room("abi", ("_core.abi", "_core.arrow_abi")),
        Room("numpy_api", ("_core.numpy_api",)),
        Room("errors, pending", ("errors", "_core.pending")),
        Room("typing", ("typing",)),
        Room("cache", ("_core.cache",), on_the_way=True),
        Room("late", ("_core.late",)),
        Room("system",
             ("_core.system", "_core.system_memory", "_core.atomic", "_core.locks", "_core.loading",
              "_core.__init__")),
        Room("plugins, picture", ("_core.plugins", "explain.picture")),
    )),
)


# ---- what the code imports -------------------------------------------------------------------------------------------

def modules() -> dict[str, list[Path]]:
    """The files of each module, by its name from the package on: ``_core.plan`` has a .pyx and a .pxd."""
    found: dict[str, list[Path]] = {}
    for pattern in ("*.py", "*.pyx", "*.pxd"):
        for path in sorted(PACKAGE.rglob(pattern)):
            found.setdefault(".".join(path.relative_to(PACKAGE).with_suffix("").parts), []).append(path)
    return found


def imports(known: dict[str, list[Path]]) -> dict[str, set[str]]:
    """The modules that each module imports or cimports, anywhere in its code."""
    return {name: {module for path in paths for module in resolved(imported_in(path), known)} - {name}
            for name, paths in known.items()}


def resolved(names: Iterator[str], known: dict[str, list[Path]]) -> Iterator[str]:
    """The modules of the package that imported names stand for; ``dlbridge.errors.refusal`` is ``errors``."""
    for name in names:
        root, _, rest = name.partition(".")
        while root == "dlbridge":
            module = next((each for each in (rest, f"{rest}.__init__".lstrip(".")) if each in known), None)
            if module is not None:
                yield module
                break
            rest = rest.rpartition(".")[0]


def imported_in(path: Path) -> Iterator[str]:
    """The full names that a file imports, in functions and for type checkers too."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{each.name}" for each in node.names)
        return
    yield from re.findall(r'"(dlbridge(?:\.[a-z_]+)+)"', code_of(text))        # in C, or by its name
    for module, many, few in re.findall(
            r"^ *from +([\w.]+) +c?import +(?:\(([^)]*)\)|([^\n]*))", code_of(text), re.MULTILINE):
        yield from (f"{module}.{part.split()[0]}" for part in (many or few).split(",") if part.strip())
    for several in re.findall(r"^ *c?import +([^\n]*)", code_of(text), re.MULTILINE):
        yield from (part.split()[0] for part in several.split(","))


def code_of(text: str) -> str:
    """Cython code without its comments and triple-quoted strings."""
    text = re.sub(r'"""(?:\\.|[^\\])*?"""', '""', text, flags=re.DOTALL)
    return re.sub(r"#[^\n]*", "", text)


def room_of(module: str) -> tuple[int, Room] | None:
    """The floor and the room of a module; None where the table has none."""
    found = None
    for floor in FLOORS:
        for room in floor.rooms:
            if module in room.modules:
                return floor.number, room       # also where the rest of its folder is in another room
            if any(name.endswith(".") and module.startswith(name) for name in room.modules):
                found = floor.number, room
    return found


# ---- the picture -----------------------------------------------------------------------------------------------------

WIDTH, LEFT, HEIGHT, STEP, ROOF, GAP = 880, 80, 32, 50, 56, 10
PLAIN, WAY = 'stroke="#7a869a" fill="#ffffff"', 'stroke="#8a6d1b" fill="#fdf0c4"'


def picture() -> str:
    """A floor for each line of the table, with boxes as wide as their labels want."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {ROOF + STEP * len(FLOORS) + 4}" '
        'font-family="system-ui, sans-serif" font-size="14" role="img">',
        "  <title>The floors of dlbridge; what every conversion goes through is yellow</title>",
        '  <path d="M30 52 440 8 850 52z" fill="#7a869a"/>',
    ]
    for index, floor in enumerate(FLOORS):
        lines += drawn_floor(floor, ROOF + STEP * index)
    return "\n".join([*lines, "</svg>", ""])


def widths(floor: Floor) -> list[int]:
    """Of the boxes of a floor, in pixels."""
    free = WIDTH - LEFT - 50 - GAP * (len(floor.rooms) - 1)
    weights = [len(room.label) + 4 for room in floor.rooms]
    return [free * weight // sum(weights) for weight in weights]


def drawn_floor(floor: Floor, top: int) -> Iterator[str]:
    """The level, its number and its rooms."""
    yield f'  <path d="M30 {top}h820v46h-820z" stroke="#7a869a" fill="#eef1f6"/>'
    yield f'  <text x="52" y="{top + 28}" fill="#5b677a" text-anchor="middle">{floor.number}</text>'
    left = LEFT
    for room, width in zip(floor.rooms, widths(floor), strict=True):
        yield (f'  <path d="M{left} {top + 7}h{width}v{HEIGHT}h-{width}z" '
               f"{WAY if room.on_the_way else PLAIN}/>")
        yield (f'  <text x="{left + width // 2}" y="{top + 28}" fill="#1c2430" text-anchor="middle">'
               f"{room.label}</text>")
        left += width + GAP


def main(_: list[str]) -> None:
    PICTURE.write_text(picture(), encoding="utf-8")
