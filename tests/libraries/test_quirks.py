"""Every row of what libraries lack for the libraries that only the extra "all" has."""

import numpy as np
import pytest
from copies.test_layouts import ELSEWHERE, EXERCISES, elsewhere
from support.children import in_child
from support.lacking import LACKS
from support.quirk_rows import OF_ALL

import dlbridge
from dlbridge.libraries.library import library_named

ROWS = [quirk for quirk in LACKS
        if not quirk.fact.below and quirk.library in OF_ALL and quirk.lacks not in ELSEWHERE]
EXERCISES = EXERCISES | {"SHARING": lambda: EXERCISES["ANY_ORDER"]().T}


def given(quirk):
    """With one axis where the library has no more, so that it is the quirk that stops it."""
    array = EXERCISES[quirk.lacks]()
    most_axes = library_named(quirk.library).most_axes
    if most_axes is None or most_axes.value > 1 or quirk.lacks in ("most_axes", "ANY_ORDER"):
        return array
    if quirk.lacks == "OTHER_DEVICES":
        return elsewhere((4,))
    if isinstance(array, np.ndarray) and array.ndim == 2:
        return array[:, 0] if quirk.lacks.endswith("STRIDES") else array[0]
    return array


def test_every_library_has_rows():
    assert {quirk.library for quirk in ROWS} == OF_ALL


@pytest.mark.parametrize("quirk", ROWS, ids=lambda quirk: f"{quirk.library}-{quirk.lacks}")
def test_every_quirk_stops_a_conversion(quirk):
    expected = dlbridge.DeviceError if quirk.lacks == "OTHER_DEVICES" else dlbridge.ConversionError
    with pytest.raises(expected, match=r"\(.+\)$"):
        dlbridge.convert(given(quirk), quirk.library, copy=False)


def test_batches_of_mlx_are_computed_where_they_were_asked_for():
    import mlx.core as mx

    late = mx.ones((3,)) + 1
    [given] = dlbridge.prefetch([late], "mlx")
    late[0] = 5
    assert given.tolist() == [2, 2, 2]


@in_child()
def test_memory_of_mlx_that_a_write_replaces():
    import mlx.core as mx
    import numpy as np

    import dlbridge

    for convert in (lambda x: dlbridge.convert(x, "numpy"), dlbridge.asdlpack):
        source = mx.arange(1_000_000, dtype=mx.float32) + 0
        mx.eval(source)
        made = convert(source)
        source[:] = mx.zeros((1_000_000,))
        mx.eval(source)
        mx.clear_cache()
        others = [mx.full((1_000_000,), 7.0) for _ in range(4)]
        mx.eval(others)
        assert np.asarray(made)[:3].tolist() == [0, 1, 2]


def test_a_gradient_of_paddle_goes_through_a_batch():
    import paddle

    weight = paddle.ones([3])
    weight.stop_gradient = False
    [given] = dlbridge.prefetch([weight], "paddle")
    given.sum().backward()
    assert weight.grad.tolist() == [1, 1, 1]
    [given] = dlbridge.prefetch([weight], "paddle", detach=True)
    assert given.stop_gradient
    assert given.data_ptr() != weight.data_ptr()
