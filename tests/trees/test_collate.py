"""collate: batches of a DataLoader, of the samples of any library."""

import collections
import dataclasses

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from support.children import in_child
from support.optional import of, params
from support.processes import Samples

import dlbridge
from dlbridge.trees import containers

pytestmark = pytest.mark.needs("torch")
Pair = collections.namedtuple("Pair", ["image", "label"])

SAMPLES = {
    "ndarray": lambda index: np.full((2, 3), index, "float32"),
    "Tensor": lambda index: dlbridge.asdlpack(np.full((2, 3), index, "float32")),
    "read-only Tensor": lambda index: dlbridge.asdlpack(np.broadcast_to(np.float32(index), (2, 3))),
    "jax": of("jax")(lambda index: jnp.full((2, 3), index, "float32")),
    "torch": lambda index: torch.full((2, 3), float(index)),
    "backwards": lambda index: np.full((2, 3), index, "float32")[::-1, ::-1],
    "bytes in the other order": lambda index: np.full((2, 3), index, ">f4"),
    "bfloat16": of("ml_dtypes")(lambda index: np.full((2, 3), index, ml_dtypes.bfloat16)),
    "memoryview": lambda index: memoryview(np.full((2, 3), index, "float32")),
}


@pytest.mark.parametrize("make", params(SAMPLES))
def test_samples_of_any_library_are_stacked(make):
    samples = [make(index) for index in range(4)]
    batch = dlbridge.collate(samples)
    assert isinstance(batch, torch.Tensor)
    assert batch.shape == (4, 2, 3)
    assert batch[:, 0, 0].tolist() == [0, 1, 2, 3]
    batch.zero_()
    assert dlbridge.convert(samples[3], "numpy").astype("float32").min() == 3        # the samples are not written


def test_containers_stay_what_they_are():
    samples = [Pair({"x": dlbridge.asdlpack(np.ones(2)), "name": "a"}, [index, 0.5, np.float32(2)]) for index in (3, 4)]
    batch = dlbridge.collate(samples)
    assert type(batch) is Pair
    assert batch.image["x"].shape == (2, 2)
    assert batch.image["name"] == ["a", "a"]
    assert [values.tolist() for values in batch.label] == [[3, 4], [0.5, 0.5], [2, 2]]


@pytest.mark.parametrize(("samples", "values"), [
    ([np.int64(1), 2], [1, 2]), ([1, np.float64(2.5)], [1, 2.5]), ([np.bool_(True), False], [True, False]),
    ([np.uint8(1), np.uint8(2)], [1, 2]), ([1, 2.5], [1, 2.5]), ([True, False], [True, False]),
    ([(1, np.int64(2)), (np.int64(3), 4)], [[1, 3], [2, 4]]), ([{"x": np.int64(1)}, {"x": 2}], {"x": [1, 2]}),
], ids=repr)
def test_numbers_of_python_and_of_numpy(samples, values):
    batch = dlbridge.collate(samples)
    if isinstance(batch, dict):
        assert {key: part.tolist() for key, part in batch.items()} == values
    elif isinstance(batch, list):
        assert [part.tolist() for part in batch] == values
    else:
        assert batch.tolist() == values
        plain = {*map(type, samples)} == {int, float}       # torch takes them for its own default type
        assert batch.dtype == (torch.float32 if plain else torch.as_tensor(np.array(samples)).dtype)


@pytest.mark.parametrize("samples", [
    [], [(1, 2), (3,)], [{"x": 1}, {}], [1, "a"],
], ids=repr)
def test_what_differs_is_refused_as_by_torch(samples):
    with pytest.raises(Exception) as theirs:
        torch.utils.data.default_collate(samples)
    with pytest.raises(theirs.type):
        dlbridge.collate(samples)


def test_samples_may_come_one_by_one():
    assert dlbridge.collate(np.ones(2) for _ in range(3)).shape == (3, 2)
    assert dlbridge.collate(torch.ones(4, 2)).shape == (4, 2)


def test_each_sample_is_asked_once():
    """A capsule is good for one consumer, whatever is beside it."""
    batch = dlbridge.collate([
        {"a": dlbridge.to_dlpack(np.ones(2)), "b": collections.OrderedDict(q=1), "c": np.zeros(1, [("x", "f4")])}
        for _ in range(2)])
    assert (batch["a"].shape, batch["b"]["q"].tolist(), batch["c"]["x"].shape) == ((2, 2), [1, 1], (2, 1))


def test_an_error_says_where_the_sample_is_wrong():
    with pytest.raises(dlbridge.ConversionError, match=r"leaf \['x'\]\[1\]: numpy: dtype"):
        dlbridge.collate([{"x": [1, np.zeros(2, "M8[s]")]}])


class Graph:
    def __init__(self, nodes, name):
        self.nodes, self.name = nodes, name


@dataclasses.dataclass
class Labelled:
    x: object
    label: object


@pytest.fixture
def graphs(monkeypatch):
    monkeypatch.setattr(containers, "REGISTERED", dict(containers.REGISTERED))
    dlbridge.register_container(Graph, vars, lambda graph, parts: Graph(**parts))
    yield
    containers.functions_of.cache_clear()


