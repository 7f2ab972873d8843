"""Draw the pictures of the documentation: ``python tools/pages pictures``.

docs/sharing.svg is the memory that three arrays share, before and after one of them is written to; its values are those
of a conversion. docs/plan.svg is the picture of a Plan.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dlbridge
from dlbridge.explain.picture import CODE, COLOURS, INK, WIDTH, box, tag, text

DOCS = Path(__file__).parents[2] / "docs"
BOX, GAP, TOP = 208, 28, 50                     # the width of an array's box, what is between two, and their height
CELL, STRIP, HEIGHT = 48, 104, 178              # a cell of memory, where its strip begins, and the height of it all
WRITTEN = 2                                     # the element that is written to


def sharing() -> str:
    """The memory of an ndarray, of a tensor and of a memoryview, in two states that take turns."""
    array = np.arange(6.0)
    tensor = dlbridge.convert(array, "torch")
    view = dlbridge.convert(tensor, "memoryview")
    assert {array.ctypes.data, tensor.data_ptr(), np.asarray(view).ctypes.data} == {array.ctypes.data}
    before = state(f"array[{WRITTEN}]", array, tensor, view)
    array[WRITTEN] = 7
    after = state(f"array[{WRITTEN}] = 7", array, tensor, view)
    code = ("numpy.arange(6.0)", 'convert(array, "torch")', 'convert(tensor, "memoryview")')
    content = "".join([*boxes(code), *strip(len(array)), turn(before, "1;0", 0), turn(after, "0;1", 1),
                       text(f"one memory of {array.nbytes} bytes: nothing is copied", WIDTH / 2, HEIGHT - 8, size=12)])
    label = ("An ndarray, a tensor and a memoryview lead to the same memory; "
             f"after array[{WRITTEN}] = 7, all three show the 7")
    return tag("svg", content, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH,
               height=HEIGHT, role="img", aria_label=label, fill="none") + "\n"


def boxes(code: tuple[str, ...]) -> Iterator[str]:
    """A box for each array, with a line to the memory."""
    for place, line in enumerate(code):
        x = place * (BOX + GAP)
        middle, first = x + BOX / 2, WIDTH / 2 + (place - 1) * CELL
        yield box(x + 1, 2, BOX - 2, TOP, rx=5, stroke=INK, stroke_opacity=0.8, fill=INK, fill_opacity=0.05)
        yield text(line, middle, 21, size=11, font=CODE)
        yield tag("path", d=f"M{middle:g} {TOP + 4}C{middle:g} {STRIP - 18} {first:g} {TOP + 24} {first:g} {STRIP - 6}",
                  stroke=COLOURS["share"], stroke_width=2)
        yield tag("path", d=f"M{first:g} {STRIP - 2}l-4.5 -8h9z", fill=COLOURS["share"])


def strip(count: int) -> Iterator[str]:
    """The cells of the memory."""
    for index in range(count):
        yield box(left(index, count), STRIP, CELL, 34, stroke=COLOURS["cell"], fill=COLOURS["cell"], fill_opacity=0.14)


def left(index: int, count: int) -> float:
    return (WIDTH - count * CELL) / 2 + index * CELL


def state(first: str, array: Any, tensor: Any, view: memoryview) -> str:
    """What each array has at the place that is written to, and what is in the memory."""
    read = [float(each[WRITTEN]) for each in (array, tensor, view)]
    lines = (first if "=" in first else f"{first} is {read[0]}", f"tensor[{WRITTEN}] is {read[1]}",
             f"view[{WRITTEN}] is {read[2]}")
    parts = [text(line, place * (BOX + GAP) + BOX / 2, 40, size=12, font=CODE, weight=weight("=" in line))
             for place, line in enumerate(lines)]
    parts += [text(str(value), left(index, len(array)) + CELL / 2, STRIP + 22, size=13, font=CODE,
                   weight=weight(value == 7)) for index, value in enumerate(array.tolist())]
    return "".join(parts)


def weight(written: bool) -> str:
    return "600" if written else "normal"


def turn(content: str, values: str, still: int) -> str:
    """One of two states: shown for three seconds, then not. ``still``: whether it is shown where nothing moves."""
    moves = tag("animate", attributeName="opacity", values=values, dur="6s", calcMode="discrete",
                repeatCount="indefinite")
    return tag("g", content + moves, opacity=still)


def plan() -> str:
    """The plan for a flipped image, as a file of its own."""
    image = np.zeros((1080, 1920, 3), "uint8")
    html = dlbridge.explain(image[:, ::-1], "torch")._repr_html_()
    address = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert address is not None
    return base64.b64decode(address[1]).decode() + "\n"


PICTURES = {"sharing.svg": sharing, "plan.svg": plan}

def main(words: list[str]) -> None:
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
