"""What the fast path leaves out is not needed: each shortcut beside the long way that it stands for."""

import collections
import functools
import gc
import inspect
import pickle
import sys
import threading

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.children import in_child
from support.optional import of, params
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dlbridge
from dlbridge.testing.producers import ArrayInterface, Producer

pytestmark = pytest.mark.quick


# ---- the call without keywords ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("function", [dlbridge.convert, dlbridge.asdlpack])
def test_functions_look_like_functions(function):
    last = {"convert": "out", "asdlpack": "detach"}[function.__name__]
    assert list(inspect.signature(function).parameters)[-1] == last
    assert inspect.getdoc(function).startswith(("Give an array", "Wrap any array"))
    assert function.__module__ == "dlbridge.convert"
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__name__ in repr(function)


@pytest.mark.needs("torch")
def test_every_way_to_call_convert():
    array = np.arange(3.0)
    calls = (
        lambda: dlbridge.convert(array, "torch"),
        lambda: dlbridge.convert(array, to="torch"),
        lambda: dlbridge.convert(src=array, to="torch"),
        lambda: dlbridge.convert(array, "torch", copy=None, readonly="copy", detach=False),
        lambda: dlbridge.convert(*(array, "torch"), **{}),
        lambda: functools.partial(dlbridge.convert, to="torch")(array),
        lambda: next(map(dlbridge.convert, [array], ["torch"])),
        lambda: dlbridge.convert(array, torch),
        lambda: dlbridge.convert(array, torch.Tensor),
        lambda: dlbridge.convert(array, torch.zeros(1)),
        lambda: dlbridge.convert(array, "".join(["to", "rch"])),
    )
    for _ in range(2):              # before a route is kept, and after
        for call in calls:
            assert call().data_ptr() == array.ctypes.data


@pytest.mark.parametrize("arguments", [(), (1,), (1, "numpy", 2)])
def test_wrong_arguments_are_type_errors(arguments):
    with pytest.raises(TypeError, match="convert"):
        dlbridge.convert(*arguments)
    with pytest.raises(TypeError, match="nonsense"):
        dlbridge.convert(np.zeros(1), "numpy", nonsense=1)
    with pytest.raises(TypeError, match="asdlpack"):
        dlbridge.asdlpack(1, 2)


def test_routes_are_cleared_while_one_is_in_use():
    class Registering(Producer):
        def __dlpack__(self, **keywords):
            dlbridge.register_target("meanwhile", lambda tensor: tensor)
            gc.collect()
            return super().__dlpack__(**keywords)

    for _ in range(3):
        producer = Registering()
        array = dlbridge.convert(producer, "numpy")
        assert array.sum() == 15
        del array
        gc.collect()
        assert producer.deleted == 1


