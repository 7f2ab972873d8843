"""convert_tree and accepts: every array in a container, and nothing else."""

import asyncio
import collections
import contextlib
import ctypes
import dataclasses
import functools
import gc
import inspect
import sys
import time
import types
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optree
import pyarrow as pa
import pytest
import torch
from support.arrow_producers import OfArray, OfStream, Structs
from support.child import run_in_child
from support.children import in_child
from support.optional import marked, params

import dlbridge
from dlbridge.testing.producers import capsule_pointer

pytestmark = pytest.mark.quick


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Batch:
    image: Any
    label: Any
    name: str = "a"


# ---- convert_tree ----------------------------------------------------------------------------------------------------

CONTAINERS = {
    "dict": lambda x: {"b": x, "a": 1},
    "list": lambda x: [x, "text", None],
    "tuple": lambda x: (x, b"bytes"),
    "named tuple": lambda x: Pair(x, 2.5),
    "dataclass": lambda x: Batch(x, 3),
    "ordered": lambda x: collections.OrderedDict(z=x, a=True),
    "default": lambda x: collections.defaultdict(list, a=[x]),
    "nested": lambda x: {"deep": [Pair(x, Batch((x, x), {"y": x}))]},
    "alone": lambda x: x,
}


def arrays_of(tree):
    if isinstance(tree, dict):
        return [array for value in tree.values() for array in arrays_of(value)]
    if isinstance(tree, list | tuple):
        return [array for value in tree for array in arrays_of(value)]
    if dataclasses.is_dataclass(tree):
        return arrays_of(list(vars(tree).values()))
    return [tree] if hasattr(tree, "shape") else []


@pytest.mark.needs("torch")
@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_every_array_of_a_container(make):
    source = np.arange(6, dtype="float32").reshape(2, 3)
    tree = make(source)
    before = arrays_of(tree)
    made = dlbridge.convert_tree(tree, "torch")
    assert type(made) is type(tree) or make is CONTAINERS["alone"]
    assert len(arrays_of(made)) == len(before) > 0
    for array in arrays_of(made):
        assert type(array) is torch.Tensor
        assert array.data_ptr() == source.ctypes.data
    assert all(array is source for array in arrays_of(tree)), "it is not changed"


@pytest.mark.needs("torch")
def test_what_is_no_array_is_handed_on():
    others = ["text", b"bytes", 1, 2.5, 1j, None, True, object(), print]
    made = dlbridge.convert_tree(others, "torch")
    assert all(new is old for new, old in zip(made, others, strict=True))


@pytest.mark.needs("torch")
def test_what_is_no_array_is_refused_where_that_is_asked():
    with pytest.raises(dlbridge.UnsupportedError, match=r"leaf \['b'\]: source: value 'text': is no array"):
        dlbridge.convert_tree({"a": np.zeros(2), "b": "text"}, "torch", others="raise")


@pytest.mark.parametrize("call", [dlbridge.convert_tree, dlbridge.prefetch, dlbridge.accepts])
@pytest.mark.parametrize("name", ["others", "columns"])
def test_a_wrong_keyword_names_the_function_that_was_called(call, name):
    with pytest.raises(ValueError, match=f'^{call.__name__}: {name} \'warn\': is neither "pass" nor "raise"'):
        call(*[()] * (call is not dlbridge.accepts), "numpy", **{name: "warn"})


@pytest.mark.needs("torch")
def test_keywords_hold_for_every_array():
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert_tree([np.zeros(3), np.zeros(3)[::-1]], "torch", copy=False)
    source = np.zeros(3)
    assert dlbridge.convert_tree([source], "torch", copy=True)[0].data_ptr() != source.ctypes.data


@pytest.mark.needs("torch")
def test_an_array_that_cannot_be_converted_is_an_error_and_not_handed_on():
    with pytest.raises(dlbridge.ConversionError):
        dlbridge.convert_tree([np.zeros(3), np.array(["2026"], "M8")], "torch")


@pytest.mark.needs("torch", "jax", "optree")
def test_from_several_libraries_at_once():
    made = dlbridge.convert_tree([torch.ones(2), jnp.ones(2), bytearray(2), np.ones(2)], "numpy")
    assert [type(array) for array in made] == [np.ndarray] * 4


# ---- containers ------------------------------------------------------------------------------------------------------

class Attributes(dict):
    """Has its items as attributes, and raises KeyError for others."""

    def __getattr__(self, name):
        return self[name]


class Named(list):
    def __init__(self, values, name):
        super().__init__(values)
        self.name = name


class Extent(tuple):
    pass


@dataclasses.dataclass
class Normalised:
    value: Any
    scale: dataclasses.InitVar[int] = 2

    def __post_init__(self, scale):
        self.value = self.value * scale
        self.extra = "kept"


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


@dataclasses.dataclass(frozen=True)
class OwnCopy:
    value: Any

    def __copy__(self):
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class OwnCopyOfSlots(OwnCopy):
    other: Any = "kept"


class OwnCopyOfAPrivateSlot(OwnCopy):
    __slots__ = ("__note",)

    def __init__(self, value):
        super().__init__(value)
        object.__setattr__(self, "_OwnCopyOfAPrivateSlot__note", "kept")

    def note(self):
        return self.__note


class Frozen(dict):
    """Like frozendict: neither its items nor its copy can be changed."""

    def __setitem__(self, key, value):
        raise TypeError("it is frozen")

    def __copy__(self):
        return self


class Noted(collections.namedtuple("Pair", "first second")):
    """Its instances have attributes beside their values."""


def noted(x):
    made = Noted(x, 1)
    made.note = "kept"
    return made


class Model:
    """As pydantic's models are, with extra="allow"."""

    __pydantic_fields__ = types.MappingProxyType({"declared": None})

    def __init__(self, **extra):
        self.declared = 1
        self.__pydantic_extra__ = extra

    def __getattr__(self, name):
        return self.__pydantic_extra__[name]

    def __copy__(self):
        return Model(**self.__pydantic_extra__)


