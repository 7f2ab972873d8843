"""The mistakes that everybody makes first: what the message says to type, a line each.

What a hint says to do with an array is run in tests/libraries.
"""

import array
import ctypes
import io
import pathlib
import re
import unittest

import numpy as np
import pytest
from support.optional import params

import dlbridge
from dlbridge._core.devices import cuda

ARRAY = np.arange(6.0).reshape(2, 3)


def message_of(call, *arguments, **keywords):
    """The message of an error, without the list of all names."""
    with pytest.raises((TypeError, ValueError, BufferError, dlbridge.DLBridgeError)) as raised:
        call(*arguments, **keywords)
    return re.sub(r"\s*one of array_api_strict, .*, or register_target\(\)", "…", str(raised.value))


# ---- the target ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("written", "meant"), [
    ("np", "numpy"), ("NUMPY", "numpy"), ("numpy.ndarray", "numpy"), ("np.ndarray", "numpy"), ("array", "numpy"),
    ("jnp", "jax"), ("jax.numpy", "jax"), ("jax.Array", "jax"), ("tf", "tensorflow"), ("keras", "tensorflow"),
    ("pt", "torch"), ("pytorch", "torch"), ("Torch", "torch"), ("torch.Tensor", "torch"), ("tensor", "torch"),
    ("pytroch", "torch"), ("toch", "torch"), ("pa", "pyarrow"), ("ort", "onnxruntime"), ("cp", "cupy"), ("mx", "mlx"),
    ("tensorflow-cpu", "tensorflow"), ("capsule", "dlpack"), ("buffer", "memoryview"),
])
def test_what_is_meant_by_a_name(written, meant):
    assert message_of(dlbridge.convert, ARRAY, written) == (
        f"convert: to {written!r}: is no target that dlbridge knows (did you mean {meant!r}?…)")


@pytest.mark.parametrize(("written", "said"), [
    ("pd", "to 'pd': is a source only (call pandas.DataFrame("),
    ("pl", "to 'pl': is a source only (call polars.from_numpy("),
    ("sklearn", "to 'sklearn': is no library of arrays (call dlbridge.convert("),
    ("list", "to 'list': is no library of arrays (call dlbridge.convert(x, \"numpy\").tolist())"),
    (list, "to class list: is no library of arrays (call dlbridge.convert(x, \"numpy\").tolist())"),
    ("cuda:1", "to 'cuda:1': is a device, and no library (call dlbridge.convert(x, \"torch\", device="),
    ("float32", "to 'float32': is a type of elements, and no library (call dlbridge.convert(x, \"numpy\").astype("),
    (np.float32, "to class numpy.float32: is a type of elements, and no library"),
    (np.dtype("f4"), "to dtype('float32'): is a type of elements, and no library"),
    (unittest, "to module 'unittest': is no target that dlbridge knows (…)"),
    (None, "to None: is no target that dlbridge knows (…)"),
    (3, "to 3: is no target that dlbridge knows (…)"),
    (len, "to <built-in function len>: is a function, and no library (…)"),
    ([ARRAY], "to of type list: is a container, and no library (call dlbridge.convert_tree("),
    (NotImplemented, "to of type NotImplementedType: is no target that dlbridge knows (…)"),
    ("x" * 1000, "to of 1000 characters: is no target"),
    ("quux", "to 'quux': is no target that dlbridge knows (…)"),
    ("", "to '': is no target that dlbridge knows (…)"),
    (object(), "to of type object: is no target that dlbridge knows (…)"),
])
def test_what_is_no_target(written, said):
    assert said in message_of(dlbridge.convert, ARRAY, written)


# ---- the call --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("source", "shown"), [("torch", "'torch'"), ("np", "'np'"), (np, "module 'numpy'")])
@pytest.mark.parametrize("to", [ARRAY, [1, 2], {"x": ARRAY}], ids=["array", "list", "dict"])
def test_swapped_arguments(source, shown, to):
    name = "torch" if source == "torch" else "numpy"
    assert message_of(dlbridge.convert, source, to) == (
        f'convert: src {shown}: names a target, which comes second (call dlbridge.convert(x, "{name}"))')


@pytest.mark.parametrize(("arguments", "keywords", "said"), [
    ((ARRAY,), {}, 'to: is missing (call dlbridge.convert(x, "torch"))'),
    ((ARRAY,), {"dtype": "f4"}, 'to: is missing (call dlbridge.convert(x, "torch"))'),
    ((ARRAY, "numpy", "f4"), {"out": ARRAY}, "arguments: are more than src and to"),
    ((), {"to": "numpy", "shape": (3,)}, 'src: is missing (call dlbridge.convert(x, "torch"))'),
    ((), {"to": "numpy"}, 'src: is missing (call dlbridge.convert(x, "torch"))'),
    ((ARRAY, "numpy", "cpu"), {}, 'arguments: are more than src and to (the others are keywords, such as '),
    ((ARRAY, "numpy"), {"Device": "cpu"}, "keyword Device: is none that it has (did you mean device? one of device, "),
    ((ARRAY, "numpy"), {"read_only": 1}, "keyword read_only: is none that it has (did you mean readonly? one of "),
    ((ARRAY, "numpy"), {"zero_copy": 1}, "keyword zero_copy: is none that it has (did you mean copy? one of "),
    ((ARRAY, "numpy"), {"quux": 1}, "keyword quux: is none that it has (one of device, copy, "),
    ((ARRAY, "numpy"), {"narrow": "no"}, "narrow 'no': is neither True nor False (pass one)"),
    ((ARRAY, "numpy"), {"detach": 1}, "detach 1: is neither True nor False (pass one)"),
    ((ARRAY, "numpy"), {"stream": "x"}, "stream 'x': has no handle, and is none (pass the library's stream, or 1"),
])
def test_wrong_calls(arguments, keywords, said):
    assert message_of(dlbridge.convert, *arguments, **keywords).startswith(f"convert: {said}")


