"""What a notebook shows of a Plan and of a Tensor: well-formed, bounded, inert, and true."""

import base64
import ctypes
import html.parser
import math
import mmap
import re
import sys
from itertools import pairwise
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest
import torch
from fake_driver.harness import run
from hypothesis import given
from hypothesis import strategies as st
from support.child import run_in_child
from support.children import body_of, in_child
from support.optional import of, params

import dlbridge
from dlbridge.explain import picture
from dlbridge.explain.picture import COLOURS, WIDTH, Memory

MOST_ELEMENTS = 400
SVG = "http://www.w3.org/2000/svg"
SETTLED = 0.01          # what the rounding of a coordinate may take


def packed(shape):
    return dlbridge.to_dlpack(np.zeros(shape, ml_dtypes.float4_e2m1fn))


def read_only(array):
    array.flags.writeable = False
    return array


SOURCES = {
    "C order": lambda: np.zeros((2, 3), "f4"),
    "Fortran order": lambda: np.zeros((2, 3), "f4").T,
    "one axis": lambda: bytearray(12),
    "every other": lambda: np.zeros((2, 8), "i2")[:, ::2],
    "backwards": lambda: np.zeros((2, 3))[::-1, ::-1],
    "rows broadcast": lambda: np.broadcast_to(np.zeros(4), (3, 4)),
    "columns broadcast": lambda: np.broadcast_to(np.zeros((3, 1)), (3, 4)),
    "windows": lambda: np.lib.stride_tricks.sliding_window_view(np.zeros(6, "i4"), 3),
    "three axes": lambda: np.zeros((2, 2, 3), "u1").transpose(1, 0, 2),
    "no axes": lambda: np.zeros(()),
    "no elements": lambda: np.zeros((0, 3)),
    "read-only": lambda: read_only(np.zeros(5)),
    "padded": of("ml_dtypes")(lambda: np.zeros((3, 5), ml_dtypes.float4_e2m1fn)),
    "packed": of("ml_dtypes")(lambda: packed((3, 5))),
    "packed, a byte": of("ml_dtypes")(lambda: packed((2,))),
    "padded, one": of("ml_dtypes")(lambda: np.zeros(1, ml_dtypes.int4)),
    "large": lambda: np.zeros((1000, 1000), "f4"),
    "large, Fortran order": lambda: np.zeros((1000, 1000), "f4", order="F"),
    "huge": lambda: np.broadcast_to(np.zeros(1), (1 << 40, 1, 5)),
    "64 axes": lambda: np.zeros((2,) * 3 + (1,) * 61),
}
every_source = pytest.mark.parametrize("make", params(SOURCES))
ODD = {
    "odd strides": lambda: np.zeros(4, [("a", "i1"), ("b", "f4")])["b"],
    "byte order": lambda: np.zeros((2, 3), ">f4"),
    "a byte further": lambda: np.lib.stride_tricks.as_strided(np.zeros(4, "f8"), (4,), (1,)),
    "overlapping bytes": lambda: np.lib.stride_tricks.as_strided(np.zeros(4, "f8"), (4,), (3,)),
}


