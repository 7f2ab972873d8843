"""Uses that mypy must accept, and the types that it must see in them; read by mypy, never run."""

import unittest
from collections import OrderedDict, deque
from typing import Any, Literal, NamedTuple, TypeVar, assert_type

import numpy
import numpy.typing
from typing_extensions import Buffer, CapsuleType, Unpack

import dlbridge
import dlbridge.typing

array = numpy.zeros((2, 3))

# The target by name, module, type and example. What has no type of its own is Any, since targets can be registered.
assert_type(dlbridge.convert(array, "numpy"), numpy.ndarray[Any, Any])
view: memoryview = dlbridge.convert(array, to="memoryview")
view = dlbridge.convert(array, memoryview)
view = dlbridge.convert(array, view)
assert_type(dlbridge.convert(array, "dlpack"), CapsuleType)
assert_type(dlbridge.convert(array, "dlbridge"), dlbridge.Tensor)
assert_type(dlbridge.convert(array, dlbridge.Tensor), dlbridge.Tensor)
numpy_type: type[numpy.typing.NDArray[numpy.float32]] = numpy.ndarray
assert_type(dlbridge.convert(array, numpy_type), numpy.typing.NDArray[numpy.float32])
assert_type(dlbridge.convert(array, "cupy"), Any)
assert_type(dlbridge.convert(array, numpy), numpy.ndarray[Any, Any])
assert_type(dlbridge.convert(array, array), numpy.ndarray[Any, Any])
assert_type(dlbridge.convert(array, dlbridge.asdlpack(array)), dlbridge.Tensor)
assert_type(dlbridge.convert(array, unittest), Any)


class Namespace:
    def from_dlpack(self, x: object, /) -> list[float]:
        return []


assert_type(dlbridge.convert(array, Namespace()), list[float])


# Bytes, and an array that is there already.
assert_type(dlbridge.convert(b"", "numpy", dtype="bfloat16", shape=(-1, 3)), numpy.ndarray[Any, Any])
assert_type(dlbridge.convert(b"", numpy, dtype=numpy.float32), numpy.ndarray[Any, Any])
filled: numpy.typing.NDArray[numpy.float64] = dlbridge.convert(array, "numpy", out=numpy.zeros(3))
assert_type(dlbridge.convert(array, "cupy", out=dlbridge.asdlpack(array)), dlbridge.Tensor)
assert_type(dlbridge.explain(b"", "numpy", dtype=array.dtype, out=array), dlbridge.Plan)


class Image:
    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {}


assert_type(dlbridge.convert(array, Image()), Image)


# Keywords.
class Stream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 1


class Device:
    platform: str
    id: int


name = str(array.device)
assert_type(dlbridge.convert(array, name), Any)
assert_type(dlbridge.convert(array, "numpy", device="cuda:1", copy=False, stream=2), numpy.ndarray[Any, Any])
assert_type(dlbridge.convert(array, "numpy", device=(1, 0), stream=Stream()), numpy.ndarray[Any, Any])
assert_type(dlbridge.convert(array, "numpy", device=Device(), readonly="share"), numpy.ndarray[Any, Any])
assert_type(dlbridge.asdlpack(b"", readonly="error", detach=True), dlbridge.Tensor)
assert_type(dlbridge.from_dlpack(array, device="cpu", copy=True), dlbridge.Tensor)
assert_type(dlbridge.to_dlpack(array, max_version=(1, 3)), CapsuleType)
assert_type(dlbridge.DLPACK_VERSION, tuple[int, int])
assert_type(dlbridge.__version__, str)
assert_type(dlbridge.targets(), list[str])

# The plan.
plan = dlbridge.explain(array, "numpy", copy=None, device="cpu")
assert_type(plan, dlbridge.Plan)
assert_type(plan.action, Literal["return", "share", "copy", "refuse"])
assert_type(plan.strides, tuple[int, ...] | None)
assert_type(plan.strides_unit, Literal["elements", "bytes"])



# Batches: a container stays what it is, as far as that can be told.
class Pair(NamedTuple):
    x: numpy.typing.NDArray[numpy.float64]