def test_the_source_is_a_keyword_too():
    assert dlbridge.convert(src=ARRAY, to="numpy") is ARRAY


NO_DRIVER = "is not cuda, and no CUDA driver was found (leave out device=)"


@pytest.mark.parametrize(("to", "device", "said"), params([
    ("dlbridge", "metal", "is not metal, and dlbridge does not move it there (move it with the library that made it)"),
    ("numpy", "metal", "is not metal, and numpy has memory of the host alone (leave out device=)"),
    ("torch", "metal", 'is not metal, and dlbridge does not move it there (call dlbridge.convert(x, "torch")'
                       '.to("mps"))'),
]))
def test_devices_that_memory_does_not_get_to(to, device, said):
    assert message_of(dlbridge.convert, ARRAY, to, device=device) == f"{to}: device cpu: {said}"


def test_no_driver():
    try:
        cuda.require_driver(2)
    except dlbridge.DeviceError:
        said = NO_DRIVER
    else:
        said = "is not cuda, and numpy has memory of the host alone (leave out device=)"
    assert message_of(dlbridge.convert, bytearray(3), "numpy", device="cuda") == f"numpy: device cpu: {said}"


def test_a_tensor_is_not_called():
    for call in (lambda: dlbridge.Tensor(ARRAY), lambda: dlbridge.Tensor(shape=(3,))):
        assert message_of(call) == "Tensor: __init__: is not for calling (call dlbridge.asdlpack(x))"


# ---- the source ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("source", "said"), [
    ([1, 2], "type list: offers no array protocol (pass numpy.asarray(x))"),
    ([1, None], "type list: offers no array protocol (pass numpy.array(x, dtype=float), where None becomes NaN)"),
    (["a"], "type list: offers no array protocol (it has strings, which no array library has)"),
    ([[1], 2], "type list: offers no array protocol (its items are of different depths)"),
    ([ARRAY], "type list: offers no array protocol (call dlbridge.convert_tree(x, to))"),
    ((ARRAY, ARRAY), "type tuple: offers no array protocol (call dlbridge.convert_tree(x, to))"),
    ({"x": ARRAY}, "type dict: offers no array protocol (call dlbridge.convert_tree(x, to), or pass its values "),
    ("x.npy", "type str: offers no array protocol (it names a file: pass numpy.load(x))"),
    (pathlib.PurePosixPath("x.png"),
     f"type {pathlib.PurePosixPath.__module__}.PurePosixPath: offers no array protocol (it names a file: pass PIL"),
    ("text", "type str: offers no array protocol (pass x.encode())"),
    (io.BytesIO(), "type _io.BytesIO: offers no array protocol (pass x.getbuffer())"),
    (zip([1], strict=True), "type zip: offers no array protocol (pass numpy.array(list(x)), if they are numbers)"),
    (len, "type builtin_function_or_method: offers no array protocol (it is a function: pass what it gives)"),
    (np.ndarray, "class numpy.ndarray: offers no array protocol (pass an instance, not the class)"),
    (unittest, "type module: offers no array protocol (pass an array)"),
    (object(), "type object: offers no array protocol (pass something with __dlpack__, __array_interface__, "
               "__cuda_array_interface__ or the buffer protocol; or register its type)"),
])
def test_what_is_no_array(source, said):
    assert message_of(dlbridge.convert, source, "numpy").startswith(f"source: {said}")


# ---- batches ---------------------------------------------------------------------------------------------------------

def double(x):
    return x * 2


