"""The extension takes the arrays of every library, and gives an array of the same one."""

import numpy as np
import pytest
import running

jax = pytest.importorskip("jax.numpy")
torch = pytest.importorskip("torch")

SAMPLES = np.array([1, 2, 3, 4], "float32")


class Interface:
    """Has __array_interface__ alone."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


@pytest.mark.parametrize(("make", "kind"), [
    (np.asarray, np.ndarray), (torch.from_numpy, torch.Tensor), (jax.asarray, jax.ndarray), (Interface, np.ndarray),
    (lambda samples: bytes(samples.astype("u1")), np.ndarray), (lambda samples: samples.astype(">f8"), np.ndarray),
    (lambda samples: np.repeat(samples, 2)[::2], np.ndarray),
], ids=["numpy", "torch", "jax", "interface", "bytes", "big-endian", "strided"])
def test_every_library(make, kind):
    result = running.running_sum(make(SAMPLES))
    assert isinstance(result, kind)
    assert np.asarray(result).tolist() == [1, 3, 6, 10]


def test_the_file_is_for_every_python():
    assert ".abi3" in running.__file__ or running.__file__.endswith(".pyd")


@pytest.mark.parametrize(("samples", "said"), [
    (np.zeros((2, 2)), r"running_sum\(samples\): shape \(2, 2\): has 2 axes where 1 are wanted \(reshape it\)"),
    ("text", r"running_sum\(samples\): source: type str: offers no array protocol"),
    (np.zeros(2, "int64"), r"running_sum\(samples\): are neither float64"),
])
def test_errors_name_the_function(samples, said):
    with pytest.raises((BufferError, TypeError), match=said):
        running.running_sum(samples)