OF_ONE = {
    "its own copy": (OwnCopy, lambda tree: tree.value),
    "its own copy, slots": (OwnCopyOfSlots, lambda tree: tree.value if tree.other == "kept" else None),
    "its own copy, a private slot": (OwnCopyOfAPrivateSlot, lambda tree: tree.value if tree.note() == "kept" else None),
    "frozen dictionary": (lambda x: Frozen(x=x), lambda tree: tree["x"]),
    "named tuple with an attribute": (noted, lambda tree: tree.first if tree.note == "kept" else None),
    "model with more than its fields": (lambda x: Model(x=x), lambda tree: tree.x),
    "attributes": (lambda x: Attributes(x=x), lambda tree: tree["x"]),
    "list with a name": (lambda x: Named([x], "a"), lambda tree: tree[0] if tree.name == "a" else None),
    "subclass of tuple": (lambda x: Extent([x]), lambda tree: tree[0]),
    "deque": (lambda x: collections.deque([x], maxlen=3), lambda tree: tree[0] if tree.maxlen == 3 else None),
    "UserDict": (lambda x: collections.UserDict(x=x), lambda tree: tree["x"]),
    "UserList": (lambda x: collections.UserList([x]), lambda tree: tree[0]),
    "mapping proxy": (lambda x: types.MappingProxyType({"x": x}), lambda tree: tree["x"]),
    "mixed keys": (lambda x: {1: x, "a": x, None: x}, lambda tree: tree[1]),
    "default": (lambda x: collections.defaultdict(list, x=x), lambda tree: tree["x"] if tree["y"] == [] else None),
    "frozen slots": (Slotted, lambda tree: tree.value),
    "normalised": (lambda x: Normalised(x, 1), lambda tree: tree.value if tree.extra == "kept" else None),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("make", "take"), OF_ONE.values(), ids=OF_ONE)
def test_a_container_is_rebuilt_in_its_own_type(make, take):
    array = np.ones(3)
    tree = make(array)
    array = take(tree)
    made = dlbridge.convert_tree([tree], "torch")[0]
    assert type(made) is type(tree)
    assert type(take(made)) is torch.Tensor
    assert take(made).data_ptr() == array.ctypes.data
    assert take(tree) is array


def test_the_order_of_keys_stays():
    assert list(dlbridge.convert_tree({"b": np.ones(1), "a": np.ones(1), 3: 1}, "numpy")) == ["b", "a", 3]


class Ordered(collections.OrderedDict):
    pass


class Backwards(dict):
    def __iter__(self):
        return reversed(list(super().__iter__()))


@pytest.mark.parametrize("kind", [
    collections.OrderedDict, Ordered, Backwards, lambda **values: collections.UserDict(Ordered(values)),
    lambda **values: types.MappingProxyType(Ordered(values))], ids=["exact", "subclass", "own", "UserDict", "proxy"])
def test_values_stay_with_their_keys(kind):
    """An OrderedDict keeps an order of its own, which is not that of dict.values()."""
    tree = kind(a=np.zeros(1), b=np.ones(1), c=np.full(1, 2))
    inner = getattr(tree, "data", tree)
    if isinstance(inner, collections.OrderedDict):
        inner.move_to_end("a")
    made = dlbridge.convert_tree(tree, "numpy", copy=True)
    assert list(made) == list(tree)
    assert {key: value.tolist() for key, value in made.items()} == {"a": [0], "b": [1], "c": [2]}
    if isinstance(inner, dict):     # a proxy cannot be changed
        inner["b"] = [1, "text"]
        with pytest.raises(dlbridge.UnsupportedError, match=r"leaf \['b'\]\[0\]"):
            dlbridge.convert_tree(tree, "numpy", others="raise")


@pytest.mark.needs("torch")
def test_values_stay_with_their_keys_in_a_batch():
    sample = collections.OrderedDict(a=np.zeros(1), b=np.ones(1))
    sample.move_to_end("a")
    batch = dlbridge.collate([sample, sample])
    assert {key: value.tolist() for key, value in batch.items()} == {"a": [[0], [0]], "b": [[1], [1]]}


def test_a_list_that_is_its_own_copy_is_refused():
    class Constant(list):
        def __copy__(self):
            return self

    tree = Constant([np.zeros(1)])
    with pytest.raises(dlbridge.UnsupportedError, match="is its own copy"):
        dlbridge.convert_tree(tree, "dlbridge")
    assert type(tree[0]) is np.ndarray


def test_a_weak_proxy_is_what_its_object_is():
    array, other = np.ones(3), Batch(1, 2)
    made = dlbridge.convert_tree({"array": weakref.proxy(array), "other": weakref.proxy(other)}, "numpy", others="pass")
    assert np.shares_memory(made["array"], array)
    assert made["other"] == other
    gone = weakref.proxy(Batch(1, 2))
    assert dlbridge.convert_tree([gone], "numpy")[0] is gone


def test_an_object_that_does_not_say_its_class_is_no_array():
    class Silent:
        @property
        def __class__(self):
            raise KeyError("class")

    silent = Silent()
    assert dlbridge.convert_tree({"x": [silent]}, "numpy")["x"][0] is silent
    assert dlbridge.accepts("numpy")(lambda x: x)(silent) is silent


def test_objects_without_arrays_are_handed_on_as_they_are():
    for thing in (Slotted(3), Extent([1, 2]), Attributes(a="b"), time.localtime(), object()):
        assert dlbridge.convert_tree([thing], "numpy")[0] is thing


class Unwritable:
    def __repr__(self):
        raise RuntimeError("this key cannot be written")


