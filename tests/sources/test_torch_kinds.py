"""torch's tensors whose export does not say all: dtypes below a byte, lazy clones, wrappers, memory of Metal."""

import gc
import warnings

import numpy as np
import pytest
import torch
import torch.utils.dlpack
from support.children import in_child
from support.optional import params

import dlbridge

pytestmark = pytest.mark.needs("torch 2.10")


class Described(torch.Tensor):
    pass


class Special(torch.nn.Parameter):
    pass


def as_special(tensor):
    return Special(tensor, requires_grad=False)


def as_described(tensor):
    return tensor.as_subclass(Described)


KINDS = pytest.mark.parametrize("kind", [lambda tensor: tensor, as_special, as_described],
                                ids=["Tensor", "Parameter", "subclass"])
WAYS = pytest.mark.parametrize("convert", [
    lambda x: dlbridge.convert(x, "numpy", copy=False),
    lambda x: np.from_dlpack(dlbridge.asdlpack(x)),
    lambda x: np.asarray(dlbridge.convert(x, "memoryview")),
    lambda x: dlbridge.convert(dlbridge.to_dlpack(x, max_version=(1, 0)), "numpy"),
    lambda x: dlbridge.convert_tree([x], "numpy")[0],
    dlbridge.accepts("numpy")(lambda x: x),
], ids=["convert", "Tensor", "memoryview", "capsule", "convert_tree", "accepts"])


def is_lazy(tensor):
    return torch._C._is_cow_tensor(tensor)


# ---- dtypes ----------------------------------------------------------------------------------------------------------

BELOW_A_BYTE = [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)]
LACKING = ["bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"]