def test_routes_of_one_slot_do_not_drive_each_other_out():
    asked = []

    class Watched(type):
        def __getattr__(cls, name):
            asked.append(name)
            raise AttributeError(name)

    # As slot_of() in plan.pxd counts: of 257 types, two are in one of the 256 slots, whatever the target.
    slots = collections.defaultdict(list)
    for kind in [Watched("Kind", (Producer,), {}) for _ in range(257)]:
        slots[id(kind) // 16 % 256].append(kind)
    first, second = max(slots.values(), key=len)[:2]
    for kind in (first, second):
        dlbridge.convert(kind(), "numpy")
    assert asked
    del asked[:]
    for kind in (first, second, first, second):
        dlbridge.convert(kind(), "numpy")
    assert not asked


# ---- what libtorch is asked ------------------------------------------------------------------------------------------

def lazy_tensors():
    real = torch.arange(12, dtype=torch.float32).reshape(3, 4) - 5
    wide = torch.complex(real, real * 2)
    yield from (real, real.double(), real.bfloat16(), real.half(), real.int(), real.bool(), real[::2, 1:], wide)
    yield from (torch._neg_view(real), torch._neg_view(real)[1:], wide.conj(), wide.conj()[:, ::2], wide.conj().imag)
    yield from (torch._neg_view(wide), torch._neg_view(wide.conj()), wide.conj().real, torch._neg_view(real.bfloat16()))
    yield from (pickle.loads(pickle.dumps(torch._neg_view(real))), torch.zeros(0), torch.tensor(3.0))
    with torch.inference_mode():
        yield wide.conj().imag
        yield torch.ones(2)


@pytest.mark.needs("torch")
def test_lazy_bits_however_they_came():
    for tensor in lazy_tensors():
        wanted = tensor.resolve_conj().resolve_neg()
        for given_back in (dlbridge.convert(tensor, "numpy"), dlbridge.convert(tensor, "dlbridge")):
            assert torch.equal(dlbridge.convert(given_back, "torch"), wanted), tensor


@pytest.mark.needs("torch")
def test_gradients_however_they_came():
    leaf = torch.ones(3, requires_grad=True)
    layer = torch.nn.Linear(2, 2)
    for tensor in (leaf, leaf * 2, leaf.view(3, 1), layer.weight, layer(torch.ones(1, 2))):
        with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
            dlbridge.convert(tensor, "numpy")
        assert dlbridge.convert(tensor, "numpy", detach=True).shape == tensor.shape
    for tensor in (leaf.detach(), (leaf * 2).detach(), layer.weight.data):
        assert dlbridge.convert(tensor, "numpy").shape == tensor.shape
    leaf.requires_grad_(False)
    assert dlbridge.convert(leaf, "numpy").ctypes.data == leaf.data_ptr()


@pytest.mark.needs("torch")
def test_a_shared_storage_keeps_its_size():
    for tensor in (torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16), torch.zeros(2, 3)[:, 1:], torch.zeros(0)):
        dlbridge.convert(tensor, "numpy")
        assert not tensor.untyped_storage().resizable()


class Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} is seen")


class RefusingFunctions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} is seen")


def under_grad(convert):
    torch.func.grad(lambda x: (convert(), x.sum())[1])(torch.ones(2))


def under_a_mode(convert):
    with Refusing():
        convert()


def under_a_function_mode(convert):
    with RefusingFunctions():
        convert()


def under_a_fake_mode(convert):
    with FakeTensorMode():
        convert()


def under_make_fx(convert):
    graph = make_fx(lambda x: (convert(), x * 2)[1])(torch.ones(2)).graph
    assert [node.op for node in graph.nodes] == ["placeholder", "call_function", "output"]


