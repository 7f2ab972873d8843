"""Sources and targets that users add."""

import gc
import types
import weakref

import numpy as np
import pytest
import torch
from dlbridge._core.targets.registry import registered as registered_targets
from support.child import run_in_child

import dlbridge
from dlbridge._core.cache import clear_cache
from dlbridge.trees.containers import REGISTERED, functions_of

pytestmark = pytest.mark.quick


class Image:
    """A library's array without any protocol."""

    def __init__(self, pixels):
        self.pixels = pixels


class Thumbnail(Image):
    """And a subclass of it."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", [Image, Thumbnail])
@pytest.mark.parametrize("acquire", [
    lambda image: image.pixels,
    lambda image: image.pixels.__dlpack__(),
    lambda image: dlbridge.asdlpack(image.pixels),
    lambda image: memoryview(image.pixels),
], ids=["array", "capsule", "Tensor", "buffer"])
def test_registered_source_shares(kind, acquire):
    pixels = np.arange(6, dtype="u1").reshape(2, 3)
    with pytest.raises(dlbridge.UnsupportedError, match=kind.__name__):
        dlbridge.convert(kind(pixels), "torch")
    dlbridge.register_source(Image, acquire)
    tensor = dlbridge.convert(kind(pixels), "torch")
    assert tensor.data_ptr() == pixels.ctypes.data
    assert tensor.shape == (2, 3)


@pytest.mark.needs("torch")
def test_the_last_registered_comes_first_and_before_protocols():
    array = np.zeros(3).view(type("Scaled", (np.ndarray,), {}))
    dlbridge.register_source(type(array), lambda obj: np.full(3, 1.0))
    assert dlbridge.convert(array, "torch").tolist() == [1, 1, 1]
    dlbridge.register_source(lambda kind: kind.__name__ == "Scaled", lambda obj: np.full(3, 2.0))
    assert dlbridge.convert(array, "torch").tolist() == [2, 2, 2]


def test_source_that_returns_its_argument_is_refused():
    dlbridge.register_source(Image, lambda image: image)
    with pytest.raises(dlbridge.UnsupportedError, match="returned its argument"):
        dlbridge.convert(Image(None), "numpy")


def test_error_of_a_registered_source_passes_through():
    def acquire(image):
        raise KeyError("no pixels")

    dlbridge.register_source(Image, acquire)
    with pytest.raises(KeyError, match="no pixels"):
        dlbridge.convert(Image(None), "numpy")


def test_registered_target_is_given_a_tensor():
    dlbridge.register_target("list", lambda tensor: np.from_dlpack(tensor).tolist(), array_type=list)
    assert "list" in dlbridge.targets()
    assert dlbridge.convert(np.arange(3), "list") == [0, 1, 2]
    given = [1]
    assert dlbridge.convert(given, "list") is given


class Grid:
    """A user's array, which has no protocol."""

    def __init__(self, tensor):
        self.array = np.from_dlpack(tensor)


class Finer(Grid):
    pass


def test_the_type_of_a_registered_target_names_it():
    dlbridge.register_target("grid", Grid, array_type=Grid)
    grid = dlbridge.convert(np.arange(3), Grid)
    for to in "grid", Grid, Finer, grid, Finer(np.zeros(1)):
        made = dlbridge.convert(bytearray(2), to)
        assert type(made) is Grid, to
        assert made.array.tolist() == [0, 0]
    assert dlbridge.convert(grid, Grid) is grid
    assert dlbridge.explain(b"", grid).target == "grid"


@pytest.mark.needs("torch")
def test_what_a_function_returns_may_be_like_a_registered_type():
    dlbridge.register_target("grid", Grid, array_type=Grid)
    dlbridge.register_source(Grid, lambda grid: grid.array)
    double = dlbridge.accepts("torch", returns="like")(lambda x: x * 2)
    assert double(Grid(np.arange(3))).array.tolist() == [0, 2, 4]
    assert double(Finer(np.arange(2))).array.tolist() == [0, 2]
    assert dlbridge.convert_tree([bytearray(b"ab")], Grid)[0].array.tolist() == [97, 98]


def test_an_example_without_a_device_is_not_kept():
    dlbridge.register_target("grid", Grid, array_type=Grid)
    examples = [Grid(np.zeros(1))]
    alive = weakref.ref(examples[0])
    for _ in range(3):
        dlbridge.convert(b"", examples[0])
    examples.clear()
    gc.collect()
    assert alive() is None


@pytest.mark.needs("PIL")
def test_an_example_image_is_not_kept():
    from PIL import Image

    examples = [Image.new("L", (2, 2))]
    alive = weakref.ref(examples[0])
    assert dlbridge.convert(np.zeros((2, 2), "u1"), examples[0]).size == (2, 2)
    examples.clear()
    gc.collect()
    assert alive() is None


