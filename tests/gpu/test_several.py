"""Arrays that are several arrays, on a GPU: their parts are shared there, and their results go back there."""

import numpy as np
import pytest

import dlbridge

scipy = pytest.importorskip("scipy.sparse")

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")]
HERE = scipy.csr_array(np.kron(np.eye(3), np.ones((2, 1))).astype("f4"))


def pointers(matrix):
    """The addresses of the parts of a CSR matrix, in the order data, indices, offsets."""
    if hasattr(matrix, "crow_indices"):
        return [part.data_ptr() for part in (matrix.values(), matrix.col_indices(), matrix.crow_indices())]
    parts = matrix.data, matrix.indices, matrix.indptr
    return [part.data.ptr if hasattr(part.data, "ptr") else part.unsafe_buffer_pointer() for part in parts]


def on_host(matrix):
    return dlbridge.convert(matrix, "scipy", device="cpu").toarray().tolist()


@pytest.mark.parametrize("source", ["cupy", "torch"])
@pytest.mark.parametrize("target", ["cupy", "torch", "jax"])
def test_sparse_arrays_share_their_parts(source, target, library):
    library(source), library(target)
    there = dlbridge.convert(HERE, source, device="cuda")
    assert on_host(there) == HERE.toarray().tolist()
    made = dlbridge.convert(there, target, readonly="share")
    assert pointers(made) == pointers(there)
    assert on_host(made) == HERE.toarray().tolist()
    assert dlbridge.explain(there, target, readonly="share").action == ("return" if source == target else "share")
    copied = dlbridge.convert(there, target, copy=True)
    assert not {*pointers(copied)} & {*pointers(there)}
    assert on_host(copied) == HERE.toarray().tolist()


@pytest.mark.parametrize("form", ["coo", "csc"])
def test_other_forms_of_cupy(form, library):
    library("cupy")
    there = dlbridge.convert(HERE.asformat(form), "cupy", device="cuda")
    assert there.format == form
    assert on_host(there) == HERE.toarray().tolist()


def test_results_are_like_the_first_argument_on_its_device(library):
    library("torch")
    there = dlbridge.convert(HERE, "torch", device="cuda")
    made = dlbridge.accepts("scipy", returns="like", device="cpu")(lambda matrix: matrix * 2)(there)
    assert made.is_cuda
    assert on_host(made) == (2 * HERE).toarray().tolist()


@pytest.mark.parametrize("target", ["torch", "jax", "cupy"])
def test_batches_for_a_gpu(target, library):
    library(target)

    def batches():
        matrix = HERE.copy()
        for number in range(3):
            matrix.data[:] = number
            yield matrix

    given = list(dlbridge.prefetch(batches(), target, device="cuda"))
    again = list(dlbridge.prefetch(given, target))
    for place, made in (*enumerate(given), *enumerate(again)):
        assert on_host(made) == (HERE * place).toarray().tolist()
        assert str(dlbridge.asdlpack(made.values() if target == "torch" else made.data).device).startswith("cuda")


def test_masked_tensors(library):
    library("torch")
    import torch

    masked = np.ma.MaskedArray([1.0, 2.0], [True, False])
    made = dlbridge.convert(masked, torch.masked.MaskedTensor, device="cuda")
    assert made.get_data().is_cuda
    assert made.get_mask().is_cuda
    assert dlbridge.convert(made, np.ma.MaskedArray, device="cpu").tolist() == [None, 2]
