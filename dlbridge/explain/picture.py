"""Pictures for notebooks: the path of a conversion and where elements lie, as HTML with images in it.

They are drawn from plain data: no element is read. Each drawing is an image of SVG, with all of it in its address: a
viewer that does not trust a notebook takes SVG out of the HTML, and leaves its words, but shows such an image. An image
does not know its page, so all of its colours can be read on light pages and on dark ones. There are no classes and no
ids that could collide with those of the page.
"""

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

# Each colour has a contrast of at least 3 to white and to the dark pages of JupyterLab, VS Code and GitHub; that of
# words and frames, which has no hue, has 4 to nearly all of them.
COLOURS = {"share": "#1b8f6a", "copy": "#bf7400", "refuse": "#d9483b", "cell": "#3d82d8", "ink": "#747f8b"}
INK = COLOURS["ink"]
WIDTH = 680
CODE = "ui-monospace, monospace"
WORDS = "system-ui, sans-serif"
CODE_WIDTH, WORDS_WIDTH = 0.61, 0.56        # the width of a character, in heights of its font

# Characters that would end a text or an attribute, that no document may hold, or that turn the direction of the text
# around them.
ESCAPES: dict[int, str] = dict.fromkeys(
    (*range(0x20), *range(0x7F, 0xA0), *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A),
     *range(0xD800, 0xE000), 0xFEFF, 0xFFFE, 0xFFFF),
    "\N{REPLACEMENT CHARACTER}",
) | {ord("\n"): " ", ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}