@pytest.mark.needs("torch")
def test_keys_that_cannot_be_written():
    with pytest.raises(dlbridge.ConversionError, match="leaf \\[of type Unwritable\\]: "):
        dlbridge.convert_tree({Unwritable(): np.zeros(2, "M8[s]")}, "torch")
    assert type(dlbridge.accepts("torch", returns="like")(lambda x: next(iter(x.values())))(
        {Unwritable(): np.ones(2)})) is np.ndarray


@pytest.mark.needs("torch")
def test_an_error_says_where_the_array_is():
    tree = {"image": np.ones(2), "labels": [1, Batch(Slotted(np.array(["2026"], "M8")), np.ones(2))]}
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert_tree(tree, "torch")
    assert caught.value.value == "['labels'][1].image.value"
    assert (caught.value.stage, caught.value.field) == ("convert_tree", "leaf")
    assert isinstance(caught.value.__cause__, dlbridge.ConversionError)
    with pytest.raises(dlbridge.ConversionError, match=r"^numpy: dtype"):
        dlbridge.convert_tree(np.array(["2026"], "M8"), "torch")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("array", [
    np.array(["a", "b"]), np.array([b"a"]), np.array([None, "a"]), np.array([[1], "b"], object),
    marked(lambda: pa.array(["a", None]), "pyarrow"),
], ids=lambda array: str(getattr(array, "dtype", "arrow")))
def test_arrays_of_words_are_handed_on_like_words(array):
    array = array() if callable(array) else array
    tree = dlbridge.convert_tree({"image": np.ones(2), "words": [array, "a"]}, "torch")
    assert tree["words"][0] is array
    assert isinstance(tree["image"], torch.Tensor)
    assert dlbridge.accepts("torch")(lambda words: words)(array) is array
    with pytest.raises(dlbridge.DLBridgeError, match=r"\['words'\]"):
        dlbridge.convert_tree({"words": array}, "torch", others="raise")


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("call", "path"), [
    (lambda function, bad: function({"labels": [1, bad]}), "batch['labels'][1]"),
    (lambda function, bad: function(1, 2, bad), "rest[1]"),
    (lambda function, bad: function(1, scale=[bad]), "scale[0]"),
    (lambda function, bad: function(1, other={"x": bad}), "more['other']['x']"),
], ids=["positional", "several", "by name", "more"])
def test_an_error_of_accepts_names_the_parameter(call, path):
    @dlbridge.accepts("torch")
    def function(batch, *rest, scale=1, **more):
        raise AssertionError

    with pytest.raises(dlbridge.ConversionError) as caught:
        call(function, np.array(["2026"], "M8"))
    assert str(caught.value).startswith(f"function({path}): numpy: dtype datetime64[Y]: has no DLPack type (")
    assert (caught.value.field, caught.value.value) == ("dtype", "datetime64[Y]")


@in_child
def test_no_predicate_of_a_source_is_asked_about_values():
    import weakref

    import numpy as np

    import dlbridge

    class Proxied:
        pass

    def accepts(kind):
        if kind in (str, int, float, type(None)) or kind in weakref.ProxyTypes:
            raise TypeError(f"the predicate met {kind}")
        return False

    dlbridge.register_source(accepts, lambda obj: obj)
    proxied = Proxied()
    tree = [np.arange(3), "text", 3, 1.5, None, weakref.proxy(proxied)]
    given = dlbridge.convert_tree(tree, "dlbridge")
    assert given[0].data_ptr == tree[0].ctypes.data
    assert given[1:5] == tree[1:5]
    assert dlbridge.accepts("dlbridge")(lambda *values: values)(*tree[1:5]) == tuple(tree[1:5])


@pytest.mark.parametrize(("to", "package"), params([
    ("torch", "torch"), marked(("jax", "jaxlib"), "jax"), ("numpy", "numpy")]))
@in_child(warnings="default")
def test_no_library_is_needed_to_walk(to, package):
    import sys

    sys.modules["optree"] = None
    import numpy

    import dlbridge

    array = dlbridge.convert_tree({"a": [numpy.zeros(3, "f4")]}, to)["a"][0]
    assert type(array).__module__.partition(".")[0] == package


def register_for(library, kind, flatten, unflatten):
    """Register a container whose two functions are as JAX's."""
    if library == "optree":
        optree.register_pytree_node(kind, flatten, unflatten, namespace=optree.registry.__GLOBAL_NAMESPACE)
    elif library == "torch":
        torch.utils._pytree.register_pytree_node(kind, flatten, lambda values, extra: unflatten(extra, list(values)))
    else:
        jax.tree_util.register_pytree_node(kind, flatten, unflatten)


libraries_with_trees = pytest.mark.parametrize("library", ["optree", "torch", "jax"])


@pytest.mark.needs("torch", "jax", "optree")
@libraries_with_trees
def test_a_registered_container_is_taken_apart_once_and_made_again_once(library):
    """Its constructor looks at what it is given."""
    calls = []

    class Gauss:
        def __init__(self, mean):
            self.mean, self.size = mean, mean.shape[0]

    def flatten(gauss):
        calls.append("flatten")
        return (gauss.mean,), "extra"

    def unflatten(extra, values):
        calls.append("unflatten")
        assert extra == "extra"
        return Gauss(*values)

    register_for(library, Gauss, flatten, unflatten)
    made = dlbridge.convert_tree(Gauss(np.ones(2)), "torch")
    assert (type(made), type(made.mean), made.size, calls) == (Gauss, torch.Tensor, 2, ["flatten", "unflatten"])


@pytest.mark.needs("torch", "jax", "optree")
@libraries_with_trees
def test_what_the_functions_of_a_registered_container_raise_is_raised(library):
    class Broken:
        pass

    def flatten(broken):
        raise LookupError("mine")

    register_for(library, Broken, flatten, lambda extra, values: Broken())
    with pytest.raises(LookupError, match="mine"):
        dlbridge.convert_tree([Broken()], "torch")