@WAYS
@KINDS
@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_types_below_a_byte_do_not_pass_for_bytes(name, kind, convert):
    x = kind(torch.arange(4, dtype=torch.uint8).view(getattr(torch, name)))
    with pytest.raises(dlbridge.ConversionError, match=f"dtype torch.{name}: ") as raised:
        convert(x)
    assert dlbridge.explain(x, "numpy").hint == raised.value.hint == "pass x.view(torch.uint8)"
    assert convert(x.view(torch.uint8)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", BELOW_A_BYTE + LACKING)
def test_types_that_no_export_has_are_refused(name):
    x = torch.empty(4, dtype=getattr(torch, name))
    with pytest.raises(dlbridge.ConversionError, match=f"dtype torch.{name}: ") as raised:
        dlbridge.convert(x, "numpy")
    assert x.untyped_storage().resizable()
    assert dlbridge.convert(eval(raised.value.hint.removeprefix("pass ")), "numpy").nbytes == x.nbytes


@KINDS
@pytest.mark.parametrize("name", ["int8", "uint8", "bool"])
def test_types_of_a_byte_are_shared(name, kind):
    x = kind(torch.ones(4, dtype=getattr(torch, name)))
    array = dlbridge.convert(x, "numpy", copy=False)
    assert (array.dtype, array.ctypes.data) == (name, x.data_ptr())


# ---- lazy clones -----------------------------------------------------------------------------------------------------

@WAYS
@KINDS
def test_a_lazy_clone_is_shared_and_stays_as_it_is(kind, convert):
    source = torch.arange(6.0)
    x = kind(torch._lazy_clone(source).view(2, 3)[1])
    address = torch._C._data_address(x) + 12        # of the storage
    assert dlbridge.explain(x, "numpy").action == "share"
    array = convert(x)
    assert is_lazy(x)
    assert array.ctypes.data == address
    assert not array.flags.writeable
    x.zero_()
    source.zero_()
    del x, source
    gc.collect()
    [torch.full((6,), 9.0) for _ in range(100)]     # freed memory is used again
    assert array.tolist() == [3, 4, 5]


def test_a_lazy_clone_is_copied_for_what_cannot_be_told():
    x = torch._lazy_clone(torch.arange(3.0))
    with pytest.raises(dlbridge.CopyRequiredError, match="readonly"):
        dlbridge.convert(dlbridge.asdlpack(x), "torch", copy=False)
    dlbridge.convert(dlbridge.asdlpack(x), "torch").zero_()
    assert dlbridge.explain(x, "dlpack").action == "copy"
    array = dlbridge.convert(x, "numpy", copy=True)
    array[:] = 0
    assert is_lazy(x)
    assert x.tolist() == [0, 1, 2]


def test_what_a_lazy_clone_carries_is_asked():
    with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
        dlbridge.convert(torch._lazy_clone(torch.zeros(2, requires_grad=True)), "numpy")
    x = torch._lazy_clone(torch.zeros(2, requires_grad=True))
    assert dlbridge.convert(x, "numpy", detach=True).tolist() == [0, 0]
    x = torch._neg_view(torch._lazy_clone(torch.arange(3.0)))
    assert dlbridge.convert(x, "numpy").tolist() == [0, -1, -2]
    x = torch._lazy_clone(torch.zeros(2, dtype=torch.uint8)).view(torch.uint4)
    with pytest.raises(dlbridge.ConversionError, match=r"dtype torch\.uint4"):
        dlbridge.convert(x, "numpy")
    x = torch._lazy_clone(torch.zeros(2, dtype=torch.bfloat16))
    assert dlbridge.asdlpack(x).dtype == "bfloat16"
    assert is_lazy(x)


def test_a_lazy_clone_is_itself_where_it_is_wanted():
    x = torch._lazy_clone(torch.arange(3.0))
    for keywords in ({}, {"device": "cpu"}, {"to": torch.zeros(1)}):
        assert dlbridge.convert(x, **({"to": "torch"} | keywords)) is x
    assert is_lazy(x)
    assert dlbridge.asdlpack(x).owner is x


@in_child(warnings="ignore")
def test_lazy_clones_are_seen_without_the_internals():
    import torch

    import dlbridge

    # The examples do not agree, so Python is asked.
    asked = torch._C._is_cow_tensor
    torch._C._is_cow_tensor = lambda tensor: True
    dlbridge.convert(torch.zeros(1), "dlbridge")
    calls = []
    torch._C._is_cow_tensor = lambda tensor: calls.append(tensor) or asked(tensor)
    x = torch._lazy_clone(torch.arange(3.0))
    array = dlbridge.convert(x, "numpy", copy=False)
    assert calls
    assert asked(x)
    assert (array.tolist(), array.flags.writeable) == ([0, 1, 2], False)


# ---- subclasses that answer for themselves ---------------------------------------------------------------------------

class Counting(torch.Tensor):
    """Its class says what torch.Tensor does not know."""

    asked = 0

    def __dlpack__(self, **keywords):
        Counting.asked += 1
        return super().__dlpack__(**keywords)


class Frozen(torch.Tensor):
    @property
    def requires_grad(self):
        return True


def test_a_subclass_that_adds_nothing_is_read_by_the_table_of_torch():
    assert dlbridge.explain(as_described(torch.ones(2)), "numpy").protocol == "exchange_api"
    assert dlbridge.explain(as_special(torch.ones(2)), "numpy").protocol == "exchange_api"


def test_a_subclass_that_answers_for_itself_is_asked():
    dlbridge.convert(torch.ones(2).as_subclass(Counting), "numpy")
    assert Counting.asked == 1
    with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
        dlbridge.convert(torch.ones(2).as_subclass(Frozen), "numpy")


# ---- wrappers --------------------------------------------------------------------------------------------------------

class StandIn(torch.Tensor):
    """torch's own wrapper came with torch 2.15. This one says as little, and has its name."""

    def __new__(cls, tensor):
        return tensor.as_subclass(cls)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} is not allowed")


StandIn.__name__, StandIn.__module__ = "ReadOnlyTensorWrapper", "torch.utils.dlpack"


def wrappers():
    own = getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None)
    return params([StandIn] if own is None or not isinstance(own, type) else [StandIn, own])


@WAYS
@pytest.mark.parametrize("wrapper", wrappers())
def test_a_wrapped_tensor_is_read_only(wrapper, convert):
    tensor = torch.arange(3.0)
    array = convert(wrapper(tensor))
    assert array.ctypes.data == tensor.data_ptr()
    assert not array.flags.writeable
    plan = dlbridge.explain(wrapper(tensor), "numpy")
    assert (plan.action, plan.readonly) == ("share", True)
    tensor.data = torch.zeros(1)
    assert array.tolist() == [0, 1, 2]


@pytest.mark.parametrize("wrapper", wrappers())
def test_what_a_wrapped_tensor_carries_is_asked(wrapper):
    with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
        dlbridge.convert(wrapper(torch.nn.Parameter(torch.zeros(2))), "numpy")
    assert dlbridge.convert(wrapper(torch._neg_view(torch.arange(2.0))), "numpy").tolist() == [0, -1]
    x = torch._lazy_clone(torch.arange(3.0))
    assert dlbridge.convert(wrapper(x), "numpy", copy=False).tolist() == [0, 1, 2]
    assert is_lazy(x)
    assert dlbridge.explain(wrapper(torch.zeros(2)), "dlpack").action == "copy"
    wrapped = wrapper(torch.zeros(2))
    assert dlbridge.convert(wrapped, "torch") is wrapped