def test_a_type_that_is_another_targets_goes_on_naming_that():
    class Rows(np.ndarray):
        pass

    dlbridge.register_target("mine", lambda tensor: "mine", array_type=(np.ndarray, Rows))
    assert type(dlbridge.convert(b"a", np.ndarray)) is np.ndarray
    assert type(dlbridge.convert(b"a", np.zeros(1))) is np.ndarray
    assert dlbridge.convert(b"a", Rows) == "mine"


def test_a_registered_target_may_need_c_order():
    array = np.arange(6.0).reshape(2, 3)
    dlbridge.register_target("rows", lambda tensor: tensor, order="C")
    repeated = np.broadcast_to(1.0, (2, 2))
    for source, shared in (array, True), (array.T, False), (array[:, ::2], False), (repeated, False):
        plan = dlbridge.explain(source, "rows", readonly="share")
        tensor = dlbridge.convert(source, "rows", readonly="share")
        assert (tensor.data_ptr == source.ctypes.data) is (plan.action == "share") is shared
        assert np.from_dlpack(tensor).flags.c_contiguous
    assert "not in C order, which rows needs" in dlbridge.explain(array.T, "rows").reason


# Unless it says that it supports them, a target is given neither backward strides nor read-only memory.
@pytest.mark.parametrize(("supports", "shared"), [
    ((), False), (("NEGATIVE_STRIDES",), False), (("READ_ONLY",), False), (("NEGATIVE_STRIDES", "READ_ONLY"), True),
])
def test_what_a_target_supports_is_shared(supports, shared):
    source = np.arange(6)[::-1]
    source.flags.writeable = False
    dlbridge.register_target("tensor", lambda tensor: tensor, supports=supports)
    tensor = dlbridge.convert(source, "tensor")
    assert (tensor.data_ptr == source.ctypes.data) == shared
    assert np.from_dlpack(tensor).tolist() == [5, 4, 3, 2, 1, 0]
    assert tensor.readonly == shared


def test_registered_target_refuses_types_it_lacks():
    dlbridge.register_target("floats", lambda tensor: tensor, dtypes=["float32"])
    assert dlbridge.convert(np.zeros(3, "f4"), "floats").dtype == "float32"
    with pytest.raises(dlbridge.ConversionError, match="floats: dtype float64"):
        dlbridge.convert(np.zeros(3), "floats")


def test_failure_of_a_registered_target_is_wrapped_and_releases_the_source():
    def deliver(tensor):
        raise ZeroDivisionError("no room")

    dlbridge.register_target("broken", deliver)
    source = bytearray(8)
    with pytest.raises(dlbridge.ConversionError, match="no room") as caught:
        dlbridge.convert(source, "broken")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    del caught
    source.append(1)


@pytest.mark.parametrize(("function", "arguments", "error"), [
    (dlbridge.register_source, (3, len), TypeError),
    (dlbridge.register_source, (Image, 3), TypeError),
    (dlbridge.register_target, (3, len), TypeError),
    (dlbridge.register_target, ("name", 3), TypeError),
])
def test_wrong_arguments_are_refused(function, arguments, error):
    with pytest.raises(error, match=r"^register_\w+: .*\(.+\)$"):
        function(*arguments)


def test_unknown_abilities_are_refused():
    with pytest.raises(ValueError, match="WINGS"):
        dlbridge.register_target("bird", len, supports=["WINGS"])


# ---- what must not happen --------------------------------------------------------------------------------------------

def test_sources_that_make_each_other_end_in_an_error():
    def convert_it():
        dlbridge.register_source(Image, lambda image: Image(None))
        with pytest.raises(RecursionError):
            dlbridge.convert(Image(None), "numpy")
        return "survived"

    assert run_in_child(convert_it).result() == "survived"


@pytest.mark.parametrize("source", [np.arange(3, dtype=">i4"), np.zeros(3, [("a", "i1"), ("b", "i4")])["b"]],
                         ids=["swapped", "odd strides"])
def test_a_namespace_is_not_what_it_calls_itself(source):
    """Only the imported module numpy is known to hold what others cannot."""
    impostor = types.SimpleNamespace(__name__="numpy", from_dlpack=np.from_dlpack)
    assert dlbridge.convert(source, impostor).tolist() == source.tolist()


def test_a_registered_target_gets_no_other_librarys_rows():
    dlbridge.register_target("memmap", np.from_dlpack)
    assert dlbridge.convert(np.arange(3, dtype=">i4"), "memmap").tolist() == [0, 1, 2]


def test_an_array_as_target_is_not_kept_alive():
    class Like(np.ndarray):
        pass

    like = np.zeros(3).view(Like)
    gone = weakref.ref(like)
    assert type(dlbridge.convert(bytearray(3), like)) is np.ndarray
    del like
    assert gone() is None