@pytest.mark.needs("torch", "jax", "optree")
@libraries_with_trees
@pytest.mark.parametrize("by_type", [False, True])
def test_a_registered_container_that_poses_as_an_array_is_one_for_convert_alone(library, by_type):
    """As flax.nnx.Param does, which convert() takes for its array."""
    class Param:
        def __init__(self, array):
            self.array = array

        def __getattr__(self, name):
            if name == "array":
                raise AttributeError(name)
            return getattr(self.array, name)

    if by_type:
        Param.__array_interface__ = property(lambda param: param.array.__array_interface__)
    register_for(library, Param, lambda param: ((param.array,), None), lambda extra, values: Param(*values))
    array = np.ones(2)
    made = dlbridge.convert_tree({"kernel": Param(array)}, "torch")["kernel"]
    assert (type(made), type(made.array)) == (Param, torch.Tensor)
    assert type(dlbridge.convert(Param(array), "torch")) is torch.Tensor


@pytest.mark.needs("torch", "jax", "optree")
@libraries_with_trees
def test_a_class_that_posed_as_an_array_before_it_was_registered_is_a_container_then(library):
    class Param:
        def __init__(self, array):
            self.array = array

        @property
        def __array_interface__(self):
            return self.array.__array_interface__

    def kinds():
        tree = [Param(np.ones(2)), np.ones(2)]
        return [type(made) for made in dlbridge.convert_tree(tree, "torch")]

    assert kinds() == [torch.Tensor, torch.Tensor]
    register_for(library, Param, lambda param: ((param.array,), None), lambda extra, values: Param(*values))
    assert kinds() == [Param, torch.Tensor]


# ---- records ---------------------------------------------------------------------------------------------------------

RECORDS = np.array([(1, 2.5), (3, 4.5)], [("id", "i8"), ("x", "f8")])


@pytest.mark.parametrize("target", params(["torch", "numpy", "memoryview"]))
@pytest.mark.parametrize("records", [RECORDS, RECORDS.view(np.recarray), RECORDS[:, None]],
                         ids=["ndarray", "recarray", "two axes"])
def test_records_are_dictionaries_of_their_fields(records, target):
    made = dlbridge.convert_tree({"points": records, "y": np.ones(1)}, target)["points"]
    assert list(made) == ["id", "x"]
    for name, field in made.items():
        assert np.asarray(field).tolist() == records[name].tolist()
        assert np.shares_memory(np.asarray(field), RECORDS)


@pytest.mark.needs("torch")
def test_records_in_records():
    inner = np.dtype([("a", "i4"), ("w", "U2")])
    records = np.array([((7, "ab"), 1.5)], [("inner", inner), ("x", "f4")])
    with pytest.raises(dlbridge.ConversionError, match=r"column \['k'\]\['inner'\]\['w'\]: numpy: dtype"):
        dlbridge.convert_tree({"k": records}, "torch")
    made = dlbridge.convert_tree({"k": records}, "torch", columns="pass")["k"]
    assert (made["inner"]["a"].tolist(), made["inner"]["w"].tolist(), made["x"].tolist()) == ([7], ["ab"], [1.5])


@pytest.mark.needs("torch")
def test_records_with_a_mask_are_refused():
    masked = np.ma.array(RECORDS, mask=[(True, False), (False, False)])
    with pytest.raises(dlbridge.UnsupportedError, match=r"column \['id'\]: numpy: mask"):
        dlbridge.convert_tree(masked, "torch")


@pytest.mark.needs("torch")
def test_records_as_an_argument():
    @dlbridge.accepts("torch")
    def total(points):
        return float(points["x"].sum())

    assert total(RECORDS) == 7


# ---- accepts ---------------------------------------------------------------------------------------------------------

@dlbridge.accepts("torch", returns="like")
def scaled(x, /, factor: float = 2.0, *, offsets: "list[Any] | None" = None, **names: Any) -> Any:
    """Scale, then move."""
    assert type(x) is torch.Tensor
    for offset in offsets or []:
        assert type(offset) is torch.Tensor
        x = x + offset
    assert all(type(name) in (torch.Tensor, str) for name in names.values())
    return {"scaled": x.mul(factor), "factor": factor}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("make", [
    np.asarray, marked(jnp.asarray, "jax"), torch.asarray], ids=["numpy", "jax", "torch"])
def test_any_library_goes_in_and_comes_back(make):
    source = make(np.arange(3, dtype="float32"))
    result = scaled(source, 3.0, offsets=[np.ones(3, "float32")], other=bytearray(3), word="a")
    assert isinstance(result["scaled"], type(source))
    assert result["scaled"].tolist() == [3.0, 6.0, 9.0]
    assert result["factor"] == 3.0


@pytest.mark.needs("torch")
def test_a_number_of_numpy_as_the_first_array():
    array = np.ones(3)
    result = scaled(array.mean(), array)["scaled"]
    assert type(result) is np.ndarray


@pytest.mark.needs("torch", "jax")
def test_results_stay_as_they_are_where_nothing_is_asked():
    @dlbridge.accepts(to=torch)
    def double(x):
        return x * 2

    assert type(double(np.ones(3))) is torch.Tensor
    assert type(double(x=jax.numpy.ones(3))) is torch.Tensor


@pytest.mark.needs("torch")
def test_signature_and_hints_stay():
    assert str(inspect.signature(scaled)).startswith("(x, /, factor: float = 2.0, *, offsets")
    assert (scaled.__name__, scaled.__doc__) == ("scaled", "Scale, then move.")
    assert scaled.__wrapped__.__annotations__ == scaled.__annotations__


