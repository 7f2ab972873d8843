"""Sparse arrays of every library that has some, into each other, and the page that says what is shared."""

import warnings

import anndata
import jax
import jax.experimental.sparse
import numpy as np
import pyarrow
import pytest
import scipy.sparse
import sparse
import torch
from support.tools import load_tool

import dlbridge
from dlbridge.libraries.library import finder_of_form, library_of_type

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta", "ignore:Sparse invariant checks")
page = load_tool("pages/forms_page")
LIBRARIES = page.having(page.FORMS)
PAIRS = [(form, source, to) for form in page.FORMS for source in LIBRARIES for to in LIBRARIES
         if source != to and form in LIBRARIES[source].forms and form in LIBRARIES[to].forms]


def dense(array):
    if isinstance(array, torch.Tensor):
        return array.to_dense().numpy()
    if hasattr(array, "to_tensor"):
        return array.to_tensor().to_numpy()
    return np.asarray(array.toarray() if hasattr(array, "toarray") else array.todense())


@pytest.mark.parametrize(("form", "source", "to"), PAIRS)
def test_each_into_each_other(form, source, to):
    first = page.matrix(form)
    before = dlbridge.convert(first, source)
    after = dlbridge.convert(before, to)
    assert form_of(LIBRARIES[to], after) == form
    assert dense(after).tolist() == dense(first).tolist()
    again = dlbridge.convert(after, source, copy=True)
    assert dense(again).tolist() == dense(first).tolist()


def test_the_page_says_what_is_shared():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: python tools/pages forms"


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_a_dense_array_is_told_works(name):
    """The code of each form, of a dense array and of another form, gives an array of that form."""
    names = {"dlbridge": dlbridge, "scipy": scipy, "sparse": sparse, "jax": jax, "pyarrow": pyarrow, "torch": torch,
             "blocksize": (2, 2)}
    values = np.kron(np.eye(2), np.ones((2, 2))).astype("float32")
    library = LIBRARIES[name]
    forms = {form: known for form, known in library.forms.items() if form in page.FORMS}
    for form, known in forms.items():
        made = eval(known.of_dense, {**names, "x": values})
        assert form_of(library, made) == form
        assert dense(made).tolist() == values.tolist()
        assert np.asarray(eval(known.dense, {**names, "x": made})).tolist() == values.tolist()
        for other in set(forms) - {form, "bsr", "bsc"}:        # torch makes blocks of dense tensors alone
            source = eval(library.forms[other].of_dense, {**names, "x": values})
            assert form_of(library, eval(known.sparse.made, {**names, "x": source})) == form


def form_of(library, array):
    assert library_of_type(type(array)) is library
    return finder_of_form(type(array))(array)


# ---- sparse ----------------------------------------------------------------------------------------------------------

def test_sparse_wants_coordinates_in_order():
    unsorted = scipy.sparse.coo_array((np.array([1, 2, 4], "f4"), ([1, 0, 1], [0, 0, 0])), (2, 2))
    expected = unsorted.toarray().tolist()
    assert dlbridge.convert(unsorted, "sparse").todense().tolist() == expected
    plan = dlbridge.explain(unsorted, "sparse")
    assert {name: part.action for name, part in plan.leaves.items()} == dict.fromkeys(
        ("data", "coords[0]", "coords[1]"), "copy")
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(unsorted, "sparse", copy=False)
    tensor = dlbridge.convert(unsorted, "torch")
    plan = dlbridge.explain(tensor, "sparse")
    assert "elements are out of order" in plan.reason
    with dlbridge.watch() as copies:
        assert dlbridge.convert(tensor, "sparse").todense().tolist() == expected
    assert "out of order" in str(copies)
    with pytest.raises(dlbridge.CopyRequiredError, match="part data: elements are out of order"):
        dlbridge.convert(tensor, "sparse", copy=False)
    ordered = tensor.coalesce()
    assert np.shares_memory(dlbridge.convert(ordered, "sparse", copy=False).data, ordered.values().numpy())
    assert unsorted.coords[0].tolist() == [1, 0, 1]         # of the source nothing was sorted


def test_what_sparse_has_beyond_the_others_is_refused():
    for array, message in (
        (sparse.COO.from_numpy(np.eye(2), fill_value=1), r"sparse: fill_value 1.0: is not 0.*x.todense\(\)"),
        (sparse.GCXS.from_numpy(np.ones((2, 2, 2))), r'form gcxs: is none that torch has \(pass x.asformat\("coo"'),
        (sparse.DOK((2, 2)), r"torch: form dok: .*x.asformat"),
        (sparse.GCXS.from_numpy(np.ones(3)), "torch: form gcxs"),
    ):
        with pytest.raises(dlbridge.ConversionError, match=message) as caught:
            dlbridge.convert(array, "torch")
        given = dlbridge.convert(eval(caught.value.hint.removeprefix("pass "), {"x": array}), "torch")
        assert given.to_dense().tolist() == array.todense().tolist()
    three = sparse.COO.from_numpy(np.arange(8.0).reshape(2, 2, 2))
    assert dlbridge.convert(three, "torch").to_dense().tolist() == three.todense().tolist()
    assert dlbridge.convert(three, sparse.COO) is dlbridge.convert(three, "sparse") is three
    wrong = scipy.sparse.csr_array(np.eye(2))
    wrong.indices[0] = 9
    with pytest.raises(dlbridge.ConversionError, match=r"^sparse: import ValueError: .*out of bounds"):
        dlbridge.convert(wrong, "sparse")
    assert dlbridge.explain(wrong, "sparse").action == "refuse"


