"""Sparse arrays from library to library: parts are shared, or copied as explain() says, and indices are looked at."""

import gc
import threading
import weakref

import numpy as np
import pytest
from fake_driver.harness import in_child

import dlbridge

pytestmark = [
    pytest.mark.needs("scipy", "torch", "jax"),
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]
FORMS = ("coo", "csr", "csc", "bsr")


def scipy_sparse():
    import scipy.sparse
    return scipy.sparse


def jax_sparse():
    import jax.experimental.sparse
    return jax.experimental.sparse


def matrix(form="csr", shape=(6, 8), seed=0, dtype="float32", index_type="int32"):
    """A matrix with an element in about every third place."""
    generator = np.random.default_rng(seed)
    dense = (generator.integers(1, 9, shape) * (generator.random(shape) < 0.3)).astype(dtype)
    made = scipy_sparse().coo_array(dense)
    made = scipy_sparse().bsr_array(made, blocksize=(2, 2)) if form == "bsr" else made.asformat(form)
    for name, part in parts_of(made).items():
        if name != "data" and form != "coo":
            setattr(made, name, part.astype(index_type))
    if form == "coo":
        made.coords = tuple(axis.astype(index_type) for axis in made.coords)
    return made


def parts_of(array):
    """The parts by name, as ndarrays over their memory."""
    if hasattr(array, "format"):
        named = {name: getattr(array, name) for name in ("data", "indices", "indptr") if hasattr(array, name)}
        return named | {f"coords[{axis}]": each for axis, each in enumerate(getattr(array, "coords", ()))
                        if array.format == "coo"}
    if hasattr(array, "layout"):
        form = str(array.layout).rpartition("_")[2]
        if form == "coo":
            return {"data": array._values().numpy(), "coords": array._indices().numpy()}
        columns = form.endswith("c")
        return {"data": array.values().numpy(),
                "indices": (array.row_indices() if columns else array.col_indices()).numpy(),
                "indptr": (array.ccol_indices() if columns else array.crow_indices()).numpy()}
    return {name: np.asarray(getattr(array, name)) for name in ("data", "indices", "indptr") if hasattr(array, name)}


def dense(array):
    for name in "toarray", "to_dense", "todense":
        if hasattr(array, name):
            return np.asarray(getattr(array, name)())
    return np.asarray(array)


def shared(before, after):
    """Which parts of one are memory of the other."""
    return {name for name, part in parts_of(after).items()
            if any(np.shares_memory(part, each) for each in parts_of(before).values())}


# ---- values and memory -----------------------------------------------------------------------------------------------

