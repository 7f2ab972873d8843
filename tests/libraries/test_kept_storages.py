"""Paddle's tensors keep the memory that they exported, whatever becomes of them. So nothing has to be held for them."""

import numpy as np
import paddle
import pytest

import dlbridge

CHANGES = {
    "data": lambda tensor: setattr(tensor, "data", paddle.zeros([2])),
    "resize_ to more": lambda tensor: tensor.resize_([400_000]),
    "resize_ to less": lambda tensor: tensor.resize_([1]),
    "set_": lambda tensor: tensor.set_(paddle.zeros([3])),
    "cast_": lambda tensor: tensor.cast_("float64"),
    "out": lambda tensor: paddle.add(paddle.zeros([400_000]), paddle.zeros([400_000]), out=tensor),
    "clear": lambda tensor: tensor._clear(),
    "clear_data": lambda tensor: tensor._clear_data(),
    "share_memory": lambda tensor: tensor._share_memory(),
    "delete": lambda tensor: None,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("to", ["numpy", "torch", "dlbridge"])
def test_a_tensor_cannot_take_the_memory_away(to, change):
    tensor = paddle.arange(200_000, dtype="float32")
    converted = dlbridge.convert(tensor, to)
    change(tensor)
    del tensor
    reused = [np.full(200_000, 7, "float32") for _ in range(8)] + [paddle.full([200_000], 7.0) for _ in range(8)]
    np.testing.assert_array_equal(np.asarray(converted), np.arange(200_000, dtype="float32"))
    del reused