# Tensors without memory of their own values: what makes one, and for each hint the code and what it gives.
WITHOUT_VALUES = {
    "masked": (
        lambda: torch.masked.masked_tensor(torch.tensor([1.0, 2.0]), torch.tensor([True, False])),
        "pass x.to_tensor(0), or x.get_data() if the mask does not matter",
        {"x.to_tensor(0)": [1, 0], "x.get_data()": [1, 2]}),
    "uninitialized parameter": (
        torch.nn.UninitializedParameter, "call its module once, or x.materialize(shape), before", {}),
    "uninitialized buffer": (
        torch.nn.UninitializedBuffer, "call its module once, or x.materialize(shape), before",
        {"(x.materialize((2,)), x.fill_(3))[1]": [3, 3]}),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize(("make", "hint", "codes"), WITHOUT_VALUES.values(), ids=WITHOUT_VALUES)
@pytest.mark.parametrize("keywords", [{}, {"detach": True}, {"device": "cpu"}, {"copy": True}], ids=str)
def test_a_tensor_without_values_of_its_own_says_what_to_do(make, hint, codes, keywords):
    x = make()
    for target in ("numpy", "dlbridge", "memoryview"):
        assert dlbridge.explain(x, target, **keywords).hint == hint
        with pytest.raises(dlbridge.UnsupportedError) as raised:
            dlbridge.convert_tree([x], target, **keywords)
        assert raised.value.hint == hint
    assert dlbridge.convert(x, "torch") is x
    if hasattr(x, "get_mask"):          # its device is that of its values, and as an example it names its type
        assert dlbridge.convert(x, "torch", device="cpu") is x
        assert type(dlbridge.convert(np.zeros(2), x)) is type(x)
    else:
        assert dlbridge.explain(x, "torch", device="cpu").hint == hint
        assert dlbridge.explain(np.zeros(2), x).hint == hint
    for code, values in codes.items():
        assert dlbridge.convert(eval(code, {"x": x}), "numpy").tolist() == values


@torch.fx.wrap
def doubled_by_numpy(x):
    return torch.from_numpy(dlbridge.convert(x, "numpy") * 2)


def test_a_proxy_of_fx_says_what_to_do():
    def refused(x):
        for target in ("numpy", "torch"):
            plan = dlbridge.explain(x, target)
            assert (plan.action, plan.hint.partition(" of ")[0]) == (
                "refuse", "call what needs its values outside")
            with pytest.raises(dlbridge.UnsupportedError, match=r"torch\.fx\.wrap"):
                dlbridge.convert_tree([x], target)
        return x

    torch.fx.symbolic_trace(refused)
    assert torch.fx.symbolic_trace(lambda x: doubled_by_numpy(x))(torch.ones(2)).tolist() == [2, 2]


@in_child(warnings="ignore")
def test_the_hint_of_a_tensor_that_is_on_its_way():
    import pytest
    import torch
    import torch.distributed as distributed
    from torch.distributed import _functional_collectives as collectives

    import dlbridge

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    x = collectives.all_reduce(torch.ones(3), "sum", distributed.group.WORLD)
    assert dlbridge.explain(x, "numpy").hint == "pass x.wait()"
    with pytest.raises(dlbridge.UnsupportedError, match=r"\(pass x\.wait\(\)\)"):
        dlbridge.convert_tree([x], "numpy")
    assert dlbridge.convert(x.wait(), "numpy").tolist() == [1, 1, 1]
    distributed.destroy_process_group()


@in_child(warnings="ignore")
def test_the_hints_of_a_distributed_tensor():
    import pytest
    import torch
    import torch.distributed
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    import dlbridge

    hint = "pass x.to_local(), the part of this process, or x.full_tensor()"
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    x = distribute_tensor(torch.arange(4.0), init_device_mesh("cpu", (1,)), [Shard(0)])
    for each in (x, x.detach(), torch.nn.Parameter(x)):
        with pytest.raises(dlbridge.UnsupportedError) as raised:
            dlbridge.convert(each, "numpy", detach=True)
        assert raised.value.hint == dlbridge.explain(each, "numpy", detach=True).hint == hint
    assert dlbridge.convert(x.to_local(), "numpy").tolist() == [0, 1, 2, 3]
    assert dlbridge.convert(x.full_tensor(), "numpy").tolist() == [0, 1, 2, 3]
    torch.distributed.destroy_process_group()


# ---- Metal -----------------------------------------------------------------------------------------------------------

@in_child(warnings="ignore")
def test_a_slice_on_metal_is_taken_by_the_managed_export():
    """There is no such machine here: torch's own table on the CPU, whose answers are those that it gives for Metal.

    data is a handle, and the managed export has the offset beside it. The borrowed view adds it (pytorch#182924).
    """
    import ctypes

    import torch

    import dlbridge
    from dlbridge.testing import abi
    from dlbridge.testing.producers import capsule_pointer, new_capsule

    METAL = 8
    own = abi.DLPackExchangeAPI.from_address(
        capsule_pointer(torch.Tensor.__dlpack_c_exchange_api__, abi.EXCHANGE_NAME))
    fake = abi.DLPackExchangeAPI.from_buffer_copy(own)
    types = dict(abi.DLPackExchangeAPI._fields_)

    def borrowed(tensor, out):
        answer = own.dltensor_from_py_object_no_sync(tensor, out)
        out.contents.device.device_type = METAL
        return answer

    def managed(tensor, out):
        answer = own.managed_tensor_from_py_object_no_sync(tensor, out)
        given = out.contents.contents.dl_tensor
        given.device.device_type = METAL
        given.byte_offset = 8
        given.data -= 8
        return answer

    fake.dltensor_from_py_object_no_sync = types["dltensor_from_py_object_no_sync"](borrowed)
    fake.managed_tensor_from_py_object_no_sync = types["managed_tensor_from_py_object_no_sync"](managed)
    torch.Tensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(fake), abi.EXCHANGE_NAME, None)

    x = torch.arange(6.0)
    for convert in (dlbridge.asdlpack, lambda x: dlbridge.convert_tree([x], "dlbridge")[0],
                    dlbridge.accepts("dlbridge")(lambda x: x)):
        made = convert(x[2:])
        assert (made.device, made.shape, made.byte_offset) == ("metal:0", (4,), 8), made
    assert dlbridge.explain(x[2:], "dlbridge").device == "metal:0"
    del made