def test_abilities_may_come_from_a_generator():
    dlbridge.register_target("flags", lambda tensor: tensor, supports=(name for name in ["READ_ONLY"]))
    assert dlbridge.convert(b"abc", "flags").readonly


@pytest.mark.parametrize("alignment", [1, 16, 256])
def test_what_is_delivered_is_aligned(alignment):
    dlbridge.register_target("aligned", lambda tensor: tensor, alignment=alignment)
    for offset in range(0, 300, 3):
        tensor = dlbridge.convert(bytearray(1000)[offset:], "aligned")
        assert tensor.data_ptr % alignment == 0
        source = np.arange(1000, dtype="u1")[offset:]
        tensor = dlbridge.convert(source, "aligned")
        assert tensor.data_ptr % alignment == 0
        assert np.from_dlpack(tensor).tolist() == source.tolist()


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("kind", "make", "make_other"), [
    (torch.FloatTensor, lambda: torch.ones(3), lambda: torch.ones(3, dtype=torch.int32)),
    (torch.nn.Buffer, lambda: torch.nn.Buffer(torch.ones(3)), lambda: torch.ones(3)),
    (torch.nn.Parameter, lambda: torch.nn.Parameter(torch.ones(3), False), lambda: torch.ones(3)),
], ids=["FloatTensor", "Buffer", "Parameter"])
def test_a_type_that_looks_at_the_instance_is_asked_each_time(kind, make, make_other):
    for both in ((make(), make_other()), (make_other(), make())):
        dlbridge.register_target("special", np.from_dlpack, array_type=kind)
        for source in both * 3:
            owned = isinstance(source, kind)
            assert (dlbridge.convert(source, "special") is source) == owned
            assert (dlbridge.explain(source, "special").action == "return") == owned
            assert (dlbridge.convert_tree([source], "special")[0] is source) == owned
            assert type(dlbridge.convert(source, "special", copy=True)) is np.ndarray


@pytest.mark.parametrize("array_type", ["str", np.zeros(3), (np.ndarray, "str"), [np.ndarray]])
def test_what_is_no_type_is_refused_at_once(array_type):
    with pytest.raises(TypeError, match=r"^register_target: array_type .*: .* \(.+\)$"):
        dlbridge.register_target("never", len, array_type=array_type)
    assert "never" not in dlbridge.targets()


@pytest.mark.parametrize("keywords", [
    {"dtypes": ["flot32"]}, *({"alignment": wrong} for wrong in ("x", 0, -1, 3, 4096, 2**70, 10**5000, 64.0, None))])
def test_wrong_settings_are_refused_at_once(keywords):
    with pytest.raises(ValueError, match=r"^register_target: \w+ .*: .* \(.+\)$"):
        dlbridge.register_target("never", len, **keywords)


# ---- containers ------------------------------------------------------------------------------------------------------

class Graph:
    def __init__(self, nodes, edges):
        self.nodes, self.edges = nodes, edges


class Slotted:
    __slots__ = ("__weakref__", "values")

    def __init__(self, values):
        self.values = values


class Posing:
    """A container that also exports one of its arrays."""

    def __init__(self, first, second):
        self.parts = first, second

    def __array__(self, dtype=None, copy=None):
        return self.parts[0]

    @property
    def __array_interface__(self):
        return self.parts[0].__array_interface__


@pytest.fixture
def registered():
    """Registrations that end with the test."""
    before = dict(REGISTERED)
    yield dlbridge.register_container
    REGISTERED.clear()
    REGISTERED.update(before)
    functions_of.cache_clear()
    clear_cache()


def graph():
    return Graph(np.arange(6.0).reshape(3, 2), np.array([[0, 1]]))


def by_parts(container, parts):
    return type(container)(**parts)


def test_a_registered_container_is_remade(registered):
    registered(Graph, vars, by_parts)
    source = graph()
    made = dlbridge.convert_tree({"graphs": [source]}, "memoryview")["graphs"][0]
    assert type(made) is Graph
    assert made.nodes.tolist() == source.nodes.tolist()
    assert np.asarray(made.edges).ctypes.data == source.edges.ctypes.data
    assert type(source.nodes) is np.ndarray
    assert dlbridge.convert_tree(source, "numpy") is source         # nothing is to be changed
    seen = dlbridge.accepts("memoryview")(lambda x, of: (type(x.nodes), type(of[0].edges)))(source, of=[source])
    assert seen == (memoryview, memoryview)