@pytest.mark.needs("torch")
def test_methods():
    @dataclasses.dataclass
    class Model:
        weight: Any

        @dlbridge.accepts("torch")
        def forward(self, x):
            assert isinstance(self, Model)
            assert type(self.weight) is np.ndarray
            return x.sum().item()

        @classmethod
        @dlbridge.accepts("torch")
        def build(cls, weight):
            assert cls is Model
            return cls(type(weight))

        @staticmethod
        @dlbridge.accepts("torch")
        def kind(x):
            return type(x)

    model = Model(np.ones(2))
    assert model.forward(np.ones(3)) == 3
    assert Model.forward(model, np.ones(3)) == 3
    assert Model.build(np.ones(2)).weight is torch.Tensor
    assert Model.kind(np.ones(2)) is model.kind(np.ones(2)) is torch.Tensor


@pytest.mark.needs("torch")
def test_fields_that_no_constructor_takes():
    @dataclasses.dataclass(frozen=True)
    class Sample:
        image: Any
        mask: Any = dataclasses.field(init=False)
        unset: Any = dataclasses.field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "mask", np.zeros(2))

    sample = Sample(np.ones(2))
    object.__setattr__(sample, "mask", np.full(2, 7.0))
    made = dlbridge.convert_tree(sample, "torch")
    assert type(made.image) is type(made.mask) is torch.Tensor
    assert made.mask.tolist() == [7, 7]
    assert type(sample.mask) is np.ndarray
    assert not hasattr(made, "unset")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("function", [torch.neg, functools.partial(torch.add, 1), min], ids=["neg", "add", "min"])
def test_functions_without_a_signature(function):
    assert type(dlbridge.accepts("torch")(function)(np.ones(2))) is torch.Tensor


@pytest.mark.needs("torch")
def test_coroutines():
    @dlbridge.accepts("torch", returns="like")
    async def double(x):
        await asyncio.sleep(0)
        return x * 2

    assert inspect.iscoroutinefunction(double)
    result = asyncio.run(double(np.ones(3)))
    assert type(result) is np.ndarray
    assert result.tolist() == [2, 2, 2]


@pytest.mark.needs("torch")
def test_an_object_whose_call_is_a_coroutine():
    class Double:
        async def __call__(self, x):
            return x * 2

    result = asyncio.run(dlbridge.accepts("torch", returns="like")(Double())(np.ones(3)))
    assert type(result) is np.ndarray


@pytest.mark.parametrize("given", [classmethod(lambda cls, x: x), 3, None])
def test_what_cannot_be_called_is_refused_at_once(given):
    with pytest.raises(TypeError, match=r"^accepts: function .*: cannot be called"):
        dlbridge.accepts("torch")(given)


@pytest.mark.needs("torch")
def test_without_an_array_nothing_is_converted():
    @dlbridge.accepts("torch", returns="like")
    def make(count):
        return torch.ones(count)

    assert type(make(3)) is torch.Tensor


@pytest.mark.needs("torch", "jax")
def test_the_first_array_counts():
    @dlbridge.accepts("torch", returns="like")
    def add(values, more):
        return values["a"] + more

    assert isinstance(add({"a": jnp.ones(2)}, np.ones(2, "float32")), jax.Array)
    assert type(add({"a": np.ones(2)}, jnp.ones(2))) is np.ndarray


@pytest.mark.needs("torch")
def test_what_is_asked_is_checked_at_once():
    with pytest.raises(ValueError, match='accepts: returns \'same\': is neither None nor "like"'):
        dlbridge.accepts("torch", returns="same")


@pytest.mark.needs("torch", "optree")
def test_like_a_tensor_or_what_is_no_target():
    called = []

    @dlbridge.accepts("numpy", returns="like")
    def increased(x):
        called.append(x)
        return x + 1

    result = increased(dlbridge.asdlpack(np.zeros(3)))
    assert isinstance(result, dlbridge.Tensor)
    assert np.asarray(result).tolist() == [1, 1, 1]
    with pytest.raises(dlbridge.UnsupportedError, match="bytearray"):
        increased(bytearray(8))
    assert len(called) == 1         # it is said before


@pytest.mark.needs("torch")
def test_a_registered_source_is_an_array_from_then_on():
    class Later:
        pass

    later = Later()
    assert dlbridge.convert_tree([later], "numpy") == [later]
    dlbridge.register_source(Later, lambda obj: np.arange(2))
    assert dlbridge.convert_tree([later], "numpy")[0].tolist() == [0, 1]


# ---- functions that JAX traces ---------------------------------------------------------------------------------------

@pytest.mark.needs("jax")
@pytest.mark.parametrize("transform", [jax.jit, jax.grad, lambda function: jax.jit(jax.grad(function))],
                         ids=["jit", "grad", "jit of grad"])
@pytest.mark.parametrize("returns", [None, "like"])
def test_tracers_pass_unchanged(returns, transform):
    function = dlbridge.accepts("jax", returns=returns)(lambda x: (x * x).sum())
    given = jnp.arange(3.0)
    expected = transform(lambda x: (x * x).sum())(given)
    assert np.array_equal(transform(function)(given), expected)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("target", params(["numpy", "torch", "dlbridge"]))
def test_tracers_have_no_values_for_other_libraries(target):
    with pytest.raises(dlbridge.UnsupportedError, match=r'callback=True,? and returns="like" to dlbridge.accepts\)'):
        jax.jit(dlbridge.accepts(target)(lambda x: 0))(jnp.arange(3.0))


# ---- what gives columns, or one, by Arrow's interfaces alone ---------------------------------------------------------

class ByStream:
    """Of a library that dlbridge was not taught."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class ByArray:
    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


class Once(ByStream):
    def __arrow_c_stream__(self, requested_schema=None):
        table, self.table = self.table, None
        return table.__arrow_c_stream__(requested_schema)


def batch_of(**columns):
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


class Damaged(ByArray):
    """A field of its array, or of the array's first child, is overwritten."""

    def __init__(self, array, offset, value, child):
        super().__init__(array)
        self.offset, self.value, self.child = offset, value, child

    def __arrow_c_array__(self, requested_schema=None):
        schema, array = super().__arrow_c_array__(requested_schema)
        address = capsule_pointer(array, b"arrow_array")
        if self.child:
            children = ctypes.c_void_p.from_address(address + 48).value
            address = ctypes.c_void_p.from_address(children).value
        ctypes.c_int64.from_address(address + self.offset).value = self.value
        return schema, array