@pytest.mark.parametrize("to", ["pyarrow", "sparse"])
@pytest.mark.parametrize("source", ["scipy", "torch", "jax"])
def test_what_believes_in_an_order_is_given_one(to, source):
    """pyarrow would take the last of several values, and sparse would not find those out of order."""
    names = {"dlbridge": dlbridge, "jax": jax}
    for indices in [1, 1, 0], [3, 1, 0]:
        rows = scipy.sparse.csr_array((np.array([1, 2, 3], "f4"), indices, [0, 3, 3]), (2, 4))
        before = dlbridge.convert(rows, source)
        with pytest.raises(dlbridge.ConversionError, match=f"^{to}: indices of csr: are out of order") as caught:
            dlbridge.convert(before, to)
        assert dlbridge.explain(before, to).reason == caught.value.reason
        ordered = eval(caught.value.hint.removeprefix("pass "), {**names, "x": before})
        after = dlbridge.convert(ordered, to)
        assert dense(after).tolist() == dense(rows).tolist()
        if to == "sparse":
            assert [after[0, column] for column in range(4)] == dense(rows)[0].tolist()


@pytest.mark.parametrize("dtype", ["float16", ">f8", ">i4"])
@pytest.mark.parametrize("to", ["sparse", scipy.sparse.csr_matrix, "torch", "pyarrow"], ids=str)
def test_explain_knows_what_a_library_has_not(to, dtype):
    array = page.matrix("csr")
    if dtype == ">i4":
        array.indices, array.indptr = array.indices.astype(dtype), array.indptr.astype(dtype)
    else:
        array.data = array.data.astype(dtype)
    expected = dlbridge.explain(array, to).action
    try:
        made = dlbridge.convert(array, to)
    except dlbridge.ConversionError:
        assert expected == "refuse"
    else:
        assert expected in ("share", "copy")
        assert dense(made).tolist() == dense(page.matrix("csr")).tolist()


def test_a_flag_that_is_wrong_is_not_believed():
    array = scipy.sparse.coo_array((np.array([1, 2, 3], "f4"), ([0, 0, 0], [0, 1, 2])), (3, 4))
    array.sum_duplicates()
    array.coords = np.array([2, 0, 0]), np.array([1, 1, 1])
    assert dlbridge.convert(array, "sparse").todense()[0, 1] == 5


@pytest.mark.parametrize("name", ["jax", "pyarrow", "sparse", "scipy", "torch"])
def test_results_are_like_arrays_of_each_library(name):
    @dlbridge.accepts("scipy", returns="like")
    def twice(x):
        return 2 * x

    before = dlbridge.convert(page.matrix("csr"), name)
    after = twice(before)
    assert type(after) is type(before)
    assert form_of(LIBRARIES[name], after) == "csr"
    assert dense(after).tolist() == (2 * dense(before)).tolist()


# ---- AnnData ---------------------------------------------------------------------------------------------------------

def test_the_matrix_of_an_anndata_goes_to_torch_and_back():
    table = anndata.AnnData(page.matrix("csr"))
    tensor = dlbridge.convert(table.X, "torch")
    assert tensor.values().data_ptr() == table.X.data.ctypes.data
    expected = dense(table.X) * 2
    table.X = dlbridge.convert(tensor * 2, "scipy")
    assert dense(table.X).tolist() == expected.tolist()
    assert dense(table[:, 1].X).tolist() == expected[:, [1]].tolist()


# ---- pyarrow ---------------------------------------------------------------------------------------------------------

def test_matrices_of_pyarrow_do_not_change():
    matrix = page.matrix("csr")
    made = dlbridge.convert(matrix, "pyarrow")
    matrix.data[:] = 9
    assert made.to_tensor().to_numpy().max() == 1
    back = dlbridge.convert(made, "scipy")
    assert not any(part.flags.writeable for part in (back.data, back.indices, back.indptr))
    tensor = dlbridge.convert(made, "torch")
    tensor.values()[0] = 7
    assert made.to_tensor().to_numpy().max() == 1
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(matrix, "pyarrow", copy=False)
    shared = dlbridge.convert(matrix, "pyarrow", readonly="share")
    assert np.shares_memory(shared.to_numpy()[0], matrix.data)


def test_coordinates_of_several_types_become_integers():
    array = scipy.sparse.coo_array((2, 2), dtype="f4")
    array.data, array.coords = np.ones(1, "f4"), (np.array([1], "u8"), np.array([0], "i8"))
    assert dlbridge.convert(array, "sparse").coords.dtype == "int64"


def test_older_arrays_of_jax_are_refused():
    for kind in jax.experimental.sparse.CSR, jax.experimental.sparse.COO:
        array = kind.fromdense(jax.numpy.eye(2))
        with pytest.raises(dlbridge.UnsupportedError) as caught:
            dlbridge.convert(array, "scipy")
        given = eval(caught.value.hint.removeprefix("pass "), {"x": array})
        assert dlbridge.convert(given, "numpy").tolist() == np.eye(2).tolist()


def test_coordinates_give_no_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dlbridge.convert(page.matrix("coo"), "torch")
    assert caught == []