IMAGE = re.compile(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]+)" width="680" style="[^"]*" />')


def drawing_of(image, parser):
    drawing = base64.b64decode(image[2]).decode()
    name = f' xmlns="{SVG}"'
    assert drawing.count(name) == 1
    assert f'aria-label="{image[1]}"' in drawing
    parser.feed(drawing)
    parser.close()
    assert parser.open == []
    return drawing.replace(name, "")


def parsed(markup):
    """The tree of some HTML, which is XML too, once it holds nothing that acts, loads, or reaches out of its place.

    The drawing of each image takes the image's place.
    """
    class Balanced(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, name, attributes):
            self.open.append(name)

        def handle_endtag(self, name):
            assert self.open.pop() == name

    parser = Balanced()
    parser.feed(markup)
    parser.close()
    assert parser.open == []
    markup = IMAGE.sub(lambda image: drawing_of(image, parser), markup)
    tree = ElementTree.fromstring(markup.encode())
    tags = {"div", "table", "tbody", "tr", "th", "td", "svg", "g", "rect", "path", "text", "title"}
    assert {element.tag for element in tree.iter()} <= tags
    assert not any({"id", "class", "href", "src"} & set(element.attrib) for element in tree.iter())
    assert not any(key.startswith("on") for element in tree.iter() for key in element.attrib)
    assert not re.search(r"url\(|import|http|expression", markup)
    assert sum(1 for _ in tree.iter()) <= MOST_ELEMENTS
    for image in tree.iter("svg"):
        assert image.get("role") == "img"
        assert image.get("aria-label")
    return tree


def words(tree):
    return {row[0].text: row[1].text for row in tree.iter("tr")}


def cells(tree):
    """Where each cell of a row begins and how wide it is, by its index."""
    found = {}
    for box in tree.iter("rect"):
        match = re.fullmatch(r"(\[.*\]) at byte .*", box.findtext("title") or "")
        if match:
            found[match[1]] = float(box.get("x")), float(box.get("width"))
    return found


def of_array(array):
    return parsed(dlbridge.asdlpack(array)._repr_html_())


# ---- what is drawn is true -------------------------------------------------------------------------------------------

PLACES = {
    "C order": ("[{}, {}]", (2, 3), (12, 4), 4),
    "Fortran order": ("[{}, {}]", (3, 2), (4, 12), 4),
    "one axis": ("[{}]", (12,), (1,), 1),
    "every other": ("[{}, {}]", (2, 4), (16, 4), 2),
    "backwards": ("[{}, {}]", (2, 3), (-24, -8), 8),
    "rows broadcast": ("[{}, {}]", (3, 4), (0, 8), 8),
    "windows": ("[{}, {}]", (4, 3), (4, 4), 4),
    "three axes": ("[{}, {}, {}]", (2, 2, 3), (3, 6, 1), 1),
    "padded": ("[{}, {}]", (3, 5), (5, 1), 1),
    "packed": ("[{}, {}]", (3, 5), (2.5, 0.5), 0.5),
}


@pytest.mark.parametrize(("make", "place"), params({name: (SOURCES[name], place) for name, place in PLACES.items()}))
def test_cells_are_where_their_strides_say(make, place):
    form, shape, strides, item = place
    drawn = cells(of_array(make()))
    first, width = drawn[form.format(*[0] * len(shape))]
    expected = {
        form.format(*index): first + width * sum(map(math.prod, zip(index, strides, strict=True))) / item
        for index in np.ndindex(shape)
    }
    assert {name: x for name, (x, _) in drawn.items()} == pytest.approx(expected, abs=SETTLED)
    assert {wide for _, wide in drawn.values()} == {width}


def test_a_row_that_is_broadcast_is_one_cell():
    assert set(cells(of_array(SOURCES["columns broadcast"]()))) == {"[0, 0…3]", "[1, 0…3]", "[2, 0…3]"}
    assert set(cells(of_array(np.broadcast_to(np.zeros(1), (1 << 40,))))) == {"[0…]"}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ODD)
def test_bytes_that_no_stride_in_elements_says(name):
    array = ODD[name]()
    tree = parsed(dlbridge.explain(array, "torch")._repr_html_())
    (first, width), (second, _), *_ = cells(tree).values()
    assert second - first == pytest.approx(array.strides[-1] * width / array.itemsize, abs=SETTLED)
    assert words(tree)["strides"].endswith(f"{array.strides} in bytes")


@every_source
def test_a_plan_draws_the_memory_that_the_tensor_has(make):
    source = make()
    plan = parsed(dlbridge.explain(source, "dlbridge")._repr_html_())
    tensor = parsed(dlbridge.asdlpack(source)._repr_html_())
    assert ElementTree.tostring([*plan.iter("svg")][-1]) == ElementTree.tostring([*tensor.iter("svg")][-1])
    assert words(plan).items() <= words(tensor).items()


