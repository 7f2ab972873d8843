"""convert_tree and accepts: every array in a container, and nothing else."""

import asyncio
import collections
import dataclasses
import functools
import inspect
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.optional import marked, params

import dlbridge


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
    with pytest.raises(dlbridge.UnsupportedError, match="convert_tree: leaf 'text': is no array"):
        dlbridge.convert_tree({"a": np.zeros(2), "b": "text"}, "torch", others="raise")
    with pytest.raises(ValueError, match='convert_tree: others \'warn\': is neither "pass" nor "raise"'):
        dlbridge.convert_tree([], "torch", others="warn")


@pytest.mark.needs("torch")
def test_keywords_hold_for_every_array():
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert_tree([np.zeros(3), np.zeros(3)[::-1]], "torch", copy=False)
    source = np.zeros(3)
    assert dlbridge.convert_tree([source], "torch", copy=True)[0].data_ptr() != source.ctypes.data


@pytest.mark.needs("torch")
def test_an_array_that_cannot_be_converted_is_an_error_and_not_handed_on():
    with pytest.raises(dlbridge.ConversionError):
        dlbridge.convert_tree([np.zeros(3), np.array([None])], "torch")


@pytest.mark.needs("torch", "jax", "optree")
def test_from_several_libraries_at_once():
    made = dlbridge.convert_tree([torch.ones(2), jnp.ones(2), bytearray(2), np.ones(2)], "numpy")
    assert [type(array) for array in made] == [np.ndarray] * 4


WITHOUT = """if True:
    import sys
    sys.modules["optree"] = None
    import numpy, dlbridge
    try:
        print(type(dlbridge.convert_tree({{"a": [numpy.zeros(3, "f4")]}}, {to!r})["a"][0]).__module__)
    except dlbridge.MissingLibraryError as error:
        print(error)
"""


@pytest.mark.parametrize(("to", "said"), params([
    ("torch", "torch"), marked(("jax", "jaxlib"), "jax"),
    ("numpy", "convert_tree: module optree: is not installed (pip install dlbridge[tree])")]))
def test_without_optree_the_targets_own_walks(to, said):
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(to=to)], capture_output=True, text=True, check=True)
    assert done.stdout.strip().startswith(said)


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
@pytest.mark.usefixtures("own_sources")
def test_a_registered_source_is_an_array_from_then_on():
    class Later:
        pass

    later = Later()
    assert dlbridge.convert_tree([later], "numpy") == [later]
    dlbridge.register_source(Later, lambda obj: np.arange(2))
    assert dlbridge.convert_tree([later], "numpy")[0].tolist() == [0, 1]