DAMAGES = {"length -1": (0, -1), "null_count": (8, 99), "offset -1": (16, -1), "n_buffers 2**40": (24, 2**40),
           "n_children": (32, 7), "buffers NULL": (40, 0)}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("child", [False, True], ids=["", "in a child"])
@pytest.mark.parametrize(("offset", "value"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_array_of_columns_is_refused(offset, value, child):
    """pyarrow, which takes the columns apart, would not survive some of them."""
    def convert_it():
        tree = {"t": [Damaged(pa.array([{"a": 1}, {"a": 2}]), offset, value, child)]}
        with pytest.raises(dlbridge.ConversionError, match=r"leaf \['t'\]\[0\]: arrow: ") as caught:
            dlbridge.convert_tree(tree, "numpy")
        return str(caught.value)

    outcome = run_in_child(convert_it)
    assert (outcome.result() != "", outcome.stderr) == (True, "")


SOUND = {"format": b"+s", "n_buffers": 1, "name": b""}
UNSOUND = {
    **{f"of the child: {name}": {"child": fields} for name, fields in {
        "length -1": {"length": -1}, "null_count": {"null_count": 99}, "offset -1": {"offset": -1},
        "n_buffers 2**40": {"n_buffers": 2**40}, "buffers NULL": {"buffers": False}, "too short": {"length": 5},
        "n_children": {"array_children": 3}}.items()},
    "length -1": {"length": -1}, "offset": {"offset": 1}, "n_children": {"array_children": 2},
    "n_buffers -1": {"n_buffers": -1}, "no such type": {"format": b"%s{}"},
}


def stream_of(child=None, length=6, **fields):
    return OfStream(length, length, **{**SOUND, **fields}, child=Structs(name=b"a", **(child or {})))


class InItself(OfArray):
    """A struct whose only column is the struct."""

    def schema(self):
        return self.looped(super().schema())

    def array(self, **fields):
        return self.looped(super().array(**fields))

    def looped(self, struct):
        self.kept.append((ctypes.c_void_p * 1)(ctypes.addressof(struct)))
        struct.n_children, struct.children = 1, ctypes.addressof(self.kept[-1])
        return struct


@pytest.mark.needs("pyarrow")
def test_columns_in_columns_without_end():
    def convert_it():
        with pytest.raises(RecursionError):
            dlbridge.convert_tree([InItself(**SOUND)], "numpy")

    outcome = run_in_child(convert_it)
    assert (outcome.result(), outcome.stderr) == (None, "")


@pytest.mark.needs("pyarrow")
def test_a_stream_of_an_unknown_library_is_read_once_and_released_once():
    source = stream_of()
    made = dlbridge.convert_tree([source], "numpy", columns="pass")[0]
    assert made["a"].tolist() == [0, 1, 2, 3, 4, 5] * 2
    del made
    gc.collect()
    assert source.released == {"schema": 3, "array": 2, "stream": 1}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("fields", UNSOUND.values(), ids=UNSOUND)
def test_a_damaged_stream_of_columns_is_refused(fields):
    def convert_it():
        source = stream_of(**fields)
        with pytest.raises(dlbridge.ConversionError) as caught:
            dlbridge.convert_tree({"t": [source]}, "numpy")
        caught = str(caught.value)
        gc.collect()
        return caught, source.released

    outcome = run_in_child(convert_it)
    message, released = outcome.result()
    assert "leaf ['t'][0]: " in message
    assert released == {"schema": released["array"] + 1, "array": released["array"], "stream": 1}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("empty", [pa.table({"a": pa.array([], "float32")}), pa.table({"a": []}).slice(0, 0)])
def test_a_stream_without_chunks_has_columns(empty):
    made = dlbridge.convert_tree([ByStream(pa.RecordBatchReader.from_batches(empty.schema, []))], "numpy",
                                 columns="pass")[0]
    assert list(made) == ["a"]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("of", [lambda values: ByArray(pa.array(values)), lambda values: ByStream(
    pa.chunked_array([values]))], ids=["array", "stream"])
def test_an_array_without_columns_of_an_unknown_library(of):
    assert dlbridge.convert_tree([of([1, 2])], "numpy")[0].tolist() == [1, 2]


UNKNOWN = {
    "stream": lambda **columns: ByStream(pa.table(columns)),
    "array": lambda **columns: ByArray(batch_of(**columns)),
    "once": lambda **columns: Once(pa.table(columns)),
    "reader": lambda **columns: pa.table(columns).to_reader(),
}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_tables_of_libraries_that_are_not_known(make):
    made = dlbridge.convert_tree([make(a=np.arange(3), b=[0.5, 1.5, 2.5], c=[True, False, True])], "numpy")[0]
    assert {name: array.tolist() for name, array in made.items()} == {
        "a": [0, 1, 2], "b": [0.5, 1.5, 2.5], "c": [True, False, True]}
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert_tree({"x": make(a=[1, 2], b=["a", "b"])}, "numpy")
    assert caught.value.value == "['x']['b']"
    assert set(dlbridge.convert_tree(make(a=[1, 2], b=["a", None]), "numpy", columns="pass")) == {"a", "b"}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", [ByStream, Once])
def test_arrays_of_libraries_that_are_not_known(kind):
    numbers = pa.array([1, 2, 3])
    chunked = pa.chunked_array([numbers])
    made = dlbridge.convert_tree({"x": kind(chunked), "y": ByArray(numbers)}, "numpy")
    assert [array.ctypes.data for array in made.values()] == [numbers.buffers()[1].address] * 2
    words = dlbridge.convert_tree([kind(pa.chunked_array([["a"]]))], "numpy")[0]
    assert words.to_pylist() == ["a"]           # and not the stream, which may have been read
    assert dlbridge.convert_tree({"x": [kind(pa.chunked_array([[1], [2]]))]}, "numpy")["x"][0].tolist() == [1, 2]
    with pytest.raises(dlbridge.CopyRequiredError) as caught:
        dlbridge.convert_tree({"x": [kind(pa.chunked_array([[1], [2]]))]}, "numpy", copy=False)
    assert caught.value.value == "['x'][0]"
    assert caught.value.__cause__.field == "chunks"


def reader_of(**columns):
    """Three batches, which are read once."""
    table = pa.table(columns)
    return pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=1)))