def between(array):
    tree = parsed(dlbridge.explain(array, "dlbridge")._repr_html_())
    return [title.text for title in tree.iter("title") if " with " in title.text]


def test_gaps_are_marked():
    assert between(SOURCES["every other"]()) == ["2 bytes with no element"] * 7
    assert between(SOURCES["C order"]()) == []
    assert between(ODD["odd strides"]()) == ["1 byte with no element"] * 3


def test_rows_that_are_not_drawn_are_no_gaps():
    channels = np.zeros((480, 640, 3), "u1").transpose(2, 0, 1)
    assert set(between(channels)) == {"2 bytes with elements that are not drawn"}
    # Every pixel has one that no element has, and one that an element has which is not drawn.
    assert set(between(channels[::2])) == {"2 bytes with elements that are not drawn"}
    assert set(between(channels[:1])) == {"2 bytes with no element"}
    assert set(between(channels[:1, ::-1, ::-1])) == {"2 bytes with no element"}


def test_what_is_left_out_is_said():
    tree = of_array(SOURCES["large"]())
    texts = [text.text for text in tree.iter("text")]
    assert "… 996 more rows" in texts
    assert "next in a row: +4 bytes   ·   next row: +4,000 bytes" in texts
    left_out = [title.text for title in tree.iter("title") if title.text.endswith("not drawn")]
    drawn = len({x for x, _ in cells(tree).values()})
    assert sum(int(re.sub(r"\D", "", line)) for line in left_out) + 4 * drawn == 4_000_000


WORDS = {
    "C order": "C order, no gaps",
    "Fortran order": "Fortran order, no gaps",
    "one axis": "no gaps",
    "every other": "C order, with gaps",
    "backwards": "C order, no gaps, backwards along axes 0, 1",
    "rows broadcast": "no gaps, broadcast along axis 0",
    "windows": "C order, elements overlap",
    "three axes": "axes permuted, no gaps",
    "no axes": "one element",
    "no elements": "no elements",
}


@pytest.mark.parametrize("name", WORDS)
def test_the_layout_is_said(name):
    assert words(of_array(SOURCES[name]()))["layout"] == WORDS[name]


def test_many_axes_are_counted():
    tensor = dlbridge.asdlpack(np.broadcast_to(np.zeros(1), (2,) * 6))
    assert words(parsed(tensor._repr_html_()))["layout"] == "no gaps, broadcast along 6 axes"


MEMORIES = {
    "read-only": "5 elements of 8 bytes, 40 bytes, read-only, on cpu",
    "padded": "15 elements of 4 bits, padded to 1 byte, 15 bytes, writable, on cpu",
    "packed": "15 elements of 4 bits, packed, 8 bytes, writable, on cpu",
    "padded, one": "1 element of 4 bits, padded to 1 byte, 1 byte, writable, on cpu",
    "huge": "5,497,558,138,880 elements of 8 bytes, 40 TiB, read-only, on cpu",
}


@pytest.mark.parametrize(("make", "said"), params({name: (SOURCES[name], said) for name, said in MEMORIES.items()}))
def test_the_memory_is_said(make, said):
    assert words(of_array(make()))["memory"] == said


@pytest.mark.needs("ml_dtypes")
def test_who_shares_it_is_said():
    tree = of_array(b"abc")
    assert words(tree)["owner"] == "builtins.bytes, by buffer"
    path = next(tree.iter("svg"))
    assert path.get("aria-label") == "builtins.bytes by buffer: share, the same memory, read-only: dlbridge.Tensor"
    tree = of_array(packed((2,)))
    assert words(tree)["owner"] == "no Python object, by dlpack (legacy)"
    assert len([*tree.iter("svg")]) == 1


