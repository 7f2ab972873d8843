"""Classes of users' own whose objects are several arrays."""

from collections import OrderedDict, UserDict

import numpy as np
import pytest
from fake_driver.harness import in_child

import dlbridge
from dlbridge._core.cache import clear_cache
from dlbridge.libraries.library import REGISTERED, finder_of_form

pytestmark = [pytest.mark.needs("scipy", "torch", "pyarrow"),
              pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")]


class Matrix:
    def __init__(self, **parts):
        self.__dict__.update(parts)


class Hostile(UserDict):
    def __getitem__(self, key):
        return 1 / 0

    def keys(self):
        return {"shape", "data", "indices", "indptr"}


def refuse(matrix):
    raise dlbridge.ConversionError("words of a user")


@pytest.fixture
def register():
    """register_form(), undone after the test."""
    yield dlbridge.register_form
    REGISTERED.clear()
    finder_of_form.cache_clear()
    clear_cache()


def matrix():
    import scipy.sparse

    return scipy.sparse.csr_array(np.array([[0, 1, 0], [2, 0, 3]], "f4"))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_both_ways_without_a_copy(register, form):
    register(form, Matrix, vars, Matrix)
    before = matrix().asformat(form)
    own = dlbridge.convert(before, Matrix)
    assert type(own) is Matrix
    assert own.shape == (2, 3)
    assert np.shares_memory(own.data, before.data)
    back = dlbridge.convert(own, "scipy")
    assert back.toarray().tolist() == before.toarray().tolist()
    assert np.shares_memory(back.data, before.data)
    assert type(dlbridge.convert(before, own)) is Matrix
    assert dlbridge.convert(own, Matrix) is own
    copy = dlbridge.convert(own, Matrix, copy=True)
    assert copy.data.tolist() == own.data.tolist()
    assert not np.shares_memory(copy.data, own.data)
    assert dlbridge.explain(own, "torch").leaves["data"].action == "share"
    assert dlbridge.convert(own, "torch").to_dense().tolist() == before.toarray().tolist()


@pytest.mark.parametrize("coordinates", ["rows", "columns"])
def test_coordinates_in_one_array(register, coordinates):
    register("coo", Matrix, vars, Matrix, coordinates=coordinates, parts_of="torch", index_types=["int64"])
    own = dlbridge.convert(matrix().tocoo(), Matrix)
    assert tuple(own.coords.shape) == ((2, 3) if coordinates == "rows" else (3, 2))
    assert str(own.coords.dtype) == "torch.int64"
    assert dlbridge.convert(own, "scipy").toarray().tolist() == matrix().toarray().tolist()


def test_ragged_ones(register):
    import pyarrow

    register("ragged", Matrix, vars, Matrix, index_types=["int32"])
    for rows, offsets in (([[1.0, 2.0], [], [3.0]], np.ndarray), ([[[1.0], []], []], tuple)):
        own = dlbridge.convert(pyarrow.array(rows), Matrix)
        assert type(own.offsets) is offsets
        assert dlbridge.convert(own, "pyarrow").to_pylist() == rows
        assert not hasattr(own, "shape")
    sliced = dlbridge.convert(pyarrow.array([[9.0], [1.0, 2.0]], pyarrow.large_list(pyarrow.float64()))[1:], Matrix)
    assert (sliced.values.tolist(), sliced.offsets.tolist(), sliced.offsets.dtype) == ([1, 2], [0, 2], "int32")


def test_functions_and_batches(register):
    import torch

    unknown = Matrix(**{name: getattr(matrix(), name) for name in ("shape", "data", "indices", "indptr")})
    assert dlbridge.convert_tree([unknown], "torch")[0] is unknown
    register("csr", Matrix, vars, Matrix)
    assert dlbridge.convert_tree([unknown], "torch")[0].layout is torch.sparse_csr
    own = dlbridge.convert(matrix(), Matrix)
    batch = dlbridge.convert_tree({"x": own, "y": np.ones(2)}, "torch")
    assert batch["x"].layout is torch.sparse_csr
    batch = dlbridge.convert_tree({"x": matrix(), "y": torch.ones(2)}, Matrix)
    assert type(batch["x"]) is Matrix
    assert type(batch["y"]) is np.ndarray
    twice = dlbridge.accepts("torch", returns="like")(lambda x: 2 * x)(own)
    assert type(twice) is Matrix
    assert twice.data.tolist() == [2, 4, 6]
    total = dlbridge.accepts("scipy", returns="like")(lambda x: x.sum(axis=0))(own)
    assert total.tolist() == [2, 1, 3]


def test_subclasses_and_sources_alone(register):
    class Own(Matrix):
        pass

    register("csr", Matrix, vars)
    own = Own(shape=(2, 3), data=matrix().data, indices=matrix().indices, indptr=matrix().indptr)
    assert dlbridge.convert(own, "torch").to_dense().tolist() == matrix().toarray().tolist()
    with pytest.raises(dlbridge.UnsupportedError, match=r"convert: to .*: was registered as a source only \(call reg"):
        dlbridge.convert(matrix(), Matrix)
    with pytest.raises(dlbridge.UnsupportedError) as caught:
        dlbridge.convert(own, "numpy")
    assert eval(caught.value.hint.removeprefix("pass ").partition(", or")[0], {
        "x": own, "dlbridge": dlbridge}).tolist() == matrix().toarray().tolist()
    register("csr", Matrix, vars, Matrix)
    assert type(dlbridge.convert(matrix(), Matrix)) is Matrix
    with pytest.raises(dlbridge.ConversionError, match=r"Matrix: to .*Own: is a class below .*Matrix, which was reg"):
        dlbridge.convert(matrix(), Own)
    assert dlbridge.explain(matrix(), Own).action == "refuse"
    register("csc", Matrix, vars, Matrix)               # the last one counts
    assert type(dlbridge.convert(matrix().tocsc(), Matrix)) is Matrix
    with pytest.raises(dlbridge.ConversionError, match=r"Matrix: form csr: is none that Matrix has; .* \(pass x.tocsc"):
        dlbridge.convert(matrix(), Matrix)


def test_a_class_whose_module_is_not_imported(register, monkeypatch):
    class Gone(Matrix):
        pass

    monkeypatch.setattr(Gone, "__module__", "gone.module")
    register("csr", Gone, vars, Gone)
    own = dlbridge.convert(matrix(), Gone)
    assert dlbridge.convert_tree([own], "torch")[0].to_dense().tolist() == matrix().toarray().tolist()


def test_what_functions_of_a_user_do_wrong(register):
    register("csr", Matrix, lambda array: {"data": array.data}, Matrix)
    own = Matrix(data=np.ones(1))
    with pytest.raises(dlbridge.ConversionError, match=r"csr: parts .*: are no dictionary of shape, data, indices"):
        dlbridge.convert(own, "torch")
    assert dlbridge.explain(own, "torch").action == "refuse"
    register("csr", Matrix, lambda array: array.nothing, Matrix)
    with pytest.raises(dlbridge.ConversionError, match=r"csr: take_apart .*Matrix: raised AttributeError"):
        dlbridge.convert(own, "torch")
    assert dlbridge.explain(own, "torch").action == "refuse"
    register("csr", Matrix, vars, lambda **parts: 1 / 0)
    with pytest.raises(dlbridge.ConversionError, match="Matrix: import ZeroDivisionError"):
        dlbridge.convert(matrix(), Matrix)
    wrong = {"shape": (2, 3), "data": np.ones(3), "indices": np.array([0, 1, 9]), "indptr": np.array([0, 1, 3])}
    with pytest.raises(dlbridge.ConversionError, match="csr: indices 9 at 2: is none of the 3 indices of a row"):
        dlbridge.convert(Matrix(**wrong), "torch")
    register("csr", Matrix, refuse, Matrix)
    with pytest.raises(dlbridge.ConversionError, match="leaf y: words of a user"):
        dlbridge.accepts("torch")(lambda y: y)(own)
    register("csr", Matrix, lambda array: Hostile(), Matrix)
    with pytest.raises(dlbridge.ConversionError, match=r"csr: take_apart .*Matrix: raised ZeroDivisionError"):
        dlbridge.convert(own, "torch")
    register("csr", Matrix, vars, Matrix)
    with pytest.raises(dlbridge.UnsupportedError, match="csr: part indices: source: type list: offers no array"):
        dlbridge.convert(Matrix(**{**wrong, "indices": [0, 1, 2]}), "torch")


@pytest.mark.parametrize(("arguments", "options", "message"), [
    (("dense", Matrix, vars), {}, "form 'dense': is none of coo, csr, "),
    ((["csr"], Matrix, vars), {}, r"form \['csr'\]: is none of"),
    (("csr", Matrix(), vars), {}, "array_type .*: is no class"),
    (("csr", Matrix, "vars"), {}, "take_apart 'vars': is not callable"),
    (("csr", Matrix, None), {}, "take_apart None: is not callable"),
    (("csr", Matrix, vars, 3), {}, "put_together 3: is not callable"),
    (("csr", Matrix, vars), {"coordinates": "both"}, "coordinates 'both': is none of"),
    (("csr", Matrix, vars), {"index_types": "int32"}, "index_types 'int32': is one string"),
    (("csr", Matrix, vars), {"index_types": ["int16"]}, r"index_types \['int16'\]: is not known"),
    (("csr", Matrix, vars), {"parts_of": "nothing"}, None),
    (("csr", Matrix, vars), {"parts_of": np}, "parts_of .*: is no name"),
    (("csr", Matrix, vars), {"coordinates": "rows"}, 'coordinates .*: are parts of "coo" alone'),
    (("masked", Matrix, vars), {}, "form 'masked': is none of"),
    (("csr", object, vars), {}, "array_type .*: is no class of yours"),
    (("csr", dlbridge.Tensor, vars), {}, "array_type .*: is no class of yours"),
    (("csr", OrderedDict, vars), {}, "array_type .*: is no class of yours"),
    (("csr", np.ndarray, vars), {}, "array_type .*: is of a library that dlbridge knows"),
])
def test_what_is_wrong_in_a_call(register, arguments, options, message):
    with pytest.raises((TypeError, ValueError, dlbridge.UnsupportedError),
                       match=f"register_form: {message}" if message else "to 'nothing'"):
        register(*arguments, **options)
    assert not REGISTERED


@in_child
def test_batches_for_a_device_are_put_together_where_they_are_used():
    import threading

    import numpy as np
    import scipy.sparse

    import dlbridge

    class Matrix:
        def __init__(self, **parts):
            self.__dict__.update(parts)
            self.thread = threading.get_ident()

    def apart(matrix):
        return {name: part for name, part in vars(matrix).items() if name != "thread"}

    def batches():
        data = np.ones(2)
        for number in range(3):
            data[:] = number
            yield Matrix(shape=(2, 2), data=data, indices=np.array([0, 1]), indptr=np.array([0, 1, 2]))

    dlbridge.register_form("csr", Matrix, apart, Matrix, parts_of="dlbridge")
    given = list(dlbridge.prefetch(batches(), Matrix, device="cuda"))
    again = list(dlbridge.prefetch(given, Matrix))
    for made in given, again:
        assert {matrix.thread for matrix in made} == {threading.get_ident()}
        assert {matrix.data.device for matrix in made} == {"cuda:0"}
        values = [dlbridge.convert(matrix.data, "numpy", device="cpu").tolist() for matrix in made]
        assert values == [[0, 0], [1, 1], [2, 2]]
    assert not {matrix.data.data_ptr for matrix in given} & {matrix.data.data_ptr for matrix in again}
    for same, matrix in zip(dlbridge.prefetch(given, Matrix, copy=False), given, strict=True):
        assert same is matrix
    [there] = dlbridge.prefetch([next(batches())], Matrix, device="cuda", copy=False)
    [here] = dlbridge.prefetch([there], Matrix, device="cpu", copy=False)
    assert (there.data.device, here.data.device) == ("cuda:0", "cpu")
    other = scipy.sparse.bsr_array(np.eye(4), blocksize=(2, 2))
    [(_, passed)] = dlbridge.prefetch([(there, other)], Matrix, device="cuda")
    assert passed is not other
    assert type(passed) is type(other)
    for keywords in {"device": "cuda"}, {}:
        [(matrix, one)] = dlbridge.prefetch([(given[1], given[1].data)], Matrix, **keywords)
        assert type(matrix) is Matrix
        assert type(one) is dlbridge.Tensor
        assert one.device == "cuda:0"