class Handle:
    """What ADBC gives: a stream that is read once, and its schema beside it."""

    def __init__(self, reader):
        self.stream, self.schema = reader.__arrow_c_stream__(), reader.schema

    def __arrow_c_stream__(self, requested_schema=None):
        return self.stream

    def __arrow_c_schema__(self):
        return self.schema.__arrow_c_schema__()


READERS = {"RecordBatchReader": lambda reader: reader, "ADBC": Handle}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", READERS.values(), ids=READERS)
def test_what_is_refused_for_its_type_leaves_a_reader_unread(kind):
    reader = kind(reader_of(a=[1, 2, 3], b=["x", "y", "z"]))
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert_tree(reader, "numpy")
    assert caught.value.hint.startswith('pass columns="pass" to hand it on, and then pass all bytes')     # pyarrow's
    assert "ask for it again" not in caught.value.hint
    with pytest.raises(dlbridge.ConversionError, match="has columns"):
        dlbridge.convert(reader, "numpy")
    made = dlbridge.convert_tree(reader, "numpy", columns="pass")
    assert (made["a"].tolist(), made["b"].to_pylist()) == ([1, 2, 3], ["x", "y", "z"])


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", READERS.values(), ids=READERS)
def test_a_reader_that_was_read_says_so(kind):
    reader = kind(reader_of(a=[1, None, 3]))
    with pytest.raises(dlbridge.ConversionError, match="it was read: ask for it again first"):
        dlbridge.convert_tree({"x": reader}, "numpy")
    for columns in ("raise", "pass"):
        with pytest.raises(dlbridge.ConversionError, match=r"were read before|was consumed before"):
            dlbridge.convert_tree({"x": reader}, "numpy", columns=columns)


@pytest.mark.needs("pyarrow")
def test_a_reader_without_rows_is_not_one_that_was_read():
    made = dlbridge.convert_tree(reader_of(a=pa.array([], "int64"), b=pa.array([], "bool")), "numpy")
    assert {name: column.shape for name, column in made.items()} == {"a": (0,), "b": (0,)}
    once = reader_of(a=[1, 2, 3])
    assert dlbridge.convert_tree(once, "numpy")["a"].tolist() == [1, 2, 3]
    with pytest.raises(dlbridge.ConversionError, match="were read before"):
        dlbridge.convert_tree(once, "numpy")


def test_a_leaf_that_is_refused_keeps_the_hint_of_convert():
    for leaf, hint in ((range(3), "pass numpy.asarray(x)"), ("ab", "pass x.encode()"), (len, "it is a function")):
        with pytest.raises(dlbridge.UnsupportedError) as caught:
            dlbridge.convert_tree({"a": leaf}, "numpy", others="raise")
        assert caught.value.hint.startswith('pass others="pass" to hand it on, or ')
        assert hint in caught.value.hint


@pytest.mark.needs("pyarrow")
def test_all_columns_that_are_no_array_are_named():
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "c": [1, None]})
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert_tree({"t": table}, "numpy")
    assert (caught.value.field, caught.value.value) == ("columns", "['t']['b'], ['t']['c']")
    assert "['b'] arrow: format 'u': are strings; ['c'] arrow: null_count 1: " in str(caught.value)
    assert caught.value.hint.startswith('pass columns="pass" to hand them on, or for [\'b\'] pass all bytes')
    assert "; for ['c'] pass x.combine_chunks().fill_null(0)" in caught.value.hint


def test_columns_of_records_in_records_are_named_too():
    records = np.zeros(2, [("p", [("x", "O"), ("y", "M8[s]")]), ("q", "O")])
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert_tree(records, "memoryview")
    assert caught.value.value == "['p']['x'], ['p']['y'], ['q']"


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("columns", ["raise", "pass"])
def test_a_table_with_columns_that_are_no_array_is_not_kept(columns):
    """No cycle has it, which the collector would have to find."""
    def convert_it():
        table = pa.table({"s": ["x"] * 10_000, "t": ["y"] * 10_000})
        try:
            dlbridge.convert_tree(table, "numpy", columns=columns)
        except dlbridge.ConversionError:
            assert columns == "raise"

    convert_it()
    gc.collect()
    before = pa.total_allocated_bytes()
    gc.disable()
    try:
        convert_it()
        assert pa.total_allocated_bytes() == before
    finally:
        gc.enable()


@pytest.mark.needs("pyarrow")
def test_columns_of_tables_are_gathered():
    """Of DuckDB, of row groups, of what was concatenated: in as many chunks as there were parts."""
    part = pa.table({"a": [1, 2], "b": [True, False], "c": ["x", "y"]})
    made = dlbridge.convert_tree(pa.concat_tables([part] * 3), "numpy", columns="pass")
    assert (made["a"].tolist(), made["b"].tolist()) == ([1, 2] * 3, [True, False] * 3)
    with pytest.raises(dlbridge.CopyRequiredError, match="gathered by a copy"):
        dlbridge.convert_tree(pa.concat_tables([part.select(["a"])] * 3), "numpy", copy=False)