@pytest.mark.parametrize("power", range(12))
def test_alignment(power):
    memory = np.empty(1 << 13, "u1")
    at = -memory.ctypes.data % (1 << 12) + (1 << power)
    tensor = dlbridge.asdlpack(memory[at:at + 1])
    aligned = min(1 << power, 256)
    expected = f"{tensor.data_ptr:#x}, aligned to {aligned} byte{'' if aligned == 1 else 's'}"
    assert words(parsed(tensor._repr_html_()))["address"] == expected


def test_without_memory_there_is_no_address():
    assert words(parsed(dlbridge.Tensor.__new__(dlbridge.Tensor)._repr_html_()))["address"] == "none"


# ---- paths -----------------------------------------------------------------------------------------------------------

PATHS = {
    "share": of("torch")(lambda: dlbridge.explain(np.zeros((2, 3), "f4"), "torch")),
    "copy": of("torch")(lambda: dlbridge.explain(np.zeros((2, 3))[::-1], "torch")),
    "refuse": of("torch")(lambda: dlbridge.explain(np.zeros((2, 3))[::-1], "torch", copy=False)),
    "return": lambda: dlbridge.explain(np.zeros(3), "numpy"),
}


@pytest.mark.parametrize(("action", "make"), params({action: (action, make) for action, make in PATHS.items()}))
def test_the_action_shows_by_word_and_colour_and_reason(action, make):
    plan = make()
    assert plan.action == action
    tree = parsed(plan._repr_html_())
    path = next(tree.iter("svg"))
    assert action in [text.text for text in path.iter("text")]
    strokes = {line.get("stroke") for line in path.iter("path")} - {None}
    assert strokes == {COLOURS[{"return": "share"}.get(action, action)]}
    assert words(tree).get("because", "") == plan.reason
    assert words(tree).get("hint", "") == plan.hint


@pytest.mark.needs("torch")
def test_actions_have_different_forms():
    """Without their colours and words too."""
    forms = set()
    for make in PATHS.values():
        path = next(parsed(make()._repr_html_()).iter("svg"))
        lines = [(line.get("d"), line.get("stroke-dasharray")) for line in path.iter("path")]
        forms.add((*lines, *(box.get("stroke-dasharray") for box in path.iter("rect"))))
    assert len(forms) == len(PATHS)


@pytest.mark.needs("torch")
def test_only_a_refused_path_is_broken():
    for action, make in PATHS.items():
        path = next(parsed(make()._repr_html_()).iter("svg"))
        *_, target = path.iter("rect")
        lines = [line for line in path.iter("path") if not line.get("transform")]
        arrows = [line for line in lines if line.get("fill")]
        assert (target.get("stroke-dasharray") != "none") == (action == "refuse")
        assert ("1 7" in [line.get("stroke-dasharray") for line in lines]) == (action == "refuse")
        assert len(arrows) == {"return": 0, "refuse": 1}.get(action, 2)


@pytest.mark.needs("torch")
def test_what_was_not_looked_into_has_a_path_alone():
    tree = parsed(dlbridge.explain([1], "torch")._repr_html_())
    assert len([*tree.iter("svg")]) == 1
    assert set(words(tree)) == {"because", "hint"}
    capsule = np.zeros(3).__dlpack__()
    torch.from_dlpack(capsule)
    tree = parsed(dlbridge.explain(capsule, "torch")._repr_html_())
    assert words(tree)["because"].endswith("was consumed already")


@pytest.mark.needs("torch")
def test_a_capsule_is_not_consumed():
    capsule = np.arange(3).__dlpack__()
    parsed(dlbridge.explain(capsule, "torch")._repr_html_())
    assert dlbridge.convert(capsule, "torch").tolist() == [0, 1, 2]


# ---- names that others give ------------------------------------------------------------------------------------------

HOSTILE = ("</svg></table><script>alert(1)</script>", "\"' onload='x' \"", "&lt;&amp;&#60;", "]]><!--", "\0\x1b\x9f\r",
           "\ud800\ufffe\uffff", "\N{RIGHT-TO-LEFT OVERRIDE}x", "n" * 5000, "", "\n\t")