# ---- torch.jit.trace -------------------------------------------------------------------------------------------------

def halved_by_numpy(x, **keywords):
    return x + torch.from_numpy(dlbridge.convert(x, "numpy", **keywords) / 2)


def warnings_of_trace(function, *inputs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.jit.trace(function, inputs, check_trace=False)
    return [str(warning.message) for warning in caught
            if issubclass(warning.category, torch.jit.TracerWarning) and "dlbridge" in str(warning.message)]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("make", [torch.ones, lambda count: as_special(torch.ones(count))], ids=["Tensor", "Special"])
def test_a_trace_warns_of_what_becomes_a_constant(make):
    assert len(warnings_of_trace(halved_by_numpy, make(3))) == 1
    assert len(warnings_of_trace(lambda x: x + dlbridge.asdlpack(x).size, make(3))) == 1
    assert warnings_of_trace(lambda x: x + len(str(dlbridge.explain(x, "numpy"))), make(3)) == []
    assert warnings_of_trace(lambda x: x + dlbridge.convert(x, "torch"), make(3)) == []
    assert warnings_of_trace(lambda x: x + dlbridge.convert(np.ones(3, "f4"), "torch"), make(3)) == []


@pytest.mark.needs("torch")
@pytest.mark.parametrize("function", [
    halved_by_numpy,
    lambda x: x + dlbridge.convert_tree([{"x": x}], "numpy")[0]["x"].size,
    dlbridge.accepts("numpy")(lambda x: torch.ones(3) + x.size),
], ids=["convert", "convert_tree", "accepts"])
def test_the_warning_of_a_trace_names_the_line_of_the_caller(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.jit.trace(function, torch.ones(3), check_trace=False)
    said = [warning.filename for warning in caught if "dlbridge converts" in str(warning.message)]
    assert len(said) == 1
    assert not said[0].startswith(dlbridge.__path__[0])


@pytest.mark.needs("torch")
def test_a_warning_that_is_an_error_loses_nothing():
    tensor = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", torch.jit.TracerWarning)
        with pytest.raises(torch.jit.TracerWarning):
            torch.jit.trace(halved_by_numpy, tensor)
    tensor.resize_(100)         # nothing holds its storage
    np.testing.assert_array_equal(halved_by_numpy(torch.ones(3)), [1.5] * 3)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("version", [torch.__version__, "99.0"])        # of the second no internals are used
@in_child(warnings="default")
def test_the_first_conversion_of_a_process_is_no_part_of_a_trace(version):
    import warnings

    import torch

    import dlbridge

    torch.__version__ = version

    def function(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.jit.trace records what dlbridge")
            return x * dlbridge.convert(x, "numpy").size

    warnings.simplefilter("error", torch.jit.TracerWarning)
    assert len(list(torch.jit.trace(function, torch.ones(3)).graph.nodes())) == 2