@pytest.mark.parametrize(("call", "said"), [
    (lambda: dlbridge.accepts(double), 'is the function itself (write @dlbridge.accepts("torch") above it)'),
    (lambda: dlbridge.accepts("np"), "convert: to 'np': is no target that dlbridge knows (did you mean 'numpy'?…)"),
    (lambda: dlbridge.accepts("numpy", devices=1), "accepts: keyword devices: is none that it has (did you mean dev"),
    (lambda: dlbridge.accepts("numpy", copy="no"), "copy 'no': is not one of None, True and False"),
    (lambda: dlbridge.accepts("numpy")(3), "accepts: function 3: cannot be called (put @classmethod, @staticme"),
    (lambda: dlbridge.convert_tree([], "np"), "to 'np': is no target that dlbridge knows (did you mean 'numpy'?…)"),
    (lambda: dlbridge.prefetch([], "numpy", dpeth=1), "prefetch: keyword dpeth: is none that it has (did you mean dep"),
    (lambda: dlbridge.accepts("numpy", return_="like"), "accepts: keyword return_: is none that it has (did you mean "),
    (lambda: dlbridge.convert_tree([], "numpy", colums="pass"), "convert_tree: keyword colums: is none that it has (d"),
    (lambda: dlbridge.convert_tree([], "numpy", leaf=1), "convert_tree: keyword leaf: is none that it has (one of "),
    (lambda: dlbridge.convert_tree("numpy", [ARRAY]), 'names a target, which comes second (call dlbridge.convert_tree'),
])
def test_wrong_batches(call, said):
    assert said in message_of(call)


def test_a_result_like_what_no_target_makes_is_refused_first():
    called = []
    function = dlbridge.accepts("numpy", returns="like")(called.append)
    assert message_of(function, bytearray(b"ab")) == (
        'accepts: returns "like" of type bytearray: is no library of arrays (call it with dlbridge.convert(x, "numpy")'
        ", or leave out returns=)")
    assert called == []


# ---- addresses and registration --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("address", "hint"), [
    (ctypes.c_void_p(3), "x.value"), (ARRAY, 'x.__array_interface__["data"][0]'), ("0x10", "int(x, 0)"),
    ((ctypes.c_float * 2)(3, 4), "ctypes.addressof(x)"),
    (ctypes.pointer((ctypes.c_float * 2)(3, 4)), "ctypes.cast(x, ctypes.c_void_p).value"),
    (ctypes.byref((ctypes.c_float * 2)(3, 4)), "ctypes.cast(x, ctypes.c_void_p).value"),
])
def test_what_is_no_address(address, hint):
    assert message_of(dlbridge.from_pointer, address, (2,), "float32") == (
        f"from_pointer: address of type {type(address).__qualname__}: is no integer (pass {hint})")
    if "ctypes" in hint:
        tensor = dlbridge.from_pointer(eval(hint, {"x": address, "ctypes": ctypes}), (2,), "float32", owner=address)
        assert np.asarray(tensor).tolist() == [3, 4]


@pytest.mark.parametrize("source", [b"ab", bytearray(b"ab"), memoryview(b"ab"), array.array("B", b"ab")])
def test_what_needs_no_address(source):
    assert message_of(dlbridge.from_pointer, source, (2,), "uint8") == (
        f"from_pointer: address of type {type(source).__qualname__}: is no integer "
        "(call dlbridge.asdlpack(x), which needs no address)")
    assert bytes(memoryview(dlbridge.asdlpack(source))) == b"ab"


@pytest.mark.parametrize(("dtype", "hint"), [("flot32", 'did you mean "float32"?'), (None, "describe it as integers")])
def test_what_is_no_dtype(dtype, hint):
    assert f"is no type that dlbridge knows ({hint}" in message_of(dlbridge.from_pointer, 64, (2,), dtype)


@pytest.mark.parametrize(("call", "said"), [
    (lambda: dlbridge.register_source(double, int), "is a function (pass the type first)"),
    (lambda: dlbridge.register_target("x", 3), "register_target: deliver 3: is not callable"),
    (lambda: dlbridge.register_target("", len), "register_target: name '': is no name (pass a string first)"),
    (lambda: dlbridge.register_target("x", len, supports="READ_ONLY"), "is one string (pass ['READ_ONLY'])"),
])
def test_wrong_registrations(call, said):
    assert said in message_of(call)


# ---- what cannot be written ------------------------------------------------------------------------------------------

class Text(str):
    """Python lets a subclass of str do as it likes."""

    def __format__(self, spec):
        raise ZeroDivisionError

    rpartition = __len__ = __format__


class Written:
    def __repr__(self):
        return Text("itself")


class Nameless(type):
    def __getattribute__(cls, name):
        if name in ("__name__", "__qualname__"):
            raise ZeroDivisionError
        return super().__getattribute__(name)


class Unnamed(metaclass=Nameless):
    pass


@pytest.mark.parametrize(("call", "said"), [
    (lambda: dlbridge.convert(ARRAY, "numpy", copy=Written()), "copy itself: is not one of"),
    (lambda: dlbridge.convert(bytearray(4), "numpy", dtype=Written()), "dtype itself: is no type that dlbridge knows"),
    (lambda: dlbridge.convert(ARRAY, Text("nope")), "to 'nope': is no target"),
    (lambda: dlbridge.convert(ARRAY, Unnamed()), f"to of type {__name__}.Unnamed: is no target"),
    (lambda: dlbridge.convert(Unnamed(), "numpy"), f"source: type {__name__}.Unnamed: offers no array protocol"),
    (lambda: dlbridge.convert_tree([], "numpy", others=ARRAY), "is neither \"pass\" nor \"raise\""),
])
def test_what_cannot_be_written_is_an_error_of_ours_still(call, said):
    assert said in message_of(call)