@pytest.mark.usefixtures("graphs")
def test_containers_that_torch_does_not_know():
    batch = dlbridge.collate([
        {"g": Graph({"x": dlbridge.asdlpack(np.full(2, index))}, "ab"[index]),
         "p": [Labelled(np.full(1, index), index)]}
        for index in range(2)])
    assert type(batch["g"]) is Graph
    assert batch["g"].nodes["x"].tolist() == [[0, 0], [1, 1]]
    assert batch["g"].name == ["a", "b"]
    (pair,) = batch["p"]
    assert type(pair) is Labelled
    assert (pair.x.tolist(), pair.label.tolist()) == ([[0], [1]], [0, 1])
    with dlbridge.watch() as copies:
        dlbridge.collate([Graph(np.ones(2), "")] * 2)
    assert [(copy.path, copy.nbytes) for copy in copies] == [("[…]['nodes']", 32)]


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(("samples", "error", "text"), [
    ([Graph(np.ones(2), ""), Graph(np.ones(3), "")], RuntimeError, r"^collate: samples\[…\]\['nodes'\]: stack expects"),
    ([{"x": [np.ones(2)]}, {"x": [np.ones(3)]}], RuntimeError, r"^collate: samples\[…\]\['x'\]\[0\]: stack expects"),
    ([Graph({"k": object()}, "")] * 2, dlbridge.UnsupportedError, r"samples\[…\]\['nodes'\]\['k'\] of type .*object"),
    ([Labelled(object(), 1)] * 2, dlbridge.UnsupportedError, r"samples\[…\]\.x of type builtins.object: cannot"),
    ([Graph(np.zeros(1, "M8[s]"), "")], dlbridge.ConversionError, r"leaf \['nodes'\]: numpy: dtype"),
    ([{"x": 1}, {"x": "a"}], TypeError, r"^collate: samples\[…\]\['x'\]: "),
    ([{"x": 1}, {"y": 1}], KeyError, r"collate: samples\[1\]: has no 'x'"),
    ([Graph(1, ""), Labelled(1, "")], dlbridge.UnsupportedError, r"Graph: cannot be stacked, and one is of .*Labelled"),
])
def test_an_error_names_the_place(samples, error, text):
    with pytest.raises(error, match=text):
        dlbridge.collate(samples)


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("around", [
    collections.OrderedDict, collections.UserDict, lambda parts: collections.deque(parts.values()),
    lambda parts: collections.UserList(parts.values())])
def test_such_containers_in_those_that_torch_knows(around):
    batch = dlbridge.collate([around({"a": Labelled(np.ones(2), "b")})] * 2)
    (made,) = batch.values() if hasattr(batch, "values") else batch
    assert (made.x.shape, made.label) == ((2, 2), ["b", "b"])
    with pytest.raises(dlbridge.UnsupportedError, match=r"samples\[…\]\[.*\]\.x of type builtins.object"):
        dlbridge.collate([around({"a": Labelled(object(), "b")})] * 2)


@pytest.mark.usefixtures("graphs")
def test_parts_in_another_order():
    first, second = Graph(1, "a"), Graph(2, "b")
    second.__dict__ = dict(reversed(vars(second).items()))
    batch = dlbridge.collate([first, second])
    assert (batch.nodes.tolist(), batch.name) == ([1, 2], ["a", "b"])


@pytest.mark.usefixtures("graphs")
def test_samples_with_other_parts():
    other = Graph(1, "")
    other.edges = 2
    with pytest.raises(dlbridge.UnsupportedError, match=r"samples\[1\] of type .*Graph: has the parts .*edges.*\)$"):
        dlbridge.collate([Graph(1, ""), other])


def test_it_is_torchs_own_for_tensors():
    samples = [{"x": torch.randn(3), "y": index} for index in range(3)]
    ours, theirs = dlbridge.collate(samples), torch.utils.data.default_collate(samples)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(("samples", "error"), [
    ([np.ones(2), np.ones(3)], RuntimeError),
    ([np.array(["a"]), np.array(["b"])], TypeError),
    ([object(), object()], TypeError),
    ([np.zeros(2, "M8[s]")], dlbridge.ConversionError),
])
def test_what_cannot_be_stacked(samples, error):
    with pytest.raises(error):
        dlbridge.collate(samples)


@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_workers_of_a_data_loader(start):
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=4, num_workers=2, collate_fn=dlbridge.collate, multiprocessing_context=start)
    batches = list(loader)
    assert [batch["x"].shape[0] for batch in batches] == [4, 4, 2]
    assert torch.cat([batch["x"][:, 1, 1] for batch in batches]).tolist() == list(range(10))
    assert torch.cat([batch["label"] for batch in batches]).tolist() == list(range(10))
    assert all(batch["x"].is_shared() for batch in batches)          # torch made it where both processes see it


@in_child(warnings="default")
def test_nothing_is_registered_and_nothing_imported():
    import sys

    import numpy

    import dlbridge

    assert dlbridge.collate
    assert "torch" not in sys.modules
    import torch.utils.data  # noqa: F401
    from torch.utils.data._utils.collate import default_collate_fn_map

    before = dict(default_collate_fn_map)
    dlbridge.collate([dlbridge.asdlpack(numpy.ones(2))])
    assert default_collate_fn_map == before
