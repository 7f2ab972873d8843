"""Subclasses of torch.Tensor by other libraries, which keep something beside the memory of a tensor."""

import gc
import weakref

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

import dlbridge

AFFINE = torch.eye(4, dtype=torch.float64) * 2


def image():
    return MetaTensor(torch.arange(24.0).reshape(2, 3, 4), affine=AFFINE)


def test_the_memory_of_an_image_of_monai_is_shared():
    source = image()
    made = dlbridge.convert(source, "numpy", copy=False)
    assert made.ctypes.data == source.data_ptr()
    assert made.tolist() == source.tolist()
    assert dlbridge.explain(source, "numpy").protocol == "exchange_api"
    assert dlbridge.convert(source, "torch") is source
    assert dlbridge.convert_tree({"image": source}, "numpy")["image"].shape == (2, 3, 4)


def test_it_is_kept_as_long_as_the_result():
    source = image()
    reference = weakref.ref(source.untyped_storage())
    made = dlbridge.convert(source, "numpy")
    del source
    gc.collect()
    assert made[1, 2, 3] == 23
    del made
    gc.collect()
    assert reference() is None


def test_what_a_tensor_carries_is_asked():
    with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
        dlbridge.convert(MetaTensor(torch.ones(2, requires_grad=True)), "numpy")
    negated = MetaTensor(torch._neg_view(torch.arange(3.0)))
    assert dlbridge.convert(negated, "numpy").tolist() == [0, -1, -2]
    assert np.array_equal(dlbridge.convert(image()[..., ::2], "numpy"), image()[..., ::2].numpy())