class Loud(str):
    """Text that says one thing and, asked by its methods, another."""

    def translate(self, table):
        return "<script>"

    __str__ = __repr__ = __format__ = lambda self, *rest: "<script>"


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", [*HOSTILE, Loud("<b>")], ids=ascii)
def test_hostile_names(name):
    class Buffer(bytearray):
        pass

    Buffer.__module__ = str.__str__(name)
    # The one thing that a type's own name does not support.
    Buffer.__qualname__ = name if "\0" not in name else "\1"
    parsed(dlbridge.asdlpack(Buffer(4))._repr_html_())
    parsed(dlbridge.explain(Buffer(4), "torch")._repr_html_())
    plan = dlbridge.Plan("copy", name, name, name, name, name, "uint8", name, (4,), (1,), "bytes", 4, True)
    tree = parsed(plan._repr_html_())
    if type(name) is str and name.isprintable() and name:
        assert words(tree)["because"] == name


@given(st.text())
def test_no_text_breaks_out(text):
    tree = parsed(picture.of_plan("refuse", text, text, text, text, text, None, {text: text}))
    assert len([*tree.iter()]) < 45


def test_the_module_of_a_type_may_raise():
    class Meta(type):
        @property
        def __module__(cls):
            if tensor is not None:
                raise RuntimeError("no name")
            return "here"

    class Buffer(bytearray, metaclass=Meta):
        pass

    tensor = None
    tensor = dlbridge.asdlpack(Buffer(4))
    assert words(parsed(tensor._repr_html_()))["owner"] == f"{__name__}.{Buffer.__qualname__}, by buffer"


# ---- any memory ------------------------------------------------------------------------------------------------------

@st.composite
def memories(draw):
    extents = st.one_of(st.integers(0, 5), st.integers(0, 1 << 40), st.just(1))
    shape = draw(st.lists(extents, max_size=draw(st.sampled_from([1, 2, 4, 64]))))
    strides = [draw(st.one_of(st.integers(-6, 6), st.integers(-1 << 60, 1 << 60))) for _ in shape]
    item_bits = draw(st.sampled_from([1, 2, 4, 6, 8, 16, 32, 64, 128]))
    step_bits = draw(st.sampled_from([item_bits, 8]))
    return Memory(tuple(shape), tuple(strides), step_bits, item_bits, item_bits, "t", "cpu", 0, False)


