"""The extension takes the arrays of every library, and gives an array of the same one."""

import clamping
import numpy as np
import pytest

jax = pytest.importorskip("jax.numpy")
torch = pytest.importorskip("torch")

ARRAY = np.array([[0, 1, 2], [3, 4, 5]], "float32")
CLAMPED = [[1, 1, 2], [3, 3, 3]]


class Interface:
    """Has __array_interface__ alone."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


@pytest.mark.parametrize(("make", "kind"), [
    (np.asarray, np.ndarray), (torch.from_numpy, torch.Tensor), (jax.asarray, jax.ndarray), (Interface, np.ndarray),
    (lambda array: np.asfortranarray(array), np.ndarray), (lambda array: array.astype("u1"), np.ndarray),
    (lambda array: torch.from_numpy(np.repeat(array, 2, axis=1))[:, ::2], torch.Tensor),
], ids=["numpy", "torch", "jax", "interface", "Fortran order", "uint8", "strided"])
def test_every_library(make, kind):
    result = clamping.clamped(make(ARRAY), 1, 3)
    assert isinstance(result, kind)
    assert np.asarray(result).tolist() == CLAMPED


def test_bytes():
    assert clamping.clamped(bytes(range(6)), 1, 3).tolist() == [1, 1, 2, 3, 3, 3]


@pytest.mark.parametrize(("array", "said"), [
    ([1, 2], r"clamped\(array\): source: type list: offers no array protocol \(pass numpy.asarray\(x, .float32.\)\)"),
    (np.zeros(2), r"clamped\(array\): dtype float64: is none of float32, uint8"),
    (torch.zeros(2, requires_grad=True), r"clamped\(array\): torch: requires_grad True"),
])
def test_errors_name_the_function(array, said):
    with pytest.raises((BufferError, TypeError, ValueError), match=said):
        clamping.clamped(array, 0, 1)
