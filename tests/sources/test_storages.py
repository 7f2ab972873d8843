"""torch puts other memory under a tensor, or resizes its storage: what was converted before stays as it was.

A result holds what ``tensor.numpy()`` holds: the storage, which keeps its size from then on. Each case runs in a child,
since memory that is gone ends the process. The tensors are large, so that freed memory is unmapped.
"""

import gc
import sys
import weakref

import numpy as np
import pytest
import torch
from support.children import in_child

import dlbridge

pytestmark = pytest.mark.needs("torch")

KINDS = ["torch.Tensor", "torch.nn.Parameter", "Special", "MoreSpecial", "Described"]
# How an array comes about; each keeps the memory of ``tensor``.
WAYS = {
    "numpy": 'dlbridge.convert(tensor, "numpy")',
    "detached": 'dlbridge.convert(tensor.requires_grad_(), "numpy", detach=True)',
    "asdlpack": "numpy.from_dlpack(dlbridge.asdlpack(tensor))",
    "to_dlpack": 'dlbridge.convert(dlbridge.to_dlpack(tensor, max_version=(1, 0)), "numpy")',
    "memoryview": 'dlbridge.convert(tensor, "memoryview")',
    "view of a view": 'dlbridge.convert(tensor[:][:], "numpy")',
    "tree": 'dlbridge.convert_tree([tensor], "numpy")[0]',
}
REPLACES = {
    "data": "tensor.data = torch.empty(0)",
    "data of a view": "tensor.view(10, -1).data = torch.empty(0)",
    "set": "tensor.detach().set_(torch.empty(0))",
    "module": "module = torch.nn.Module(); module.weight = tensor; module.half()",
    "gone": "del tensor",
}
RESIZES = {
    "storage": "tensor.untyped_storage().resize_(0)",
    "storage of a view": "tensor.detach()[5:].untyped_storage().resize_(0)",
    "resize": "tensor.detach().resize_(10 * COUNT)",
    "out": "torch.ones(10 * COUNT, out=tensor.detach())",
}


@in_child
def change_each(kinds, ways, changes, refused):
    """Convert every kind of tensor in every way, and change it in every way, which is refused or leaves the result."""
    import itertools

    import numpy  # noqa: F401 (ways and changes are made of them)
    import torch
    from sources.tensor_kinds import COUNT, Described, MoreSpecial, Special, is_kept, tensor_of  # noqa: F401

    import dlbridge  # noqa: F401

    for kind, way, change in itertools.product(kinds, ways, changes):
        tensor = tensor_of(eval(kind))
        if "module" in change and not isinstance(tensor, torch.nn.Parameter):
            continue
        array, error = eval(way), None
        try:
            exec(change)
        except RuntimeError as raised:
            error = raised
        assert ("not resizable" in str(error)) if refused else error is None, (kind, way, change, error)
        assert is_kept(array), (kind, way, change)


def test_memory_stays_when_a_tensor_gets_other_memory():
    change_each(kinds=KINDS, ways=list(WAYS.values()), changes=list(REPLACES.values()), refused=False)


def test_a_storage_that_is_shared_cannot_be_resized():
    change_each(kinds=KINDS, ways=list(WAYS.values()), changes=list(RESIZES.values()), refused=True)


@in_child
def test_tensors_that_may_lack_a_storage():
    import torch

    import dlbridge

    for tensor in (torch._efficientzerotensor(0), torch._to_functional_tensor(torch.zeros(0)), torch.empty(0)):
        assert dlbridge.convert(tensor, "numpy").shape == (0,)


@pytest.mark.parametrize("convert", [
    lambda tensor: dlbridge.convert(tensor, "numpy", copy=True),
    lambda tensor: dlbridge.convert(torch._neg_view(tensor), "numpy"),
    lambda tensor: dlbridge.explain(tensor, "numpy"),
    lambda tensor: dlbridge.convert(tensor, "torch"),
], ids=["copy", "copy that was needed", "explain", "itself"])
def test_a_tensor_whose_memory_is_not_shared_can_be_resized(convert):
    tensor = torch.zeros(3)
    convert(tensor)
    assert tensor.untyped_storage().resizable()
    tensor.resize_(1000)


def test_a_conversion_that_fails_leaves_the_storage():
    tensor = torch.zeros(3, requires_grad=True)
    before = sys.getrefcount(tensor)
    with pytest.raises(dlbridge.ConversionError):
        dlbridge.convert(tensor, "numpy")
    assert sys.getrefcount(tensor) == before
    assert tensor.untyped_storage().resizable()


class OwnExport(torch.Tensor):
    def __dlpack__(self, **keywords):
        return super().__dlpack__(**keywords)


@pytest.mark.parametrize("to", ["numpy", "dlbridge"])
@pytest.mark.parametrize("kind", [torch.Tensor, OwnExport])
def test_nothing_is_kept_once_the_result_is_gone(kind, to):
    tensor = torch.zeros(3).as_subclass(kind)
    gone = weakref.ref(tensor.untyped_storage())
    array = dlbridge.convert(tensor, to)
    del tensor
    gc.collect()
    np.asarray(array)[:] = 1
    assert gone() is not None
    del array
    gc.collect()
    assert gone() is None


def test_two_tensors_over_one_storage():
    tensor = torch.arange(6.0)
    first, second = dlbridge.convert(tensor, "numpy"), dlbridge.convert(tensor.view(2, 3)[1], "numpy")
    tensor.data = torch.zeros(1)
    first[3:] = 9
    np.testing.assert_array_equal(second, [9, 9, 9])


def test_a_subclass_without_a_storage_is_left_to_its_own_export():
    inner = torch.arange(3.0)

    class Delegating(torch.Tensor):
        def __dlpack__(self, **keywords):
            return inner.__dlpack__(**keywords)

        def untyped_storage(self):
            raise NotImplementedError

    array = dlbridge.convert(torch.zeros(3).as_subclass(Delegating), "numpy")
    np.testing.assert_array_equal(array, [0, 1, 2])


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RecursionError])
def test_an_interrupted_look_at_the_storage_loses_nothing(error):
    class Interrupted(torch.Tensor):
        def untyped_storage(self):
            raise error

    tensor = torch.zeros(3).as_subclass(Interrupted)
    gone = weakref.ref(torch.Tensor.untyped_storage(tensor))
    with pytest.raises(error):
        dlbridge.convert(tensor, "numpy")
    del tensor
    gc.collect()
    assert gone() is None