class Proxy:
    """It hands on what its object has; isinstance() cannot tell."""

    def __init__(self, behind):
        self.behind = behind

    def __getattr__(self, name):
        return getattr(self.behind, name)


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("wrap", [Proxy, lambda table: Proxy(Proxy(table)), weakref.proxy], ids=["1", "2", "weak"])
@pytest.mark.parametrize("make", [pa.table, ByStream, pa.record_batch], ids=["Table", "unknown", "RecordBatch"])
def test_a_proxy_of_a_table_is_that_table(wrap, make):
    table = make(pa.table({"a": [1, 2], "b": [0.5, 1.5]}) if make is ByStream else {"a": [1, 2], "b": [0.5, 1.5]})
    made = dlbridge.convert_tree({"x": wrap(table)}, "numpy")["x"]
    assert {name: array.tolist() for name, array in made.items()} == {"a": [1, 2], "b": [0.5, 1.5]}
    column = pa.array([1, 2])
    assert dlbridge.convert_tree([wrap(column)], "numpy")[0].tolist() == [1, 2]


@pytest.mark.needs("pyarrow")
def test_without_pyarrow_a_table_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(dlbridge.ConversionError, match="with pyarrow installed"):
        dlbridge.convert_tree([ByStream(pa.table({"a": [1]}))], "numpy")
    assert dlbridge.convert_tree([ByStream(pa.chunked_array([[1]]))], "numpy")[0].tolist() == [1]


# ---- what is handed on hides no error --------------------------------------------------------------------------------

WRONG = [("no_such_library", {}, dlbridge.UnsupportedError), ("numpy", {"device": "cuda:0"}, dlbridge.DeviceError)]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(("to", "keywords", "error"), WRONG, ids=["target", "device"])
def test_what_is_handed_on_hides_no_error_of_the_call(to, keywords, error):
    table = pa.table({"a": [1.0], "b": ["x"]})
    with pytest.raises(error):
        dlbridge.convert_tree(table, to, columns="pass", **keywords)
    with pytest.raises(error):
        dlbridge.convert_tree([np.ones(2), np.array(["x"])], to, **keywords)


@pytest.mark.needs("torch", "pyarrow")
def test_a_copy_that_is_forbidden_is_no_column_to_hand_on():
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert_tree(pa.table({"a": [1.0]}), "torch", columns="pass", copy=False)


def test_a_target_that_is_unknown_is_an_error_over_words_too():
    with pytest.raises(dlbridge.UnsupportedError):
        dlbridge.convert_tree({"a": np.array(["x"])}, "no_such_library")


@pytest.mark.needs("torch", "jax")
def test_an_array_of_words_is_not_what_a_result_is_like():
    names, numbers = np.array(["a"]), jnp.zeros(3)
    assert isinstance(dlbridge.accepts("torch", returns="like")(lambda names, x: x)(names, numbers), jax.Array)


@pytest.mark.needs("pyarrow")
def test_a_producer_of_arrow_need_not_take_a_schema():
    class Plain:
        def __arrow_c_array__(self):
            return pa.array([1, 2]).__arrow_c_array__()

    assert dlbridge.convert_tree([Plain()], "numpy")[0].tolist() == [1, 2]


@pytest.mark.needs("torch")
def test_a_leaf_that_failed_is_let_go():
    gc.disable()
    try:
        array = np.zeros(3, "M8[s]").view(type("Days", (np.ndarray,), {}))
        alive = weakref.ref(array)
        with contextlib.suppress(dlbridge.ConversionError):
            dlbridge.convert_tree(array, "torch")
        del array
        assert alive() is None
    finally:
        gc.enable()


# ---- one array in several places -------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
@pytest.mark.parametrize("keywords", [{}, {"copy": True}, {"readonly": "copy"}], ids=repr)
def test_an_array_in_several_places_is_copied_once(keywords):
    """Weights that are tied stay so: what is written in one place is seen in the other."""
    weight = np.arange(3.0)
    weight.flags.writeable = False
    tree = {"encoder": [weight], "decoder": {"out": weight}, "other": np.array([9.0])}
    converted = dlbridge.convert_tree(tree, "torch", **keywords)
    assert converted["encoder"][0] is converted["decoder"]["out"]
    assert converted["encoder"][0].tolist() == [0, 1, 2]
    converted["encoder"][0].zero_()
    assert converted["other"].tolist() == [9]
    assert weight.tolist() == [0, 1, 2]


def test_records_in_records_are_tables_for_numpy_too():
    records = np.zeros(3, [("a", [("b", "f4")]), ("c", "i4")])
    converted = dlbridge.convert_tree(records, "numpy")
    assert converted["a"]["b"].tolist() == [0, 0, 0]
    assert converted["c"].ctypes.data == records["c"].ctypes.data


@pytest.mark.needs("torch")
def test_an_argument_that_is_given_twice_is_copied_once():
    weight = np.arange(3.0)
    weight.flags.writeable = False
    assert dlbridge.accepts("torch")(lambda a, b, *, c: a is b and b is c)(weight, [weight][0], c=weight)


@pytest.mark.needs("torch")
def test_two_arrays_over_the_same_memory_are_copied_twice():
    memory = np.arange(3.0)
    memory.flags.writeable = False
    first, second = dlbridge.convert_tree([memory[:2], memory[:2]], "torch")
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.needs("torch")
def test_no_copy_outlives_the_call():
    weight = np.arange(3.0)
    weight.flags.writeable = False
    before = sys.getrefcount(weight)
    assert dlbridge.convert_tree([weight], "torch")[0] is not dlbridge.convert_tree([weight], "torch")[0]
    assert sys.getrefcount(weight) == before


@pytest.mark.needs("torch", "pyarrow")
def test_columns_that_come_and_go_are_not_taken_for_each_other():
    """They are objects of this moment, and the next one may get the id of the last."""
    table = pa.table({f"c{index}": [float(index)] for index in range(100)})
    converted = dlbridge.convert_tree([table, table], "torch", copy=True)
    assert all(part[f"c{index}"].tolist() == [index] for part in converted for index in range(100))