def test_the_nearest_class_counts(registered):
    class Weighted(Graph):
        pass

    registered(Graph, vars, by_parts)
    assert type(dlbridge.convert_tree(Weighted(*vars(graph()).values()), "memoryview")) is Weighted
    registered(Weighted, lambda x: [x.nodes], lambda x, parts: parts[0])
    assert type(dlbridge.convert_tree(Weighted(*vars(graph()).values()), "memoryview")) is memoryview
    assert type(dlbridge.convert_tree(graph(), "memoryview")) is Graph


def test_what_was_walked_before_is_registered_after(registered):
    source, posing = graph(), Posing(np.ones(1), np.ones(2))
    assert dlbridge.convert_tree(source, "memoryview") is source
    assert type(dlbridge.convert_tree(posing, "memoryview")) is memoryview
    registered(Graph, vars, by_parts)
    registered(Posing, lambda x: x.parts, lambda x, parts: Posing(*parts))
    assert type(dlbridge.convert_tree(source, "memoryview").nodes) is memoryview
    assert [len(part) for part in dlbridge.convert_tree(posing, "memoryview").parts] == [1, 2]


def test_errors_of_a_registered_container_name_the_part(registered):
    registered(Graph, vars, by_parts)
    registered(Slotted, lambda x: (x.values,), lambda x, parts: Slotted(*parts))
    with pytest.raises(dlbridge.ConversionError, match=r"leaf \['x'\]\['edges'\]\[0\]: numpy: dtype datetime64"):
        dlbridge.convert_tree({"x": Graph(1, Slotted(np.array([1], "M8[s]")))}, "memoryview")
    registered(Graph, lambda x: 7, by_parts)
    with pytest.raises(TypeError, match=r"flatten of .*Graph: gave 7, which is neither"):
        dlbridge.convert_tree([graph()], "memoryview")


def test_the_place_is_told_where_flatten_makes_its_values(registered):
    registered(Slotted, lambda x: {"turned": x.values[::-1]}, lambda x, parts: Slotted(parts["turned"]))
    tree = [1, Slotted(np.array([1, 2], "M8[s]"))]
    with pytest.raises(dlbridge.ConversionError, match=r"leaf \[1\]\['turned'\]: "):
        dlbridge.convert_tree(tree, "memoryview")
    with pytest.raises(dlbridge.ConversionError, match=r"\(of\[1\]\['turned'\]\): "):
        dlbridge.accepts("memoryview")(lambda of: of)(tree)


@pytest.mark.parametrize("make", [graph, lambda: Slotted(np.ones(2)), lambda: Slotted(np.zeros(2, [("a", "i4")]))])
def test_an_object_with_arrays_is_refused_by_name(make):
    x = make()
    assert dlbridge.convert_tree([x], "numpy")[0] is x
    with pytest.raises(dlbridge.UnsupportedError, match=r"has arrays, such as its (nodes|values)") as raised:
        dlbridge.convert_tree([x], "numpy", others="raise")
    assert "dlbridge.register_container(type(x), flatten, unflatten)" in raised.value.hint


def test_the_hint_to_register_a_container_works(registered):
    x, flatten, unflatten = graph(), vars, by_parts
    with pytest.raises(dlbridge.UnsupportedError) as raised:
        dlbridge.convert_tree([x], "memoryview", others="raise")
    code = raised.value.hint.partition("call ")[2].removesuffix(" once")
    eval(code, {"dlbridge": dlbridge, "x": x, "flatten": flatten, "unflatten": unflatten})
    assert type(dlbridge.convert_tree([x], "memoryview", others="raise")[0].nodes) is memoryview


@pytest.mark.parametrize("arguments", [(dict, vars, by_parts), ("Graph", vars, by_parts), (Graph, 1, by_parts),
                                       (Graph, vars, None)])
def test_what_is_no_container_is_refused_at_once(arguments):
    with pytest.raises(TypeError, match=r"^register_container: .*\(pass a "):
        dlbridge.register_container(*arguments)


# ---- names that are taken --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["torch", "numpy", "dlpack", "memoryview", "cupy"])
def test_a_target_of_dlbridges_own_is_not_replaced_by_chance(name):
    with pytest.raises(ValueError, match=r"is a target of dlbridge's own \(pass another name, or replace=True\)"):
        dlbridge.register_target(name, lambda tensor: tensor)


def test_a_target_of_dlbridges_own_is_replaced_when_asked_to():
    before = registered_targets.get("memoryview")
    try:
        dlbridge.register_target("memoryview", lambda tensor: tensor.shape, replace=True)
        assert dlbridge.convert(b"abc", "memoryview") == (3,)
    finally:
        registered_targets.pop("memoryview")
        if before is not None:
            registered_targets["memoryview"] = before
        clear_cache()
    assert dlbridge.convert(b"abc", "memoryview").nbytes == 3


def test_the_package_lists_what_is_public():
    assert set(dir(dlbridge)) == {*dlbridge.__all__, "__version__"}