class Memory(NamedTuple):
    """What is known of memory without reading it.

    Attributes
    ----------
    shape, strides : tuple of int
    step_bits : int
        How many bits a stride of 1 means.
    item_bits, value_bits : int
        The bits of an element, and how many of them are its value.
    dtype, device : str
    nbytes : int
    readonly : bool
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    step_bits: int
    item_bits: int
    value_bits: int
    dtype: str
    device: str
    nbytes: int
    readonly: bool

    @property
    def axes(self) -> list[tuple[int, int]]:
        """The extent of each axis, and how many bits a step along it is."""
        return [(size, stride * self.step_bits) for size, stride in zip(self.shape, self.strides, strict=True)]


# ---- pages -----------------------------------------------------------------------------------------------------------

def of_tensor(memory: Memory, owner: str, protocol: str, address: int) -> str:
    """The picture of a Tensor: whose memory it shares, what the memory is, and where its elements lie."""
    alignment = min(address & -address, 256)        # the largest power of two that divides it, within reason
    rows = memory_rows(memory) | {
        "address": f"{address:#x}, aligned to {amount(8 * alignment)}" if address else "none",
        "owner": f"{owner or 'no Python object'}, by {protocol}",
    }
    path = [draw_path("share", owner, protocol, "dlbridge.Tensor", memory.readonly)] if owner else []
    return page(*path, draw_memory(memory), table(rows))


def of_plan(
    action: str, source: str, protocol: str, target: str, reason: str, hint: str, memory: Memory | None,
    leaves: dict[str, str],
) -> str:
    """The picture of a Plan: the path, the reason for it, and the memory, or the arrays, that it starts from."""
    path = draw_path(action, source, protocol, target, memory is not None and memory.readonly)
    reasons = table({name: words for name, words in (("because", reason), ("hint", hint)) if words})
    return page(path, reasons, *([draw_memory(memory), table(memory_rows(memory))] if memory else []), table(leaves))


def page(*parts: str) -> str:
    return tag("div", "".join(parts), style=f"max-width:{WIDTH}px;font-family:var(--jp-content-font-family, {WORDS});"
               "font-size:12px;line-height:1.5")


def table(rows: dict[str, str]) -> str:
    """A table of names and words, or nothing if there are no rows.

    A notebook's own style sheet cannot override style attributes.
    """
    cell = "text-align:left;vertical-align:top;border:0;background:none;padding:1px 16px 1px 0;"
    lines = "".join(
        tag("tr", tag("th", escaped(name), style=f"{cell}font-weight:normal;opacity:.7;white-space:nowrap")
            + tag("td", escaped(value), style=f"{cell}overflow-wrap:anywhere"), style="background:none")
        for name, value in rows.items()
    )
    style = ("margin:6px 0;border:0;border-collapse:collapse;font-size:12px;table-layout:auto;color:inherit;"
             "background:none")
    return tag("table", tag("tbody", lines), style=style) if rows else ""


def memory_rows(memory: Memory) -> dict[str, str]:
    """The rows of the table about memory."""
    bits = tuple(step for _, step in memory.axes)
    steps = f"{bits} in bits" if any(step % 8 for step in bits) else f"{tuple(step // 8 for step in bits)} in bytes"
    in_elements = f"{memory.strides} in elements, " if memory.step_bits == memory.item_bits else ""
    return {
        "shape": str(memory.shape),
        "strides": in_elements + steps if memory.shape else "()",
        "layout": layout(memory),
        "dtype": memory.dtype,
        "memory": f"{elements(memory)}, {amount(8 * memory.nbytes)}, "
                  f"{'read-only' if memory.readonly else 'writable'}, on {memory.device}",
    }


def elements(memory: Memory) -> str:
    count = math.prod(memory.shape)
    packed = ", packed" if memory.item_bits % 8 else ""
    padded = f", padded to {amount(memory.item_bits)}" if memory.item_bits != memory.value_bits else ""
    return f"{count:,} element{'' if count == 1 else 's'} of {amount(memory.value_bits)}{packed}{padded}"


def layout(memory: Memory) -> str:
    """The order of the elements in words."""
    if math.prod(memory.shape) <= 1:
        return "one element" if math.prod(memory.shape) else "no elements"
    moving = [(axis, step) for axis, (size, step) in enumerate(memory.axes) if size > 1]
    phrases = (
        order([abs(step) for _, step in moving if step]),
        density(memory),
        along("backwards", [axis for axis, step in moving if step < 0]),
        along("broadcast", [axis for axis, step in moving if step == 0]),
    )
    return ", ".join(filter(None, phrases))


def along(word: str, axes: Sequence[int]) -> str:
    if len(axes) > 4:
        return f"{word} along {len(axes)} axes"
    return f"{word} along {'axis' if len(axes) == 1 else 'axes'} {', '.join(map(str, axes))}" if axes else ""


def order(steps: Sequence[int]) -> str:
    falling = sorted(steps, reverse=True)
    if len(steps) < 2:
        return ""
    return "C order" if steps == falling else "Fortran order" if steps == falling[::-1] else "axes permuted"


def density(memory: Memory) -> str:
    """Whether the elements fill the memory between the first and the last. An axis with stride 0 counts once."""
    reach = memory.item_bits
    words = "no gaps"
    for step, size in sorted((abs(step), size) for size, step in memory.axes if size > 1 and step):
        if step < reach:
            return "elements overlap"
        words = words if step == reach else "with gaps"
        reach += step * (size - 1)
    return words


def amount(bits: int) -> str:
    """A number of bits, in the largest unit that expresses it exactly."""
    if bits % 8:
        return f"{bits:,} bit{'' if bits == 1 else 's'}"
    count = bits // 8
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if count and count % (1 << power) == 0:
            return f"{count >> power:,} {unit}"
    return f"{count:,} byte{'' if count == 1 else 's'}"


# ---- SVG -------------------------------------------------------------------------------------------------------------

def escaped(words: str) -> str:
    return str.translate(words, ESCAPES)


def tag(name: str, content: str = "", /, **attributes: str | float) -> str:
    """An element of a page. Its content is markup; its attributes are plain text, which is escaped here."""
    words = "".join(
        f' {key.replace("_", "-")}="{escaped(value) if isinstance(value, str) else f"{value:.6g}"}"'
        for key, value in attributes.items()
    )
    return f"<{name}{words} />" if name == "img" else f"<{name}{words}>{content}</{name}>"


def drawing(label: str, content: str, height: float) -> str:
    """An image that shrinks with the page. ``label`` stands in for it where images are not shown."""
    svg = tag("svg", content, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height:.6g}", width=WIDTH,
              height=height, role="img", aria_label=label, fill="none")
    address = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return tag("img", alt=label, src=address, width=WIDTH,
               style="display:block;max-width:100%;height:auto;margin:2px 0;background:none")


def text(words: str, x: float, y: float, *, size: int = 11, anchor: str = "middle", font: str = WORDS,
         weight: str = "normal") -> str:
    return tag("text", escaped(words), x=x, y=y, text_anchor=anchor, fill=INK, style=f"font:{weight} {size}px {font}")


def box(x: float, y: float, width: float, height: float, title: str = "", **attributes: str | float) -> str:
    return tag("rect", tag("title", escaped(title)) if title else "", x=x, y=y, width=width, height=height,
               **attributes)


def shortened(words: str, most: int) -> str:
    """A name, shortened to its end if it is too long. The end says more than the beginning."""
    return words if len(words) <= most else "…" + words[-most + 1:]


# ---- a path ----------------------------------------------------------------------------------------------------------

class Form(NamedTuple):
    """How an action looks: its colour, a figure of the memory that is 18 wide and high, and the lines beside it."""

    note: str
    colour: str
    figure: str
    before: str
    after: str


LINES: dict[str, dict[str, str | float]] = {
    "solid": {"stroke_width": 2},
    "dashed": {"stroke_width": 2, "stroke_dasharray": "6 4"},
    "double": {"stroke_width": 1.5},
    "missing": {"stroke_width": 1.5, "stroke_dasharray": "1 7", "stroke_opacity": 0.6},
}
FORMS = {
    "share": Form("the same memory", COLOURS["share"], "M2 4h14v10h-14zM6.7 4v10M11.3 4v10", "solid", "solid"),
    "return": Form("src itself", COLOURS["share"], "M2 6.5h14M2 11.5h14", "double", "double"),
    "copy": Form("new memory", COLOURS["copy"], "M2 2h10v9h-10zM6 11v5h10v-9h-4", "dashed", "dashed"),
    "refuse": Form("no result", COLOURS["refuse"], "M3.5 3.5l11 11M14.5 3.5l-11 11", "solid", "missing"),
}
BOX_HEIGHT, LEFT_BOX, MIDDLE, RIGHT_BOX = 40, 224, 104, 176


def draw_path(action: str, source: str, protocol: str, target: str, readonly: bool) -> str:
    """The path from the source and its protocol, past what is done with the memory, to the target."""
    form = FORMS[action]
    note = f"{form.note}, read-only" if readonly and action == "share" else form.note
    by = f"by {protocol}" if protocol else ""
    middle = (LEFT_BOX + WIDTH - RIGHT_BOX - MIDDLE) / 2
    ends = ((LEFT_BOX, middle), (middle + MIDDLE, WIDTH - RIGHT_BOX))
    parts = [
        station(1, LEFT_BOX - 1, source, by),
        *(connection(start, end, kind, form.colour) for (start, end), kind in zip(
            ends, (form.before, form.after), strict=True)),
        box(middle, 8, MIDDLE, 28, rx=14, stroke=form.colour, stroke_width=2, fill=form.colour, fill_opacity=0.14),
        tag("path", d=form.figure, transform=f"translate({middle + 16:.6g} 13)", stroke=form.colour, stroke_width=2),
        text(action, middle + 62, 26.5, size=13, weight="600"),
        text(note, middle + MIDDLE / 2, 52),
        station(WIDTH - RIGHT_BOX, RIGHT_BOX - 1, target, "", absent=form.after == "missing"),
    ]
    return drawing(f"{source} {by}: {action}, {note}: {target}", "".join(parts), 58)


def station(x: float, width: float, name: str, note: str, absent: bool = False) -> str:
    """One end of a path. It is dashed if no array arrives there."""
    frame = box(x, 2, width, BOX_HEIGHT, name, rx=5, stroke=INK, stroke_opacity=0.8, fill=INK,
                fill_opacity=0 if absent else 0.05, stroke_dasharray="4 4" if absent else "none")
    label = text(shortened(name, int((width - 16) / 12 / CODE_WIDTH)), x + width / 2, 19 if note else 26,
                 size=12, font=CODE)
    return frame + label + (text(note, x + width / 2, 34) if note else "")


def connection(start: float, end: float, kind: str, colour: str) -> str:
    """A line to the next station, with an arrow if an array arrives there."""
    y = 2 + BOX_HEIGHT / 2
    if kind == "double":
        d = f"M{start + 5:.6g} {y - 2.5}H{end - 5:.6g}M{start + 5:.6g} {y + 2.5}H{end - 5:.6g}"
    else:
        d = f"M{start + 5:.6g} {y}H{end - 6:.6g}"
    arrow = "" if kind != "solid" and kind != "dashed" else tag(
        "path", d=f"M{end - 4:.6g} {y}l-8 -4.5v9z", fill=colour)
    return tag("path", d=d, stroke=colour, **LINES[kind]) + arrow


# ---- memory ----------------------------------------------------------------------------------------------------------

MOST_ROWS, MOST_COLUMNS = 4, 12
MOST_ITEMS = 28             # how many are drawn side by side
WIDEST_GAP = 4              # in items; wider gaps are left out
BREAK = 1.5                 # how wide a gap that is left out is drawn, in items
GUTTER = 112                # for the names of rows
WIDEST_ITEM = 34
RULER, STRIP, LANES, LANE, CELL = 12, 22, 54, 26, 20        # heights, from the top


class Row(NamedTuple):
    """A run along the last axis: its place along the other axes, and the bits from the data pointer to each cell."""

    leading: tuple[int, ...]
    starts: list[int]


def draw_memory(memory: Memory) -> str:
    """A strip of memory to scale, with the first rows beneath it. Every cell is below its place in the strip."""
    label = f"Memory of {memory.dtype} {memory.shape}: {layout(memory)}"
    if not math.prod(memory.shape):
        frame = box(GUTTER, 2, 160, CELL, rx=2, stroke=INK, stroke_opacity=0.5, stroke_dasharray="3 3")
        return drawing(label, frame + text("no elements", GUTTER + 80, 16), 26)
    rows = chosen_rows(memory)
    scale = Scale(memory, rows)
    below = LANES + LANE * len(rows)
    parts = [*draw_strip(memory, scale, rows), *draw_ruler(scale)]
    for number, row in enumerate(rows):
        parts += draw_row(memory, scale, row, LANES + LANE * number)
    more = math.prod(memory.shape[:-1]) - len(rows)
    if more:
        parts.append(text(f"… {more:,} more row{'' if more == 1 else 's'}", GUTTER, below + 9, anchor="start"))
        below += 18
    steps = step_text(memory)
    if steps:
        parts.append(text(steps, GUTTER, below + 10, anchor="start"))
        below += 16
    return drawing(label, "".join(parts), below)


def step_text(memory: Memory) -> str:
    """How far it is to the next element of a row, and to the next row."""
    names = ("next in a row", "next row")
    return "   ·   ".join(
        f"{name}: {signed(step)}" if step else f"{name}: the same memory again"
        for name, (size, step) in zip(names, reversed(memory.axes), strict=False) if size > 1)


def signed(bits: int) -> str:
    return ("+" if bits > 0 else "\N{MINUS SIGN}") + amount(abs(bits))


def chosen_rows(memory: Memory) -> list[Row]:
    """The first rows with their first cells, as many as there is room for."""
    rows = min(math.prod(memory.shape[:-1]), MOST_ROWS)
    columns = min(memory.shape[-1], MOST_COLUMNS) if memory.shape else 1
    while True:
        chosen = [first_cells(memory, number, columns) for number in range(rows)]
        if rows * columns == 1 or Scale(memory, chosen).items <= MOST_ITEMS:
            return chosen
        if columns > 3 or rows == 1:
            columns -= 1
        else:
            rows -= 1


def first_cells(memory: Memory, number: int, columns: int) -> Row:
    leading: list[int] = []
    first = 0
    for size, step in reversed(memory.axes[:-1]):
        number, position = divmod(number, size)
        leading.insert(0, position)
        first += position * step
    step = memory.axes[-1][1] if memory.axes else 0
    return Row(tuple(leading), [first + column * step for column in range(columns)])


class Scale:
    """Where bits of memory are drawn: stretches to scale, with breaks between them.

    Attributes
    ----------
    item_bits : int
    stretches : list of (int, int, float)
        Where each stretch begins and ends in memory, and where it begins in the drawing.
    items : float
        The width of the whole drawing, in items.
    item_width : float
    breaks : list of (float, int)
        Where memory is left out, and how many bits of it.
    """

    def __init__(self, memory: Memory, rows: Sequence[Row]) -> None:
        self.item_bits = memory.item_bits
        bounds = joined([start for row in rows for start in row.starts], memory.item_bits, WIDEST_GAP)
        reaches = [(size - 1) * step for size, step in memory.axes]
        low = sum(reach for reach in reaches if reach < 0)
        high = sum(reach for reach in reaches if reach > 0) + memory.item_bits
        edges = [low, *(edge for bound in bounds for edge in bound), high]
        gaps = [after - before for before, after in zip(edges[::2], edges[1::2], strict=True)]
        breaks = sum(gap > 0 for gap in gaps)
        self.items = sum(end - start for start, end in bounds) / memory.item_bits + BREAK * breaks
        self.item_width = min(WIDEST_ITEM, (WIDTH - GUTTER - 24) / self.items)
        self.stretches: list[tuple[int, int, float]] = []
        self.breaks: list[tuple[float, int]] = []
        x: float = GUTTER
        for gap, bound in zip(gaps, [*bounds, None], strict=True):
            if gap > 0:
                self.breaks.append((x + BREAK * self.item_width / 2, gap))
                x += BREAK * self.item_width
            if bound is not None:
                self.stretches.append((*bound, x))
                x += self.width(bound[1] - bound[0])

    def width(self, bits: int) -> float:
        return bits / self.item_bits * self.item_width

    def __call__(self, bits: int) -> float:
        """Where a bit that is in one of the stretches, or at the end of one, is drawn."""
        start, x = next((start, x) for start, end, x in self.stretches if start <= bits <= end)
        return x + self.width(bits - start)


def joined(starts: Iterable[int], item_bits: int, widest_gap: int) -> list[tuple[int, int]]:
    """Where runs of items begin and end. Items with a gap of more than widest_gap items between them are two runs."""
    runs: list[tuple[int, int]] = []
    for start in sorted(set(starts)):
        if runs and start - runs[-1][1] <= widest_gap * item_bits:
            runs[-1] = runs[-1][0], max(runs[-1][1], start + item_bits)
        else:
            runs.append((start, start + item_bits))
    return runs


def draw_strip(memory: Memory, scale: Scale, rows: Sequence[Row]) -> Iterator[str]:
    """The strip of memory: what the rows below touch is filled, gaps are dashed, an ellipsis is what is left out."""
    yield text("memory", GUTTER - 10, STRIP + 14, anchor="end")
    starts = sorted({start for row in rows for start in row.starts})
    for start in starts:
        yield box(scale(start), STRIP, scale.item_width, CELL, fill=COLOURS["cell"], fill_opacity=0.3,
                  stroke=INK, stroke_opacity=0.7)
    runs = joined(starts, scale.item_bits, 0)
    for (_, end), (start, _) in pairwise(runs):
        if start - end <= WIDEST_GAP * scale.item_bits:
            yield from draw_between(scale(end), scale(start), start - end, is_gap(memory, end, start))
    for x, bits in scale.breaks:
        yield tag("g", tag("title", escaped(f"{amount(bits)} not drawn")) + text("…", x, STRIP + 13, size=14))


def draw_between(x: float, end: float, bits: int, gap: bool) -> Iterator[str]:
    """Memory between cells: either a gap, or elements that are not drawn."""
    label = f"{amount(bits)} with {'no element' if gap else 'elements that are not drawn'}"
    yield box(x, STRIP, end - x, CELL, label, stroke=INK, stroke_opacity=0.7,
              stroke_dasharray="2 3" if gap else "none", fill="none" if gap else COLOURS["cell"], fill_opacity=0.1)
    if gap and end - x >= 26:
        yield text("gap", (x + end) / 2, STRIP + 13.5, size=10)


def is_gap(memory: Memory, start: int, end: int) -> bool:
    """Whether no element lies between two bits.

    The last element that begins before the end tells it, unless elements overlap.
    """
    last = sum((size - 1) * step for size, step in memory.axes if step < 0)
    for step, size in sorted(((abs(step), size) for size, step in memory.axes if step), reverse=True):
        last += min((end - 1 - last) // step, size - 1) * step
    return last + memory.item_bits <= start and density(memory) != "elements overlap"


def draw_ruler(scale: Scale) -> Iterator[str]:
    """The bytes from the data pointer, where there is room for the number.

    The data pointer is labelled first, then the beginnings of the stretches, and then what there is room for.
    """
    yield text("byte", GUTTER - 10, RULER, anchor="end")
    edges = [edge for start, end, _ in scale.stretches for edge in (start, end)]
    between = [bits for start, end, _ in scale.stretches for bits in range(start, end, max(scale.item_bits, 8))]
    taken: list[tuple[float, float]] = []
    for bits in dict.fromkeys([0, *edges[::2], edges[-1], *edges, *between]):
        words = f"{bits // 8:+,}".replace("-", "\N{MINUS SIGN}") if bits else "0"
        half = len(words) * 10 * WORDS_WIDTH / 2 + 4
        x = scale(bits)
        middle = min(max(x, GUTTER - 6 + half), WIDTH - half)
        if bits % 8 == 0 and all(middle + half <= start or end <= middle - half for start, end in taken):
            taken.append((middle - half, middle + half))
            yield text(words, middle, RULER, size=10, weight="normal" if bits else "600")
            yield tag("path", d=f"M{x:.6g} {RULER + 3}V{STRIP}", stroke=INK, stroke_opacity=0.6)


def draw_row(memory: Memory, scale: Scale, row: Row, y: float) -> Iterator[str]:
    """The cells of a row, and an ellipsis if there are more."""
    name = row_name(row.leading, len(memory.shape))
    yield text(name, GUTTER - 10, y + 14, anchor="end", font=CODE)
    drawn = labels(memory, row)
    labelled = 0.0      # where the last label is; at first in the gutter
    for start, label in drawn:
        x = scale(start)
        yield box(x, y, scale.item_width, CELL, f"{name.replace(':', label)} at {place(start)}", rx=2,
                  fill=COLOURS["cell"], fill_opacity=0.16, stroke=COLOURS["cell"], stroke_width=1.5)
        if len(label) * 10 * CODE_WIDTH <= min(scale.item_width, abs(x - labelled)):
            yield text(label, x + scale.item_width / 2, y + 14, size=10, font=CODE)
            labelled = x
    size, step = memory.axes[-1] if memory.axes else (1, 0)
    if step and len(drawn) < size:
        yield text("…", x + (scale.item_width + 9 if step > 0 else -9), y + 12, size=14)


def labels(memory: Memory, row: Row) -> list[tuple[int, str]]:
    """Where the cells of a row are, each with its place along the last axis. With a step of 0 they are one cell."""
    size, step = memory.axes[-1] if memory.axes else (1, 0)
    if step or size == 1:
        return [(start, str(column) if memory.axes else "") for column, start in enumerate(row.starts)]
    return [(row.starts[0], f"0…{size - 1}" if size <= 1000 else "0…")]


def row_name(leading: tuple[int, ...], ndim: int) -> str:
    """The expression that gives the row. Most of its axes are left out if there are many."""
    if not ndim:
        return "[()]"
    kept = (*map(str, leading), ":") if ndim <= 4 else (str(leading[0]), "…", *map(str, leading[-2:]), ":")
    return f"[{', '.join(kept)}]"


def place(bits: int) -> str:
    """Where an element begins, for a tooltip."""
    whole, rest = divmod(bits, 8)
    return f"byte {whole:,}" + (f", bit {rest}" if rest else "")