def extents_of_texts(image):
    """Of each text on one line, where it begins and ends, roughly."""
    lines = {}
    for text in image.iter("text"):
        width = len(text.text or "") * 0.5 * int(re.search(r"(\d+)px", text.get("style"))[1])
        shift = {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor")]
        start = float(text.get("x")) - shift
        lines.setdefault(text.get("y"), []).append((start, start + width, text.text))
    return [sorted(line) for line in lines.values()]


@given(memories())
def test_any_memory_is_drawn_within_bounds(memory):
    image = parsed(f"<div>{picture.draw_memory(memory)}</div>").find("svg")
    assert sum(1 for _ in image.iter()) <= MOST_ELEMENTS - 50
    height = float(image.get("height"))
    places = []
    for box in image.iter("rect"):
        x, y, wide, high = (float(box.get(key)) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= WIDTH + SETTLED
        assert 0 <= y <= y + high <= height + SETTLED
        at = re.search(r"at byte (-?[\d,]+)(?:, bit (\d))?$", box.findtext("title") or "")
        if at:
            places.append((int(at[1].replace(",", "")) * 8 + int(at[2] or 0), x))
    # What is further in memory is further to the right.
    drawn = [x for _, x in sorted(set(places))]
    assert drawn == sorted(drawn)


def check_texts(image):
    for line in extents_of_texts(image):
        assert line[-1][1] <= WIDTH
        for (_, end, one), (start, _, other) in pairwise(line):
            assert end <= start, (one, other)


@given(memories())
def test_texts_do_not_overlap(memory):
    if len(f"{math.prod(memory.shape):,}") < 80:      # more elements than anybody can have
        check_texts(ElementTree.fromstring(picture.draw_memory(memory)))


@pytest.mark.parametrize("make", params(SOURCES | ODD))
def test_what_real_memory_looks_like(make):
    tree = parsed(dlbridge.explain(make(), "numpy", copy=True)._repr_html_())
    assert len(ElementTree.tostring(tree)) < 40_000
    assert min((width for _, width in cells(tree).values()), default=WIDTH) >= 19
    for image in tree.iter("svg"):
        check_texts(image)


# ---- memory that must not be touched ---------------------------------------------------------------------------------

@pytest.mark.needs("torch")
def test_memory_that_cannot_be_read():
    def show():
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        array = np.frombuffer(memory, "f4")
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        return dlbridge.asdlpack(array)._repr_html_() + dlbridge.explain(array, "torch")._repr_html_()

    assert run_in_child(show).result().count("1,024 elements of 4 bytes") == 2


def draw_device_memory():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(1)
    source = Interface(driver.allocate(1, 4096), (2, 3), readonly=True)
    tensor = dlbridge.asdlpack(source)
    calls = len(driver.log())
    print(tensor._repr_html_())
    assert len(driver.log()) == calls
    print(dlbridge.explain(source, "torch")._repr_html_())


@pytest.mark.needs("torch")
def test_device_memory_is_not_read():
    """The fake driver's memory cannot be read by the CPU: whoever tries is killed."""
    tensor, plan = map(parsed, run(body_of(draw_device_memory)).stdout.splitlines())
    assert words(tensor)["memory"] == "6 elements of 4 bytes, 24 bytes, read-only, on cuda:1"
    assert words(tensor)["owner"] == "fake_driver.producers.Interface, by cuda_array_interface"
    assert len(cells(tensor)) == 6
    assert cells(plan) == cells(tensor)


# ---- a page ----------------------------------------------------------------------------------------------------------

def luminance(colour):
    channels = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# White; JupyterLab's dark pages, VS Code's and GitHub's.
@pytest.mark.parametrize("page", ["#ffffff", "#111111", "#212121", "#1e1e1e", "#0d1117"])
def test_colours_stand_out_from_light_and_dark_pages(page):
    for name, colour in COLOURS.items():
        dim, bright = sorted((luminance(colour), luminance(page)))
        assert (bright + 0.05) / (dim + 0.05) >= 3, name


@every_source
def test_a_drawing_has_these_colours_and_the_text_around_it_those_of_the_page(make):
    tree = of_array(make())
    used = {element.get(key) for element in tree.iter() for key in ("fill", "stroke")} - {None, "none"}
    assert used <= {*COLOURS.values()}
    assert not re.search(r"(^|;)color:(?!inherit)", ElementTree.tostring(tree, "unicode"))


@pytest.mark.needs("torch")
def test_the_text_reads_in_order_without_images():
    html = dlbridge.explain(np.zeros((2, 3))[:, ::-1], "torch")._repr_html_()
    assert re.findall(r'alt="([^"]*)"', html)[0] == "numpy.ndarray by numpy: copy, new memory: torch"
    assert re.sub(r"<[^>]*>", " ", html).split()[:2] == ["because", "strides"]


@in_child
def test_drawing_is_imported_with_the_first_picture():
    import sys

    import dlbridge

    assert "dlbridge.explain.picture" not in sys.modules
    dlbridge.asdlpack(b"")._repr_html_()
    assert "dlbridge.explain.picture" in sys.modules


def test_drawing_changes_nothing():
    tensor = dlbridge.asdlpack(np.zeros((2, 3)))
    before = repr(tensor), hash(tensor), sys.getrefcount(tensor.owner)
    assert tensor._repr_html_() == tensor._repr_html_()
    assert (repr(tensor), hash(tensor), sys.getrefcount(tensor.owner)) == before
    plan = PATHS["share"]()
    assert plan == PATHS["share"]()
    assert "svg" not in str(plan) + repr(plan)
