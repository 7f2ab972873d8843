"""Objects, targets and orders of events that nobody means, and that must not crash, mislead or leak all the same."""

import ast
import gc
import types
import weakref

import numpy as np
import pytest
import torch
from support.children import in_child
from support.optional import of, params

import dlbridge


class Producer:
    """Only __dlpack__, so that nothing but the route decides."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


# ---- chains ----------------------------------------------------------------------------------------------------------

@in_child(says="True\n")
def test_the_owner_at_the_end_of_a_long_chain_is_found():
    import dlbridge

    source = bytearray(8)
    tensor = dlbridge.asdlpack(source)
    for turn in range(300_000):        # another policy makes a new Tensor over the last one, which is kept
        tensor = dlbridge.asdlpack(tensor, readonly="share" if turn % 2 else "error")
    print(tensor.owner is source)


# ---- routes ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    "make", params([lambda: np.zeros(3), of("torch")(lambda: torch.zeros(3)), lambda: memoryview(np.zeros(3))]))
def test_array_that_stands_for_its_library_is_not_kept(make):
    like = make()
    alive = weakref.ref(like)
    dlbridge.convert(b"abc", like)
    del like
    gc.collect()
    assert alive() is None


def test_registration_while_a_route_is_made_is_not_lost():
    class Source(Producer):
        pass

    asked = []

    def predicate(kind):
        if kind is Source and not asked:
            asked.append(kind)
            dlbridge.register_target("breaker_changing", lambda tensor: "new")
        return False

    dlbridge.register_target("breaker_changing", lambda tensor: "old")
    dlbridge.register_source(predicate, lambda source: None)
    source = Source(np.zeros(3))
    dlbridge.convert(source, "breaker_changing")
    assert dlbridge.convert(source, "breaker_changing") == "new"


@pytest.mark.needs("torch")
def test_proxies_of_different_classes_do_not_share_a_route():
    class Proxy:
        def __init__(self, wrapped):
            self.wrapped = wrapped

        @property
        def __class__(self):
            return type(self.wrapped)

        def __getattr__(self, name):
            return getattr(self.wrapped, name)

    first = Proxy(torch.zeros(3))
    assert dlbridge.convert(first, "torch") is first
    assert type(dlbridge.convert(Proxy(np.zeros(3)), "torch")) is torch.Tensor


def test_predicate_that_registers_sources_ends():
    calls = []

    class Source(Producer):
        pass

    def predicate(kind):
        if kind is Source:
            calls.append(kind)
            if len(calls) < 50:
                dlbridge.register_source(predicate, lambda source: None)
        return False

    dlbridge.register_source(predicate, lambda source: None)
    dlbridge.convert(Source(np.zeros(3)), "numpy")
    assert len(calls) == 1


@in_child(says="raised\n")
def test_registered_c_functions_that_lead_to_each_other_raise():
    import operator

    import dlbridge

    class A:
        pass

    class B:
        pass

    A.other, B.other = B(), A()
    dlbridge.register_source(lambda kind: kind in (A, B), operator.attrgetter("other"))
    try:
        dlbridge.convert(A(), "numpy")
    except RecursionError:
        print("raised")


# ---- names that lie --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["numpy", "dlpack_versioned", "jax"])
def test_namespace_is_not_believed_to_be_the_library_whose_name_it_has(name):
    space = types.SimpleNamespace(__name__=name, from_dlpack=np.from_dlpack)
    swapped = np.arange(3, dtype=">i4")
    assert dlbridge.convert(swapped, space).tolist() == [0, 1, 2]
    assert dlbridge.convert(swapped[::-1], type(name, (), {"from_dlpack": np.from_dlpack})).tolist() == [2, 1, 0]


@in_child(says="[0, 1, 2]\n")
def test_registered_target_does_not_inherit_what_the_one_it_replaces_can_hold():
    import numpy

    import dlbridge

    dlbridge.register_target("numpy", numpy.from_dlpack, replace=True)
    print(dlbridge.convert(memoryview(numpy.arange(3, dtype=">i4")), "numpy").tolist())


class Loud(str):
    def partition(self, *arguments):
        raise RuntimeError("parted")

    def __hash__(self):
        raise RuntimeError("hashed")


@pytest.mark.parametrize("module", [None, 5, [], b"bytes", Loud("nowhere.loud")])
def test_type_whose_module_is_no_name(module):
    kind = type("Nameless", (Producer,), {"__module__": module})
    assert dlbridge.convert(kind(np.arange(3)), "numpy").tolist() == [0, 1, 2]
    with pytest.raises(dlbridge.UnsupportedError):
        dlbridge.convert(b"abc", kind)
    with pytest.raises(dlbridge.UnsupportedError):
        dlbridge.convert(type("Nothing", (), {"__module__": module})(), "numpy")


def test_type_that_poses_as_one_of_a_library_without_protocols():
    kind = type("Tensor", (), {"__module__": "mindspore.common.tensor"})
    with pytest.raises(dlbridge.UnsupportedError, match=r"type mindspore\.common\.tensor\.Tensor"):
        dlbridge.convert(kind(), "numpy")


def test_type_without_a_module():
    """Made by code whose globals have no __name__, such as exec(code, {})."""
    made = {}
    exec("kind, other = type('Nameless', (bytearray,), {}), type('Nothing', (), {})", made)
    assert not hasattr(made["kind"], "__module__")
    assert dlbridge.convert(made["kind"](b"abc"), "numpy").tolist() == [97, 98, 99]
    assert dlbridge.explain(made["kind"](b"abc"), "numpy").action == "share"
    for to in (made["kind"], made["kind"]()):
        with pytest.raises(dlbridge.UnsupportedError):
            dlbridge.convert(b"abc", to)
    with pytest.raises(dlbridge.UnsupportedError, match="source: type Nothing"):
        dlbridge.convert(made["other"](), "numpy")


def test_type_whose_metaclass_cannot_compare():
    class Meta(type):
        def __eq__(self, other):
            raise RuntimeError("compared")

        __hash__ = type.__hash__

    kind = Meta("Incomparable", (Producer,), {})
    assert dlbridge.convert(kind(np.arange(3)), "numpy").tolist() == [0, 1, 2]


@pytest.mark.needs("numpy 2.1")      # whose __dlpack__ is asked once
def test_stream_that_is_named_beside_other_keywords_is_told():
    told = []

    class Elsewhere(Producer):
        def __dlpack__(self, *, stream=None, **keywords):
            told.append(stream)
            return super().__dlpack__(**keywords)

        def __dlpack_device__(self):
            return 2, 0

    source = Elsewhere(np.arange(3))
    for _ in range(2):
        dlbridge.convert(source, "dlbridge", stream=7)
    dlbridge.explain(source, "dlbridge")
    assert told == [7, 7, -1]


@pytest.mark.parametrize("name", [None, 5, []])
def test_module_whose_name_is_no_name(name):
    module = types.ModuleType("nameless")
    module.__name__ = name
    with pytest.raises(dlbridge.UnsupportedError):
        dlbridge.convert(b"abc", module)
    module.from_dlpack = np.from_dlpack
    assert dlbridge.convert(b"abc", module).tolist() == [97, 98, 99]


def test_module_without_a_name():
    module = types.ModuleType("nameless")
    del module.__name__
    with pytest.raises(dlbridge.UnsupportedError):
        dlbridge.convert(b"abc", module)


def test_string_that_cannot_be_hashed_is_a_name():
    name = type("Unhashable", (str,), {"__hash__": None})("numpy")
    assert dlbridge.convert(b"abc", name).tolist() == [97, 98, 99]


# ---- numbers at the edge ---------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
@pytest.mark.parametrize("typestr", [">c8", ">c16"])
def test_swapped_complex_of_64_dimensions(typestr):
    source = np.arange(4).astype(typestr).reshape((2, 2) + (1,) * 62) * (1 + 2j)
    source = source.astype(typestr)[::-1]
    assert np.array_equal(dlbridge.convert(source, "torch").numpy(), source)


@pytest.mark.parametrize("device", ["cuda:99999999999999999", "cuda:" + "9" * 5000, (2, 2**40), (1, -2**31 - 1)])
def test_device_number_beyond_32_bits(device):
    with pytest.raises(dlbridge.DeviceError):
        dlbridge.convert(b"abc", "numpy", device=device)


def test_packed_elements_whose_bits_overflow():
    count = (1 << 64) // 6 + 1          # times 6 bits is 2 in 64 bits
    with pytest.raises(dlbridge.ConversionError, match="has more bytes than any memory"):
        dlbridge.tensor._from_bytes(b"x", (count,), (1,), "float6_e2m3fn", False, False)


def test_holds_may_be_an_iterator():
    dlbridge.register_target("breaker_iterator", lambda tensor: tensor.readonly, supports=iter(["READ_ONLY"]))
    assert dlbridge.convert(b"abc", "breaker_iterator") is True


# ---- depth and threads -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("between", params(["memoryview", "dlbridge", "torch"]))
@in_child
def test_long_chain_of_owners_is_let_go(between):
    import weakref

    import numpy

    import dlbridge

    first = array = numpy.zeros(4)
    alive = weakref.ref(first)
    for _ in range(100_000):
        array = dlbridge.convert(dlbridge.convert(array, between), "numpy")
    del first, array
    assert alive() is None


@pytest.mark.needs("torch")
@in_child(says="[]\n")
def test_first_conversions_of_many_threads_see_the_same_target():
    import sys
    import threading

    import numpy
    import torch  # noqa: F401 (its types are asked for)

    import dlbridge

    sys.setswitchinterval(1e-6)
    source, wrong, start = numpy.arange(4.0)[::-1], [], threading.Barrier(8)

    def first():
        start.wait()
        for round in range(200):
            name = f"target{round}"
            result = dlbridge.convert(source, name)
            if result != (1,):
                wrong.append(result)

    for round in range(200):
        dlbridge.register_target(f"target{round}", lambda tensor: tensor.strides)
    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(wrong)


def test_signature_of_a_builtin_is_not_parsed(monkeypatch):
    """Threads of Python 3.11 that parse at a time disturb each other (cpython#106905)."""
    class Unknown:
        pass

    def parse(*arguments, **keywords):
        raise SystemError("AST constructor recursion depth mismatch")

    tensor = dlbridge.asdlpack(np.arange(3.0))
    dlbridge.register_source(Unknown, lambda unknown: tensor)       # and so every route is made anew
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", parse)
        array = dlbridge.convert(tensor, "numpy")
    assert array.tolist() == [0, 1, 2]


# ---- in the middle of the first conversion ---------------------------------------------------------------------------

@pytest.mark.needs("torch")
@pytest.mark.parametrize(("call", "module"), [
    ("convert(b'abc', 'torch')", "libraries.library"),
    ("convert_tree([torch.zeros(3)], 'numpy')", "libraries.profiles"),
    ("to_dlpack(torch.zeros(3), max_version=(1, 0))", "libraries.dlpack"),
    ("convert(torch.zeros(3), 'numpy')", "_core.native.torch"), ("convert_tree([torch.zeros(3)], 'numpy')", "trees"),
    ("explain(b'abc', 'numpy')", "explain.examine"), ("convert(b'abcd', 'numpy', dtype='int16')", "_core.described"),
    ("convert(b'abcd', 'numpy', out=numpy.zeros(4, 'u1'))", "_core.out"),
    ("convert(object(), 'numpy')", "_core.meant"), ("convert(numpy.array(['a']), 'torch')", "libraries.hints"),
    ("convert(numpy.zeros(1 << 26, 'u1'), 'numpy', copy=True)", "_core.system_memory")])
@in_child
def test_a_callback_of_the_garbage_collector_converts(call, module):
    """It is called wherever something is allocated, also while dlbridge imports what it knows of a library."""
    import gc
    import sys
    import traceback

    import numpy  # noqa: F401 (calls are made of them)

    import dlbridge

    if "torch" in call:
        import torch  # noqa: F401

    calls, ends, code = [], set(), compile(f"dlbridge.{call}", "call", "eval")

    def collected(phase, info):
        if f"dlbridge.{module}" in sys.modules and len(calls) < 100:
            calls.append(phase)
            convert()

    def convert():
        try:
            eval(code)
            ends.add("well")
        except Exception as error:
            ends.add(str(error) if isinstance(error, dlbridge.DLBridgeError) else traceback.format_exc())

    gc.freeze()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    convert()
    gc.set_threshold(0)
    gc.collect()
    end, = ends
    assert calls
    assert end.startswith(("well", "source: type object", "numpy: dtype")), end


@in_child(says="[(False, 1)] True\n(False, 0) False\n")
def test_the_garbage_collector_is_left_as_it_was():
    import gc
    import os

    import dlbridge

    def accepts(kind):                  # asked while a route is made
        child = os.fork()
        if not child:
            os._exit(gc.isenabled())
        found.append((gc.isenabled(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
        return False

    found = []
    dlbridge.register_source(accepts, lambda source: None)
    dlbridge.convert(b"abc", "numpy")
    print(found, gc.isenabled())
    gc.disable()
    dlbridge.convert(bytearray(b"abc"), "numpy")
    print(found[-1], gc.isenabled())