SHAPES = [(6, 8), (0, 4), (4, 0), (1, 8), (8, 1), (2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex128"])
def test_to_torch_and_back(form, shape, dtype):
    if form == "bsr" and any(extent % 2 or not extent for extent in shape):
        shape = (4, 6)
    before = matrix(form, shape, dtype=dtype)
    there = dlbridge.convert(before, "torch")
    assert str(there.layout) == f"torch.sparse_{form}"
    assert dense(there).tolist() == dense(before).tolist()
    back = dlbridge.convert(there, "scipy")
    assert type(back) is type(before)
    assert back.shape == before.shape
    for name, part in parts_of(back).items():
        assert part.tolist() == parts_of(before)[name].tolist()
    if before.nnz:
        assert "data" in shared(before, back)
        if form != "coo":
            assert shared(before, there) == shared(before, back) == {"data", "indices", "indptr"}


@pytest.mark.parametrize("index_type", ["int32", "int64"])
def test_indices_keep_their_width_where_they_can(index_type):
    before = matrix(index_type=index_type)
    there = dlbridge.convert(before, "torch")
    assert str(there.col_indices().dtype) == f"torch.{index_type}"
    back = dlbridge.convert(there, "scipy")
    assert back.indices.dtype == back.indptr.dtype == index_type
    assert shared(before, back) == {"data", "indices", "indptr"}


def test_coordinates_are_copied_where_they_lie_otherwise():
    before = matrix("coo")
    there = dlbridge.convert(before, "torch")
    assert shared(before, there) == {"data"}
    back = dlbridge.convert(there, "scipy")
    assert shared(there, back) == {"data", "coords[0]", "coords[1]"}
    assert back.coords[0].dtype == "int64"


@pytest.mark.parametrize("form", ["coo", "csr"])
def test_to_jax_and_back(form):
    before = matrix(form)
    there = dlbridge.convert(before, "jax")
    assert type(there) is {"coo": jax_sparse().BCOO, "csr": jax_sparse().BCSR}[form]
    assert dense(there).tolist() == dense(before).tolist()
    back = dlbridge.convert(there, "scipy")
    assert back.toarray().tolist() == dense(before).tolist()
    assert shared(there, back) == set(parts_of(back))
    assert not back.data.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        back.data[:] = 0
    assert dlbridge.convert(there, "jax") is there
    tensor = dlbridge.convert(there, "torch", readonly="share")
    assert dense(tensor).tolist() == dense(before).tolist()
    assert "data" in shared(there, tensor)
    assert shared(there, dlbridge.convert(there, "torch")) == set()


@pytest.mark.parametrize("seed", range(20))
def test_random_matrices_bit_for_bit(seed):
    generator = np.random.default_rng(seed)
    count, shape = int(generator.integers(0, 40)), tuple(map(int, generator.integers(1, 9, 2)))
    values = generator.integers(0, 2**32, count, dtype="uint32").view("float32")        # NaNs as well
    coords = tuple(generator.integers(0, extent, count) for extent in shape)             # unsorted, with duplicates
    before = scipy_sparse().coo_array((values, coords), shape)
    there = dlbridge.convert(before, "torch")
    assert not there.is_coalesced()
    back = dlbridge.convert(there, "scipy")
    assert back.data.tobytes() == values.tobytes()
    assert [axis.tolist() for axis in back.coords] == [axis.tolist() for axis in coords]
    offsets = np.linspace(0, count, shape[0] + 1).astype("i4")
    rows = scipy_sparse().csr_array((values, coords[1], offsets), shape)
    again = dlbridge.convert(dlbridge.convert(rows, "torch"), "scipy")
    assert again.data.tobytes() == values.tobytes()
    assert again.indices.tolist() == coords[1].tolist()


def test_more_axes():
    import torch

    before = scipy_sparse().coo_array((np.ones(3, "f4"), ([0, 1, 1], [0, 2, 1], [3, 0, 2])), (2, 3, 4))
    there = dlbridge.convert(before, "torch")
    assert there.to_dense().tolist() == before.toarray().tolist()
    assert dlbridge.convert(there, "scipy").toarray().tolist() == before.toarray().tolist()
    one = scipy_sparse().coo_array((np.ones(2, "f4"), ([0, 3],)), (5,))
    assert dlbridge.convert(one, "torch").to_dense().tolist() == [1, 0, 0, 1, 0]
    hybrid = torch.sparse_coo_tensor([[0, 2]], [[1.0, 2.0], [3.0, 4.0]], (4, 2))
    assert dense(dlbridge.convert(hybrid, "jax")).tolist() == hybrid.to_dense().tolist()
    with pytest.raises(dlbridge.ConversionError, match=r"shape \(4, 2\): has 1 axes without indices \(pass x.to_dense"):
        dlbridge.convert(hybrid, "scipy")


def test_room_that_is_not_used_is_left_out():
    before = matrix()
    count = before.nnz
    before.data = np.concatenate([before.data, np.full(3, 9, "f4")])
    before.indices = np.concatenate([before.indices, np.full(3, 1000, "i4")])
    there = dlbridge.convert(before, "torch")
    assert there.values().shape == (count,)
    assert there.values().data_ptr() == before.data.ctypes.data


def test_the_memory_lives_as_long_as_the_result():
    before = matrix()
    expected, data = dense(before).tolist(), weakref.ref(before.data)
    there = dlbridge.convert(before, "torch")
    del before
    gc.collect()
    assert data() is not None
    assert dense(there).tolist() == expected
    there.values()[0] = 7
    assert data()[0] == 7
    del there
    gc.collect()
    assert data() is None


# ---- which type ------------------------------------------------------------------------------------------------------

def test_what_is_asked_for_says_the_type():
    import torch

    sparse, array = scipy_sparse(), matrix()
    there = dlbridge.convert(array, torch.sparse_csr)
    assert there.layout is torch.sparse_csr
    assert dlbridge.convert(there, torch.sparse_csr) is there
    assert dlbridge.convert(there, "torch") is there
    assert type(dlbridge.convert(there, sparse)) is sparse.csr_array
    assert type(dlbridge.convert(there, sparse.csr_array)) is sparse.csr_array
    assert type(dlbridge.convert(there, sparse.csr_matrix)) is sparse.csr_matrix
    assert type(dlbridge.convert(there, sparse.csr_matrix(array))) is sparse.csr_matrix
    assert type(dlbridge.convert(array, sparse.csr_matrix)) is sparse.csr_matrix
    assert dlbridge.convert(array, sparse.csr_array) is dlbridge.convert(array, "scipy") is array
    assert shared(array, dlbridge.convert(array, sparse.csr_matrix)) == {"data", "indices", "indptr"}


def test_an_example_does_not_live_on():
    sparse = scipy_sparse()
    example = sparse.csr_matrix(matrix())
    gone = weakref.ref(example)
    dlbridge.convert(dlbridge.convert(matrix(), "torch"), example)
    del example
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_has_memory_of_its_own(form):
    before = matrix(form)
    for to in "torch", "scipy":
        assert shared(before, dlbridge.convert(before, to, copy=True)) == set()
    there = dlbridge.convert(before, "torch")
    again = dlbridge.convert(there, "torch", copy=True)
    assert again.layout is there.layout
    assert shared(there, again) == set()
    assert dense(again).tolist() == dense(before).tolist()


def test_what_a_target_has_not_is_refused_with_a_hint():
    import jax
    import scipy
    import torch

    sparse, array = scipy_sparse(), matrix()
    values, eye = dense(array), np.eye(2)
    grown = dlbridge.convert(array, "torch").requires_grad_()
    blocks = dlbridge.convert(array, "torch").to_sparse_bsr((2, 2))
    lost = "part data: torch: requires_grad True: would be lost"
    for source, to, message, expected in (
        (array, "numpy", "offers no array protocol (pass x.toarray()", values),
        (array.tocsc(), "jax", "none that jax has; cupy, pyarrow, scipy, sparse, torch have it (pass x.tocsr())",
         values),
        (array, torch.sparse_csc, "torch: form csr: is not csc (pass x.tocsc())", values),
        (array, jax_sparse().BCOO, "jax: form csr: is not coo (pass x.tocoo())", values),
        (blocks, "jax", "jax: form bsr: is none that jax has; scipy, torch have it (pass x.to_dense())", values),
        (blocks, torch.sparse_csc, "torch: form bsr: is not csc (pass x.to_dense())", values),
        (torch.eye(4).to_sparse(sparse_dim=1), torch.sparse_csr, "is not csr (pass x.to_dense())", np.eye(4)),
        (array.todok(), "torch", "torch: form dok: is none that torch has (pass x.tocsr())", values),
        (eye, "scipy", 'has only sparse ones (pass scipy.sparse.csr_array(dlbridge.convert(x, "numpy")))', eye),
        (torch.eye(2), "scipy", "has only sparse ones (pass scipy.sparse.csr_array(", eye),
        (eye, sparse.csc_array, '(pass scipy.sparse.csc_array(dlbridge.convert(x, "numpy")))', eye),
        (eye, torch.sparse_coo, '(pass dlbridge.convert(x, "torch").to_sparse())', eye),
        (jax.numpy.eye(2), jax_sparse().BCSR, "(pass jax.experimental.sparse.BCSR.fromdense(", eye),
        (torch.eye(2).to_sparse().requires_grad_(), "scipy", lost, eye),
        (grown, "jax", lost, values),
    ):
        with pytest.raises(dlbridge.DLBridgeError) as caught:
            dlbridge.convert(source, to)
        assert message in str(caught.value)
        assert dlbridge.explain(source, to).action == "refuse"
        hint = caught.value.hint.removeprefix("pass ").replace("detach=True, or ", "").partition(", or ")[0]
        names = {"x": source, "dlbridge": dlbridge, "scipy": scipy, "jax": jax, "torch": torch}
        told = eval(hint, names)
        if to is torch.sparse_csr or (source is blocks and to is torch.sparse_csc):
            told = eval(torch_form(to).of_dense, {"x": told, "dlbridge": dlbridge})
        given = dlbridge.convert(told, to)
        assert np.array_equal(dense(given), expected)


def torch_form(layout):
    return dlbridge.libraries.library.library_named("torch").forms[str(layout).rpartition("_")[2]]


def test_a_gradient_is_left_behind_if_that_is_asked_for():
    import torch

    tensor = torch.eye(3).to_sparse().requires_grad_()
    back = dlbridge.convert(tensor, "scipy", detach=True)
    assert back.toarray().tolist() == np.eye(3).tolist()
    assert tensor.requires_grad


# ---- what is stated --------------------------------------------------------------------------------------------------

def test_what_a_source_states_of_its_indices_is_stated_again():
    sparse = scipy_sparse()
    before = matrix("coo")
    assert before.has_canonical_format
    assert dlbridge.convert(before, "torch").is_coalesced()
    unsorted = sparse.coo_array((np.ones(2, "f4"), ([1, 0], [0, 0])), (2, 2))
    assert not dlbridge.convert(unsorted, "torch").is_coalesced()
    unsorted.sum_duplicates()
    there = dlbridge.convert(unsorted, "torch")
    assert there.is_coalesced()
    assert dlbridge.convert(there, "scipy").has_canonical_format
    assert not dlbridge.convert(dlbridge.convert(sparse.coo_array(
        (np.ones(2, "f4"), ([1, 0], [0, 0])), (2, 2)), "torch"), "scipy").has_canonical_format
    known = matrix()
    assert known.has_canonical_format
    rows = dlbridge.convert(known, "jax")
    assert (rows.indices_sorted, rows.unique_indices) == (True, True)
    wrong = matrix()
    wrong.indices[:] = wrong.indices[::-1].copy()
    wrong.has_sorted_indices = False
    mixed = dlbridge.convert(wrong, "jax")
    assert (mixed.indices_sorted, mixed.unique_indices) == (False, False)
    back = dlbridge.convert(rows, "scipy")
    assert back._has_sorted_indices
    assert not hasattr(dlbridge.convert(dlbridge.convert(matrix(), "torch"), "scipy"), "_has_sorted_indices")


@pytest.mark.parametrize("form", FORMS)
def test_a_source_is_asked_for_nothing_that_it_would_remember(form):
    """SciPy sorts no indices that it once found sorted."""
    before = matrix(form)
    known = dict(vars(before))
    for to in {"bsr": ("torch",), "csc": ("torch",)}.get(form, ("torch", "jax")):
        dlbridge.convert(before, to)
        dlbridge.explain(before, to)
    assert vars(before).keys() == known.keys()
    assert all(vars(before)[name] is known[name] for name in known)


# ---- indices that are wrong ------------------------------------------------------------------------------------------

def set_in(name, place, value):
    def change(array):
        part = getattr(array, name).copy()
        part[place] = value
        setattr(array, name, part)
    return change


def shortened(name):
    return lambda array: setattr(array, name, getattr(array, name)[:-1])


def as_type(name, dtype):
    return lambda array: setattr(array, name, getattr(array, name).astype(dtype))


HOSTILE = {
    "an index beyond": (set_in("indices", 2, 1_000_000), "csr: indices 1000000 at 2: is none of the 8 "),
    "a negative index": (set_in("indices", 0, -1), "csr: indices -1 at 0"),
    "the first beyond": (set_in("indices", -1, 8), "csr: indices 8 at "),
    "an offset that falls": (set_in("indptr", 2, 0), "csr: indptr 0 at 2: is below the offset before"),
    "no 0 first": (set_in("indptr", 0, 1), "csr: indptr 1 at 0: is not 0"),
    "an offset beyond": (set_in("indptr", -1, 99), "csr: indptr 99 at 6: is beyond the "),
    "a negative offset": (set_in("indptr", -1, -1), "csr: indptr -1 at 6"),
    "too few offsets": (shortened("indptr"), r"csr: indptr (6,): is not the shape for 6 rows, which is (7,)"),
    "too few indices": (shortened("indices"), "csr: indices (14,): is not the shape for 15 elements"),
    "too few elements": (shortened("data"), "csr: indices (15,): is not the shape for 14 elements"),
    "floats": (as_type("indices", "f4"), "csr: indices float32: is no type of indices"),
    "bools": (as_type("indptr", "?"), "csr: indptr bool: is no type of indices"),
    "objects": (as_type("data", "O"), "csr: part data: "),
    "two axes": (lambda array: setattr(array, "indices", array.indices[None]), "csr: indices (1, 15): is not of one"),
    "no axis": (lambda array: setattr(array, "indptr", np.array(3)), "csr: indptr (): is the shape of a number"),
    "rows of data": (lambda array: setattr(array, "data", array.data[:, None]), "csr: data (15, 1): is not the shape"),
}


@pytest.mark.parametrize("to", ["torch", "jax"])
@pytest.mark.parametrize("case", HOSTILE)
def test_a_part_that_is_wrong_is_named(case, to):
    change, message = HOSTILE[case]
    array = matrix(seed=1)
    assert array.nnz == 15
    change(array)
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        dlbridge.convert(array, to)
    assert str(caught.value).startswith(message)
    plan = dlbridge.explain(array, to)
    assert (plan.action, plan.reason) == ("refuse", caught.value.reason)


@pytest.mark.parametrize("to", ["torch", "jax"])
def test_coordinates_of_no_axis_are_refused(to):
    import torch

    array = scipy_sparse().coo_array(np.eye(3, dtype="f4"))
    array.coords, array.data = (), np.ones((3, 3, 3), "f4")
    number = torch.sparse_coo_tensor(torch.empty((0, 1), dtype=torch.long), torch.tensor([1.0]), ())
    for src in (array, *([number] if to != "torch" else ())):
        with pytest.raises(dlbridge.ConversionError, match=r"has \d axes without indices") as caught:
            dlbridge.convert(src, to)
        assert dlbridge.explain(src, to).reason == caught.value.reason


@pytest.mark.parametrize("shape", [(-1, 8), (6, -8), (2**62, 8), (6, 2**70), ("6", 8), (6.0, 8), None, ()], ids=str)
@pytest.mark.parametrize("to", ["torch", "jax"])
def test_a_shape_that_is_none_is_refused(shape, to):
    class Odd(scipy_sparse().csr_array):
        @property
        def shape(self):
            return shape

    array = matrix()
    odd = Odd.__new__(Odd)
    odd.__dict__.update(vars(array))
    with pytest.raises(dlbridge.ConversionError, match="csr: shape"):
        dlbridge.convert(odd, to)
    empty = Odd.__new__(Odd)
    empty.__dict__.update({name: part[:0] for name, part in vars(array).items() if isinstance(part, np.ndarray)})
    with pytest.raises(dlbridge.ConversionError):
        dlbridge.convert(empty, to)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_each_index_is_looked_at(dtype, step):
    """At each place of a long array, of each type, also backwards and with gaps."""
    most = np.iinfo(dtype).max
    bound = min(int(most), 100)
    for place in 0, 1, 1023, 1024, 1025, 2999:
        for wrong in {bound, int(most), np.iinfo(dtype).min} - {0}:
            memory = np.zeros(3000 * abs(step), dtype)
            memory[::step][place] = wrong
            array = scipy_sparse().coo_array((1, bound), dtype="f4")
            array.data, array.coords = np.ones(3000, "f4"), (np.zeros(3000, "i4"), memory[::step])
            with pytest.raises(dlbridge.ConversionError, match=f"coo: coords {wrong} at {place}: is none of the "):
                dlbridge.convert(array, "torch")
            memory[::step][place] = bound - 1
            assert dlbridge.convert(array, "torch").to_dense()[0, bound - 1] == 1


def test_indices_of_the_other_byte_order_and_unaligned_ones_are_looked_at():
    for make in (lambda part: part.astype(part.dtype.newbyteorder()),
                 lambda part: np.frombuffer(b"x" + part.tobytes(), "u1")[1:].view(part.dtype)):
        array = matrix()
        array.indices = make(array.indices)
        assert dense(dlbridge.convert(array, "torch", readonly="share")).tolist() == dense(matrix()).tolist()
        wrong = matrix()
        wrong.indices[3] = 99
        array.indices = make(wrong.indices)
        with pytest.raises(dlbridge.ConversionError, match="indices 99 at 3"):
            dlbridge.convert(array, "torch")


def test_tensors_and_arrays_of_jax_are_looked_at():
    import jax
    import torch

    tensor = torch.sparse_csr_tensor([0, 1], [1_000_000], [1.0], (1, 4), check_invariants=False)
    with pytest.raises(dlbridge.ConversionError, match="csr: indices 1000000 at 0"):
        dlbridge.convert(tensor, "scipy")
    coordinates = torch.sparse_coo_tensor([[0], [9]], [1.0], (1, 4), check_invariants=False)
    with pytest.raises(dlbridge.ConversionError, match="coo: coords 9 at 0: is none of the 4 indices of axis 1"):
        dlbridge.convert(coordinates, "scipy")
    padded = jax_sparse().BCOO.fromdense(jax.numpy.eye(2), nse=5)
    with pytest.raises(dlbridge.ConversionError, match="coo: coords 2 at 2") as caught:
        dlbridge.convert(padded, "scipy")
    given = eval(caught.value.hint.removeprefix("pass ").partition(", ")[0], {"x": padded})
    assert dlbridge.convert(given, "scipy").toarray().tolist() == np.eye(2).tolist()


@in_child
def test_a_tensor_that_would_end_the_process_is_refused():
    import numpy as np
    import pytest
    import scipy.sparse
    import torch

    import dlbridge

    rows = scipy.sparse.csr_array(np.eye(4, dtype="f4"))
    rows.indices = np.full(4, 2**31 - 1, "i4")
    with pytest.raises(dlbridge.ConversionError, match="indices 2147483647"):
        dlbridge.convert(rows, "torch") @ torch.ones(4, 4)


def test_shapes_beyond_int32():
    """Indices that int32 cannot hold stay int64, and are refused where a library has no int64."""
    import jax

    sparse = scipy_sparse()
    far = sparse.coo_array((np.ones(1, "f4"), ([0], [2**40])), (2, 2**41))
    there = dlbridge.convert(far, "torch")
    assert there._indices()[1, 0] == 2**40
    with jax.enable_x64(False), pytest.raises(
            dlbridge.ConversionError, match=r"shape \(2, 2199023255552\): is too large for .* \(call jax"):
        dlbridge.convert(far, "jax")
    with jax.enable_x64(True):
        assert dlbridge.convert(far, "jax").indices.dtype == "int64"
    rows = sparse.csr_array((np.ones(1, "f4"), np.array([2**40]), np.array([0, 1])), (1, 2**41))
    assert dlbridge.convert(dlbridge.convert(rows, "torch"), "scipy").indices.tolist() == [2**40]
    with jax.enable_x64(False), pytest.raises(
            dlbridge.ConversionError, match=r"csr: shape \(1, 2199023255552\): is too large for"):
        dlbridge.convert(rows, "jax")


def test_indices_of_types_that_few_libraries_have():
    array = matrix()
    array.indices = array.indices.astype("u8")
    made = dlbridge.convert(array, "jax")
    assert (made.indices_sorted, made.unique_indices) == (False, False)
    assert dense(made).tolist() == dense(matrix()).tolist()
    assert dlbridge.convert(array, scipy_sparse().csr_matrix).indices.dtype == "int32"


@pytest.mark.parametrize("to", ["jax", "torch"])
def test_indices_of_two_widths_are_copied_once(to):
    array = matrix()
    array.indices = array.indices.astype("i8")
    with dlbridge.watch() as copies:
        there = dlbridge.convert(array, to, readonly="share")
    assert dense(there).tolist() == dense(array).tolist()
    assert [copy.reason for copy in copies if "indices" in copy.reason] == ["indices of int64 become int32"]


# ---- what is said of it ----------------------------------------------------------------------------------------------

def test_explain_has_a_line_for_each_part():
    array = matrix()
    plan = dlbridge.explain(array, "torch")
    assert (plan.action, plan.reason, plan.shape, plan.dtype) == ("share", "", (6, 8), "float32")
    assert [(name, part.action) for name, part in plan.leaves.items()] == [
        ("data", "share"), ("indices", "share"), ("indptr", "share")]
    assert "  part     indices: share int32 " in str(plan)
    plan = dlbridge.explain(array.tocoo(), "torch")
    assert {name: part.action for name, part in plan.leaves.items()} == {
        "data": "share", "coords[0]": "copy", "coords[1]": "copy"}
    assert plan.reason == "of coords[0], coords[1]: indices of int32 become int64"
    plan = dlbridge.explain(array, "jax", copy=False)
    assert plan.action == "refuse"
    assert dlbridge.explain(array, "scipy").action == "return"
    plan = dlbridge.explain({"x": array}, "torch")
    assert plan.leaves["['x']"].action == "share"
    assert "indptr" in dlbridge.explain(array, "torch")._repr_html_()


@pytest.mark.parametrize("form", ["coo", "csr"])
@pytest.mark.parametrize("index_type", ["int32", "int64"])
@pytest.mark.parametrize(("source", "to"), [("scipy", "torch"), ("scipy", "jax"), ("torch", "scipy"), ("torch", "jax"),
                                           ("jax", "scipy"), ("jax", "torch")])
@pytest.mark.parametrize("readonly", ["copy", "share"])
def test_explain_says_which_parts_are_shared(source, to, form, index_type, readonly):
    array = matrix(form, index_type=index_type)
    before = array if source == "scipy" else dlbridge.convert(array, source)
    plan = dlbridge.explain(before, to, readonly=readonly)
    after = dlbridge.convert(before, to, readonly=readonly)
    said = {name for name, part in plan.leaves.items() if part.action != "copy"}
    found = {name.partition("[")[0] for name in shared(before, after)}
    assert {name.partition("[")[0] for name in said} == found
    with dlbridge.watch() as copies:
        dlbridge.convert(before, to, readonly=readonly)
    if to != "jax":         # which copies what is not aligned, by itself
        assert bool(copies) == (found < {name.partition("[")[0] for name in parts_of(after)})


@pytest.mark.parametrize("keywords", [{"order": "C"}, {"device": "cpu"}, {"copy": True}, {}], ids=str)
def test_arrays_of_the_targets_own(keywords):
    import torch

    sparse = scipy_sparse()
    weight = torch.eye(3, requires_grad=True)
    for own, to in (
            (matrix(), "scipy"), (matrix("coo"), "scipy"), (matrix().todok(), "scipy"), (weight.to_sparse(), "torch"),
            (sparse.csr_array(np.arange(4.0)), "scipy"), (torch.ones(2, 3, 4).to_sparse_csr(), "torch"),
            (dlbridge.convert(matrix(), "jax"), "jax"), (dlbridge.convert(matrix(), "torch"), torch.sparse_csr)):
        made = dlbridge.convert(own, to, **keywords)
        plan = dlbridge.explain(own, to, **keywords)
        assert (made is own, plan.action) == ((False, "copy") if "copy" in keywords else (True, "return"))
        assert type(made) is type(own)
        if getattr(own, "requires_grad", False):
            made.to_dense().sum().backward()
            assert weight.grad.tolist() == np.eye(3).tolist()


def test_parameters_and_subclasses_of_tensors_are_asked_for_as_ever():
    import torch

    weight, plain = torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)
    for to in weight, torch.nn.Parameter, torch.Tensor, plain:
        assert dlbridge.convert(plain, to) is plain
        assert dlbridge.convert(weight, to) is weight

    @dlbridge.accepts("torch", returns="like")
    def twice(x):
        return 2 * x

    assert twice(weight).requires_grad


def test_user_may_let_torch_check():
    import torch

    unsorted = matrix()
    unsorted.indices[:] = unsorted.indices[::-1].copy()
    dlbridge.convert(unsorted, "torch")
    with torch.sparse.check_sparse_tensor_invariants(), pytest.raises(dlbridge.ConversionError, match="torch: import"):
        dlbridge.convert(unsorted, "torch")


def test_functions_of_scipy_take_matrices_and_vectors():
    import torch

    product = dlbridge.accepts("scipy", returns="like")(lambda rows, vector: rows @ vector)
    rows, vector = dlbridge.convert(matrix(), "torch"), torch.arange(8, dtype=torch.float32)
    assert torch.equal(product(rows, vector), rows @ vector)
    made = dlbridge.convert_tree({"rows": rows, "vector": vector}, "scipy")
    assert type(made["vector"]) is np.ndarray


def test_types_that_are_not_of_the_form():
    import jax
    import torch

    sparse, array = scipy_sparse(), matrix()
    assert type(dlbridge.convert(array, sparse.spmatrix)) is sparse.csr_matrix
    assert dlbridge.convert(array, sparse.sparray) is array
    assert type(dlbridge.convert(sparse.csr_matrix(array), sparse.sparray)) is sparse.csr_array
    assert dlbridge.convert(array, torch.Tensor).layout is torch.sparse_csr
    for to in sparse.lil_array, sparse.dok_matrix, jax.Array:
        with pytest.raises(dlbridge.ConversionError, match=r"is no type of csr \(pass x.toarray\(\)\)"):
            dlbridge.convert(array, to)
        assert dlbridge.explain(array, to).action == "refuse"


def test_a_source_that_is_registered_for_a_type_counts():
    class Own(scipy_sparse().csr_array):
        pass

    array = Own(matrix())
    assert str(dlbridge.convert(array, "torch").layout) == "torch.sparse_csr"
    dlbridge.register_source(Own, lambda array: array.data)
    assert dlbridge.convert(array, "torch").tolist() == array.data.tolist()
    assert dlbridge.convert_tree([array], "torch")[0].tolist() == array.data.tolist()


def test_what_is_for_one_array_is_refused():
    import torch

    out = torch.zeros(6, 8)
    for keywords, field in (({"dtype": "uint8"}, "dtype uint8"), ({"shape": (-1,)}, r"shape \(-1,\)"),
                            ({"dtype": "uint8", "shape": 3}, "dtype uint8"), ({"out": out}, "out torch.")):
        with pytest.raises(dlbridge.ConversionError, match=f"convert: {field}.*: is for one array, and .* is several"):
            dlbridge.convert(matrix(), "torch", **keywords)
        assert dlbridge.explain(matrix(), "torch", **keywords).action == "refuse"


@pytest.mark.parametrize(("batch", "refused"), [
    ("torch.ones(2, 3, 4).to_sparse_csr()", "torch: shape (2, 3, 4)"),
    ("torch.ones(2, 2, 3, 4).to_sparse_csc()", "torch: shape (2, 2, 3, 4)"),
    ("jax_sparse().BCOO.fromdense(np.ones((2, 3), 'f4'), n_batch=1)", "coo: n_batch 1"),
    ("jax_sparse().BCOO.fromdense(np.ones((2, 2, 3), 'f4'), n_batch=2)", "coo: n_batch 2"),
    ("jax_sparse().BCSR.fromdense(np.ones((2, 3, 4), 'f4'), n_batch=1)", "csr: n_batch 1"),
])
def test_batches_of_matrices_are_refused(batch, refused):
    import torch

    batch = eval(batch, {"torch": torch, "jax_sparse": jax_sparse, "np": np})
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert(batch, "scipy")
    assert str(caught.value).startswith(refused)
    one = eval(caught.value.hint.removeprefix("pass its matrices one by one, ").removeprefix(
        "pass its arrays one by one, "), {"x": batch})
    assert dense(dlbridge.convert(one, "scipy")).min() == 1


def test_a_gradient_of_what_is_not_coalesced_is_refused():
    import torch

    uncoalesced = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
        dlbridge.convert(uncoalesced, "scipy")
    assert dlbridge.convert(uncoalesced, "scipy", detach=True).toarray()[0, 1] == 3


def test_padding_of_jax_is_left_out_without_a_copy():
    padded = jax_sparse().BCSR.fromdense(np.diag(np.ones(3, "f4")), nse=9)
    made = dlbridge.convert(padded, "scipy", copy=False)
    assert made.data.tolist() == [1, 1, 1]
    assert shared(padded, made) == {"data", "indices", "indptr"}


def test_copy_false_is_kept():
    array = matrix("coo")
    with pytest.raises(dlbridge.CopyRequiredError, match="coo: part coords: indices of int32 become int64, which is a"):
        dlbridge.convert(array, "torch", copy=False)
    array = matrix()
    assert shared(array, dlbridge.convert(array, "torch", copy=False)) == {"data", "indices", "indptr"}


# ---- batches and functions -------------------------------------------------------------------------------------------

def test_batches_have_them_converted_where_the_target_has_such_arrays():
    import jax
    import torch

    padded = jax_sparse().BCOO.fromdense(jax.numpy.eye(3))
    batch = {"scipy": matrix(), "jax": padded, "torch": torch.eye(3).to_sparse(), "dok": matrix().todok()}
    made = dlbridge.convert_tree(batch, "torch")
    assert [str(made[name].layout) for name in ("scipy", "jax", "torch")] == [
        "torch.sparse_csr", "torch.sparse_coo", "torch.sparse_coo"]
    assert made["dok"] is batch["dok"]
    for to in "numpy", "dlbridge":
        assert all(value is batch[name] for name, value in dlbridge.convert_tree(batch, to).items())
    with pytest.raises(dlbridge.ConversionError, match=r"leaf \['dok'\]: torch: form dok"):
        dlbridge.convert_tree(batch, "torch", others="raise")
    with pytest.raises(dlbridge.UnsupportedError, match=r"leaf \['scipy'\]"):
        dlbridge.convert_tree(batch, "numpy", others="raise")
    [given] = dlbridge.prefetch([batch], "torch")
    assert shared(batch["scipy"], given["scipy"]) == set()
    assert dense(given["scipy"]).tolist() == dense(batch["scipy"]).tolist()
    wrong = matrix()
    wrong.indices[0] = 99
    with pytest.raises(dlbridge.ConversionError, match=r"leaf \['x'\]: csr: indices 99"):
        dlbridge.convert_tree({"x": wrong}, "torch")


def test_functions_take_them_and_give_them_back():
    import scipy.sparse as sparse

    @dlbridge.accepts("torch", returns="like")
    def twice(x, columns=False):
        return (x * 2).to_sparse_csc() if columns else x * 2

    @dlbridge.accepts("torch", returns="like")
    def both(x):
        return {"sum": x.to_dense().sum(1), "sparse": x}

    assert type(twice(matrix())) is sparse.csr_array
    assert type(twice(sparse.csr_matrix(matrix()))) is sparse.csr_matrix
    assert type(twice(sparse.csr_matrix(matrix()), columns=True)) is sparse.csc_matrix
    assert twice(matrix()).toarray().tolist() == (2 * matrix()).toarray().tolist()
    made = both(matrix())
    assert type(made["sum"]) is np.ndarray
    assert type(made["sparse"]) is sparse.csr_array

    @dlbridge.accepts("numpy")
    def kind(x):
        return type(x)

    assert kind(matrix()) is sparse.csr_array


def test_a_result_is_like_the_first_argument():
    """It has its type, also that of a user's own; what is asked for by its form is not handed on in another one."""
    import torch

    sparse = scipy_sparse()

    class Own(sparse.csr_matrix):
        pass

    twice = dlbridge.accepts("torch", returns="like")(lambda x: 2 * x)
    assert type(twice(Own(np.eye(2)))) is Own
    assert type(dlbridge.convert(torch.eye(2).to_sparse_csr(), Own)) is Own
    made = dlbridge.accepts("numpy", returns="like")(lambda x: matrix())
    for like, kind in (np.eye(2), sparse.csr_array), (torch.eye(2), torch.Tensor), (
            jax_sparse().BCOO.fromdense(np.eye(2)).todense(), jax_sparse().BCSR):
        result = made(like)
        assert isinstance(result, kind)
        assert dense(result).tolist() == dense(matrix()).tolist()
        if kind is not sparse.csr_array:
            assert isinstance(dlbridge.convert(matrix(), like), kind)
    with pytest.raises(dlbridge.ConversionError, match="csr: is not csc"):
        dlbridge.convert_tree({"x": matrix()}, torch.sparse_csc)


def test_batches_for_scipy_may_have_dense_arrays():
    import torch

    [made] = dlbridge.prefetch([{"x": matrix(), "y": torch.ones(3)}], "scipy")
    assert type(made["x"]) is scipy_sparse().csr_array
    assert isinstance(made["y"], np.ndarray)
    assert made["y"].tolist() == [1, 1, 1]


def test_what_is_in_several_places_is_copied_once():
    array = matrix("coo")
    first, second = dlbridge.convert_tree([array, array], "torch")
    assert first is second


def of_device(array):
    """The same matrix with parts of a fake device."""
    from fake_driver.producers import Interface, driver

    def there(part):
        return Interface(driver.filled(0, part.tobytes(), "device"), part.shape, part.dtype.str)

    if array.format == "coo":
        array.data, array.coords = there(array.data), tuple(map(there, array.coords))
    else:
        array.data, array.indices, array.indptr = map(there, (array.data, array.indices, array.indptr))
    return array


@in_child
def test_what_is_fetched_from_a_device_is_looked_at_on_the_host():
    import warnings

    import numpy as np
    import pytest
    import scipy.sparse
    from forms.test_sparse import of_device

    import dlbridge

    warnings.simplefilter("ignore")
    dense = np.kron(np.eye(3), np.ones((2, 1))).astype("f4")
    for form in "csr", "csc", "coo":
        there = of_device(scipy.sparse.csr_array(dense).asformat(form))
        for to in "torch", scipy.sparse.spmatrix:
            made = dlbridge.convert(there, to, device="cpu")
            made = made.to_dense().numpy() if to == "torch" else made.toarray()
            assert made.tolist() == dense.tolist()
            assert dlbridge.explain(there, to, device="cpu").action == "copy"
        for to, copy in ("scipy", None), ("scipy", True), *([("torch", True), ("jax", None)] if form == "csr" else ()):
            with dlbridge.watch() as copies:
                dlbridge.convert(there, to, device="cpu", copy=copy)
            assert sum(copy.times for copy in copies) == len(dlbridge.explain(there, to, device="cpu").leaves)
    with pytest.raises(dlbridge.CopyRequiredError, match="csr: part data: numpy: device"):
        dlbridge.convert(of_device(scipy.sparse.csr_array(dense)), "torch", device="cpu", copy=False)
    wrong = scipy.sparse.csr_array(dense)
    wrong.indices[2] = 9
    with pytest.raises(dlbridge.ConversionError, match="indices 9 at 2"):
        dlbridge.convert(of_device(wrong), "torch", device="cpu")


@in_child
def test_parts_on_several_devices_are_refused():
    import numpy as np
    import pytest
    import scipy.sparse
    from fake_driver.producers import Interface, driver

    import dlbridge

    rows = scipy.sparse.csr_array(np.eye(4, dtype="f4"))
    start = driver.filled(0, rows.indices.tobytes(), "device")
    rows.indices = Interface(start, (4,), "<i4")
    with pytest.raises(dlbridge.ConversionError, match=r"csr: indices on cuda:0: is on another device than the data"):
        dlbridge.convert(rows, "torch")
    assert dlbridge.explain(rows, "torch").action == "refuse"


def test_threads():
    array, expected, wrong = matrix(shape=(50, 60)), dense(matrix(shape=(50, 60))), []

    def work():
        for _ in range(200):
            there = dlbridge.convert(array, "torch")
            if not np.array_equal(dense(dlbridge.convert(there, "scipy")), expected):
                wrong.append(there)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
