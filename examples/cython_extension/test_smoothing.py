"""The extension takes the arrays of every library, and gives an array of the same one."""

import numpy as np
import pytest
import smoothing

jax = pytest.importorskip("jax.numpy")
torch = pytest.importorskip("torch")

SIGNAL = np.array([0, 3, 6, 0, 9], "float32")
SMOOTHED = [1, 3, 3, 5, 6]


class Interface:
    """Has __array_interface__ alone."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


@pytest.mark.parametrize(("make", "kind"), [
    (np.asarray, np.ndarray), (torch.from_numpy, torch.Tensor), (jax.asarray, jax.ndarray), (Interface, np.ndarray),
    (lambda signal: bytes(signal.astype("u1")), np.ndarray), (lambda signal: signal.astype("f8"), np.ndarray),
    (lambda signal: np.repeat(signal, 2)[::2], np.ndarray), (lambda signal: signal[::-1].copy()[::-1], np.ndarray),
], ids=["numpy", "torch", "jax", "interface", "bytes", "float64", "strided", "backwards"])
def test_every_library(make, kind):
    result = smoothing.smoothed(make(SIGNAL))
    assert isinstance(result, kind)
    assert np.allclose(np.asarray(result), SMOOTHED)


def test_a_typed_memoryview():
    assert smoothing.total(torch.arange(4, dtype=torch.float64)) == 6
    with pytest.raises(BufferError, match=r"total\(signal\): dtype float32: is not float64"):
        smoothing.total(SIGNAL)


@pytest.mark.parametrize(("signal", "said"), [
    (np.zeros((2, 2)), r"smoothed\(signal\): shape \(2, 2\): has 2 axes where 1 are wanted \(reshape it\)"),
    ([1, 2], r"smoothed\(signal\): source: type list: offers no array protocol \(pass numpy.asarray\(x\)\)"),
    (np.zeros(2, "int64"), r"smoothed\(signal\): is neither of float64"),
    (torch.zeros(2, requires_grad=True), r"requires_grad True: .* \(pass x.detach\(\)\)"),
])
def test_errors_name_the_function(signal, said):
    with pytest.raises((BufferError, TypeError), match=said):
        smoothing.smoothed(signal)