class Logging(TorchDispatchMode):
    """Keeps the names of the operators that torch's dispatcher was asked for."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **kwargs or {})


def added(make, array, x):
    return x + make(array)


@pytest.mark.needs("torch 2.10")
def test_under_a_mode_a_tensor_is_what_torch_makes_there():
    array = np.arange(3, dtype="float32")
    outside = dlbridge.convert(array, "torch")
    for make in (torch.from_numpy, lambda array: dlbridge.convert(array, "torch")):
        with FakeTensorMode() as mode:
            made = make(array)
            assert made.fake_mode is mode
            assert (made + torch.ones(3)).shape == (3,)
        with Logging() as mode:
            assert make(array).data_ptr() == outside.data_ptr()
        assert mode.names == ["aten.lift_fresh.default"]
        graph = make_fx(functools.partial(added, make, array))(torch.ones(3)).graph
        assert "aten.lift_fresh_copy.default" in [str(node.target) for node in graph.nodes]
    with FakeTensorMode() as mode:
        assert dlbridge.convert_tree({"x": array, "y": bytearray(3)}, "torch")["y"].fake_mode is mode
        assert dlbridge.accepts("torch")(lambda x: x + torch.ones(3))(array).fake_mode is mode
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(dlbridge.convert(array, "torch")))
        thread.start()
        thread.join()
        assert type(elsewhere[0]) is torch.Tensor
    assert type(dlbridge.convert(array, "torch")) is torch.Tensor
    producer = Producer(keeps=False)
    with pytest.raises(ZeroDivisionError), Dividing():
        dlbridge.convert(producer, "torch")
    gc.collect()
    assert (producer.exported, producer.deleted) == (1, 1)


class Dividing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise ZeroDivisionError


class OwnTensor(torch.Tensor):
    pass


@pytest.mark.needs("torch 2.10")
def test_a_plain_tensor_leaves_no_trace_in_what_the_caller_has_begun():
    surroundings = (under_grad, under_a_mode, under_a_function_mode, under_a_fake_mode, under_make_fx)
    cases = [(around, torch.ones(3).to(dtype)) for around in surroundings for dtype in (torch.float32, torch.bfloat16)]
    cases += [(under_a_mode, torch.ones(3, requires_grad=True)), (under_grad, torch.ones(3).as_subclass(OwnTensor))]
    for around, tensor in cases:
        given = []
        around(lambda tensor=tensor, given=given: given.append(dlbridge.convert(tensor, "dlbridge", detach=True)))
        with pytest.raises(RuntimeError, match="resiz"):
            tensor.detach().resize_(1 << 20)
        assert torch.equal(dlbridge.convert(given[0], "torch"), tensor.detach().as_subclass(torch.Tensor))
    for around in surroundings:
        given = []
        clone = torch._lazy_clone(torch.ones(3))
        around(lambda clone=clone, given=given: given.append(dlbridge.convert(clone, "numpy")))
        assert (given[0].tolist(), torch._C._is_cow_tensor(clone)) == ([1, 1, 1], True)


@pytest.mark.needs("torch")
def test_a_function_mode_is_not_asked_what_a_tensor_holds():
    class Denying(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return False

    negative = torch._neg_view(torch.ones(1))
    with Denying():
        given = dlbridge.convert(negative, "numpy")
    assert given.tolist() == [-1]


# ---- what an ndarray holds -------------------------------------------------------------------------------------------

@pytest.mark.needs("torch 2.10")
def test_the_storage_of_a_tensor_is_the_base_of_its_array():
    tensor = torch.ones(3)
    storage = tensor.untyped_storage()
    array = dlbridge.convert(tensor, "numpy")
    assert array.base is storage
    assert array.flags.writeable
    before = sys.getrefcount(storage)
    del array
    assert sys.getrefcount(storage) == before - 1


@pytest.mark.needs("jax")
def test_read_only_memory_stays_so_whatever_the_base_allows():
    holder = ArrayInterface()
    holder.__array_interface__["data"] = (holder.__array_interface__["data"][0], True)
    frozen = np.arange(3.0)
    view = frozen.view(type("Array", (np.ndarray,), {}))
    view.flags.writeable = False
    for source in (holder, view, bytes(8), jax.numpy.arange(3)):
        array = dlbridge.convert(source, "numpy")
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


# ---- what is lent ----------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
def test_a_tensor_lends_its_block_to_many_at_a_time():
    producer = Producer()
    lender = [dlbridge.asdlpack(producer)]
    problems = []

    def consume():
        try:
            tensor, = lender
            for _ in range(300):
                capsules = [tensor.__dlpack__(max_version=(1, 3)) for _ in range(3)]
                arrays = [np.from_dlpack(tensor), dlbridge.convert(capsules.pop(), "numpy"), torch.from_dlpack(tensor)]
                assert all(array.sum() == 15 for array in arrays)
        except BaseException as error:
            problems.append(error)

    crew = [threading.Thread(target=consume) for _ in range(8)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert not problems
    last = torch.from_dlpack(lender.pop())
    gc.collect()
    assert producer.deleted == 0
    assert last.sum() == 15
    del last
    gc.collect()
    assert producer.deleted == 1


# ---- who holds the GIL -----------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
@in_child(says="", warnings="default")
def test_a_subinterpreter_anywhere_changes_nothing():
    """From its creation on PyGILState_Check() says yes to every thread, and torch lets go of tensors without the GIL.
    """
    import sys
    import threading

    import numpy
    from lifetime.interpreters import interpreters

    import dlbridge

    array = numpy.ones(1000)
    dlbridge.convert(array, "torch")
    interpreters.destroy(interpreters.create())
    before = sys.getrefcount(array)

    def work():
        for _ in range(2000):
            dlbridge.convert(array, "torch")

    crew = [threading.Thread(target=work) for _ in range(4)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert sys.getrefcount(array) == before


# ---- layouts ---------------------------------------------------------------------------------------------------------

def settled(shape, strides):
    """Axes of length 1 keep their stride if it is not negative; an empty array is compact as a whole."""
    wanted = list(strides)
    step = 1
    for axis in reversed(range(len(shape))):
        if 0 in shape:
            wanted[axis] = step
            step *= max(shape[axis], 1)
        elif shape[axis] == 1 and strides[axis] < 0:
            wanted[axis] = 1 if axis == len(shape) - 1 else shape[axis + 1] * wanted[axis + 1]
    return tuple(wanted)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 7)), max_size=6), st.booleans())
def test_every_layout_is_described_alike(axes, compact):
    shape = tuple(extent for extent, _ in axes)
    memory = np.zeros(4096)
    array = memory[:np.prod(shape, dtype=int)].reshape(shape)
    if not compact:
        strides = tuple(8 * stride for _, stride in axes)
        array = np.lib.stride_tricks.as_strided(memory[2048:], shape, strides)
    for source in (array, np.from_dlpack(array) if array.flags.writeable else array, ArrayInterface(array)):
        tensor = dlbridge.asdlpack(source)
        assert tensor.shape == shape
        strides = getattr(source, "strides", array.strides)     # NumPy before 2.4 imports others (numpy#23349)
        assert tensor.strides == settled(shape, tuple(stride // 8 for stride in strides))
        assert tensor.size == array.size
        assert tensor.nbytes == array.nbytes
        assert np.array_equal(dlbridge.convert(tensor, "numpy"), array)


# ---- what was once got wrong -----------------------------------------------------------------------------------------

@pytest.mark.needs("torch 2.10")
@in_child(says="", warnings="default")
def test_the_first_tensor_may_come_under_any_mode():
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    import dlbridge

    class Refusing(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            raise ZeroDivisionError

    class Counting(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Counting.calls += 1
            return function(*args, **(kwargs or {}))

    tensor = torch.ones(3)
    with Counting(), Refusing():
        array = dlbridge.convert(tensor, "numpy")
    assert (array.tolist(), Counting.calls) == ([1, 1, 1], 0)


@pytest.mark.needs("torch")
def test_negated_integers_are_refused():
    with pytest.raises(dlbridge.ConversionError, match="resolve_neg"):
        dlbridge.convert(torch._neg_view(torch.arange(3)), "numpy")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("permute", [np.transpose, np.asfortranarray, lambda array: array.transpose(1, 2, 0)])
@pytest.mark.parametrize("target", ["numpy", "torch", "memoryview", "dlbridge"])
def test_copies_of_permuted_axes_are_described_as_they_lie(permute, target):
    array = permute(np.arange(24.0).reshape(2, 3, 4))
    copied = dlbridge.convert(dlbridge.convert(array, target, copy=True), "numpy")
    assert np.array_equal(copied, array)
    tensor = torch.from_numpy(array)
    for lazy in (torch._neg_view(tensor), torch.complex(tensor, tensor).conj(), torch.complex(tensor, -tensor).mH):
        copied = dlbridge.convert(dlbridge.convert(lazy, target), "torch")
        assert torch.equal(copied, lazy.resolve_conj().resolve_neg())


def test_owner_of_an_interface_is_the_object_alone():
    holder = ArrayInterface()
    holder.__array_interface__ = {"shape": (4,), "typestr": "|u1", "data": bytearray(4), "version": 3}
    assert dlbridge.asdlpack(holder).owner is holder
    # The export would be let go with .release(), which the base of the array must not offer.
    assert not isinstance(dlbridge.convert(holder, "numpy").base, tuple)


def test_source_registered_while_the_class_is_asked():
    class Posing:
        asked = 0

        @property
        def __class__(self):
            Posing.asked += 1
            if Posing.asked == 1:
                dlbridge.register_source(Posing, lambda posing: np.ones(2))
            return Posing

        __array_interface__ = ArrayInterface().__array_interface__

    posing = Posing()
    dlbridge.convert(posing, "numpy")
    assert dlbridge.convert(posing, "numpy").shape == (2,)


def test_strides_of_empty_memory_mean_nothing():
    memory = np.zeros(4, np.uint8)
    holder = ArrayInterface(memory, shape=(2, 0, 5), strides=(-5, 0, 2**62), typestr="|u1")
    assert dlbridge.asdlpack(holder).strides == (5, 5, 1)


@pytest.mark.needs("torch")
def test_sizes_beyond_memory_are_refused_from_numpy_too():
    endless = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**63 - 1,), (1,))
    with pytest.raises(dlbridge.ConversionError, match=r"beyond any memory|more bytes"):
        dlbridge.convert(endless, "torch")


def test_offset_that_compares_as_it_likes():
    class Offset(int):
        def __ge__(self, other):
            return True

        __le__ = __lt__ = __gt__ = __ge__

    holder = ArrayInterface(np.zeros(4, np.uint8), data=bytearray(4), offset=Offset(2**63 - 1))
    with pytest.raises(dlbridge.ConversionError, match="offset"):
        dlbridge.convert(holder, "numpy")


# ---- keywords --------------------------------------------------------------------------------------------------------

KEYWORDS = [
    {}, {"copy": None}, {"copy": False}, {"copy": True}, {"readonly": "copy"}, {"readonly": "share"},
    {"readonly": "error"}, {"detach": True}, {"narrow": True}, {"device": None}, {"device": "cpu"}, {"stream": None},
    {"device": "cpu", "copy": True}, {"readonly": "share", "copy": False, "detach": True}, {"copy": 1}, {"copy": "no"},
    {"readonly": "no"}, {"readonly": None}, {"device": "cuda:7"}, {"device": 3}, {"stream": 0}, {"no_such": 1},
]


def uninterned(keywords):
    """The same keywords as objects of their own, which only the whole function understands."""
    def fresh(value):
        return "".join(list(value)) if isinstance(value, str) else value

    return {fresh(name): fresh(value) for name, value in keywords.items()}


def outcome_of(call, address):
    try:
        result = call()
    except Exception as error:
        return type(error), str(error)
    array = dlbridge.convert(result, "numpy", detach=True)
    return type(result), array.tolist(), array.ctypes.data == address, array.flags.writeable


def read_only_array():
    array = np.arange(3.0)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("to", params(["numpy", "memoryview", "torch", "jax"]))
@pytest.mark.parametrize("make", params([
    lambda: np.arange(3.0), read_only_array, lambda: bytearray(b"abc"),
    of("torch")(lambda: torch.arange(3.0)), of("torch")(lambda: torch.ones(3, requires_grad=True))]))
def test_every_form_of_a_call_is_the_same(make, to):
    source = make()
    address = dlbridge.asdlpack(source, detach=True).data_ptr
    for keywords in KEYWORDS:
        whole = functools.partial(dlbridge.convert, source, to, **uninterned(keywords))
        expected = outcome_of(whole, address)
        # functools.partial() hands the interned names and values on as they are.
        for call in (functools.partial(dlbridge.convert, source, to, **keywords),
                     functools.partial(dlbridge.convert, source, to=to, **keywords),
                     functools.partial(dlbridge.convert, src=source, to=to, **keywords)):
            assert outcome_of(call, address) == outcome_of(call, address) == expected, keywords


@pytest.mark.needs("torch")
def test_an_array_that_stands_for_its_library_and_device():
    source, like = np.arange(3.0), torch.zeros(1)
    for _ in range(3):
        assert type(dlbridge.convert(source, like)) is torch.Tensor
        assert type(dlbridge.convert(source, to=like, copy=True)) is torch.Tensor
        assert type(dlbridge.convert(torch.zeros(3), to=source)) is np.ndarray
    sparse = torch.eye(2).to_sparse()
    assert type(dlbridge.convert(source, sparse)) is torch.Tensor


@pytest.mark.parametrize("call", [
    lambda: dlbridge.convert(), lambda: dlbridge.convert(np.zeros(3)), lambda: dlbridge.convert(to="numpy"),
    lambda: dlbridge.convert(np.zeros(3), "numpy", to="numpy"), lambda: dlbridge.convert(np.zeros(3), "numpy", "cpu"),
    lambda: dlbridge.convert(np.zeros(3), "numpy", None, None),
    lambda: dlbridge.convert(np.zeros(3), src=3, to="numpy")])
def test_calls_that_python_refuses(call):
    for _ in range(2):
        with pytest.raises(TypeError):
            call()