batch = {"x": [array], "y": (array, 1)}
assert_type(dlbridge.convert_tree(batch, "torch"), dict[str, Any])
assert_type(dlbridge.convert_tree([array], numpy, others="raise"), list[Any])
assert_type(dlbridge.convert_tree((array, 1), "numpy", columns="pass"), tuple[Any, ...])
assert_type(dlbridge.convert_tree(deque([array]), "numpy", copy=True), deque[Any])
assert_type(dlbridge.convert_tree(Pair(array), "torch"), Any)
assert_type(dlbridge.convert_tree(OrderedDict(x=array), "torch"), Any)
assert_type(dlbridge.convert_tree(array, "torch"), Any)



# A function with a bare annotation, which is any array of NumPy's.
@dlbridge.accepts("numpy", others="raise", columns="pass", order="C")
def doubled(x: numpy.ndarray) -> numpy.ndarray:
    return x * 2


@dlbridge.accepts("numpy", returns="like")
def like_doubled(x: numpy.ndarray, factor: float = 2.0) -> numpy.ndarray:
    return x * factor


assert_type(doubled(dlbridge.asdlpack(array)), numpy.ndarray)
assert_type(like_doubled(array), numpy.ndarray[Any, Any])
assert_type(like_doubled(dlbridge.asdlpack(array), factor=3.0), dlbridge.Tensor)
assert_type(like_doubled([array], 3.0), Any)
assert_type(like_doubled(x=array), Any)


# What such functions are made of, in functions of one's own.
AnyArray = TypeVar("AnyArray", bound=dlbridge.typing.Array)
Given = TypeVar("Given")


def through(x: AnyArray, to: dlbridge.typing.Target[Given], **keywords: Unpack[dlbridge.typing.Keywords]) -> AnyArray:
    assert_type(dlbridge.convert(x, to), Given)
    dlbridge.convert_tree([x], "numpy", **keywords)
    return dlbridge.convert(b"", x)


assert_type(through(dlbridge.asdlpack(array), numpy.ndarray, device="cpu", order="C"), dlbridge.Tensor)
assert_type(through(dlbridge.asdlpack(array), Namespace()), dlbridge.Tensor)

# The Tensor, and what takes one.
tensor = dlbridge.asdlpack(array)
assert_type(tensor.shape, tuple[int, ...])
assert_type(tensor.dtype, numpy.dtype[Any] | str)
assert_type(len(tensor), int)
assert_type(float(tensor), float)
assert_type(tensor.data_ptr, int)
assert_type(tensor.readonly, bool)
assert_type(tensor.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False), CapsuleType)
assert_type(tensor.__dlpack_device__(), tuple[int, int])
assert_type(tensor.__dlpack_c_exchange_api__, CapsuleType)
buffer: Buffer = tensor
memoryview(tensor)
numpy.from_dlpack(tensor)
numpy.asarray(tensor)


# What was copied.
with dlbridge.watch() as copies:
    assert_type(dlbridge.empty((2, 3), "float32"), dlbridge.Tensor)
assert_type([copy.nbytes for copy in copies], list[int])
assert_type(dlbridge.explain([array], "numpy").leaves, dict[str, dlbridge.Plan])

# Registration: the type of the source is the type of the argument.
class Picture:
    pixels: numpy.typing.NDArray[numpy.uint8]


dlbridge.register_source(Picture, lambda image: image.pixels)
dlbridge.register_source(lambda kind: kind.__name__ == "Image", lambda image: image.pixels)
dlbridge.register_target("rows", lambda tensor: assert_type(tensor, dlbridge.Tensor).shape[0])
dlbridge.register_target("array", numpy.from_dlpack, array_type=numpy.ndarray, supports=["READ_ONLY"], dtypes=["uint8"])

# The exceptions are also Python's own.
broad: type[TypeError] = dlbridge.UnsupportedError
needs_copy: tuple[type[BufferError], type[ValueError]] = (dlbridge.CopyRequiredError, dlbridge.CopyRequiredError)
missing: type[ImportError] = dlbridge.MissingLibraryError
roots: list[type[dlbridge.DLBridgeError]] = [dlbridge.ConversionError, dlbridge.DeviceError]
