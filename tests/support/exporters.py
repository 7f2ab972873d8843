"""The exporters: every kind of object that dlbridge takes, each over elements that the test chose.

``make(elements, stack)`` gives an object that holds the elements. ``address`` says, without dlbridge, where its memory
lies; ``readonly`` whether the exporter flags it. ``keeps`` tells what shows that the memory is held: "base" where the
object lies over the very ndarray it was given, so that a weak reference to that array sees the end of it, "count" where
the object owns its memory and counts references, "" where neither can be seen from outside.
"""

import array
import contextlib
import ctypes
import mmap
import tempfile
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any, NamedTuple

import array_api_strict
import jax
import jax.experimental
import numpy as np
import pyarrow
import torch
from cuda.core.utils import StridedMemoryView
from PIL import Image

import dlbridge
from dlbridge.libraries.library import release
from dlbridge.testing.producers import Producer
from support.buffers import PyBuffer
from support.producers import LegacyProducer, VersionedProducer

enable_x64 = (jax if hasattr(jax, "enable_x64") else jax.experimental).enable_x64         # JAX 0.8 moved it
ALIGNMENT = 64          # what JAX needs to share


def aligned(shape, dtype, alignment=ALIGNMENT):
    """A writable ndarray of zeros that owns nothing but an aligned part of a larger one."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.zeros(nbytes + alignment, np.uint8)
    start = -room.ctypes.data % alignment
    return room[start:start + nbytes].view(dtype).reshape(shape)


def numbered(shape, dtype="float32", alignment=ALIGNMENT):
    """An aligned ndarray that owns its memory as far as Python sees it, with other bits in each element."""
    elements = aligned(shape, dtype, alignment)
    elements.reshape(-1).view(np.uint8)[:] = np.arange(elements.nbytes) % 61 + 1
    return elements


# Prototypes of the tests' own: pydlpack sets argtypes on the functions of ctypes.pythonapi, for the whole process.
_acquire = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi))
release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))
PyBUF_FULL_RO = 0x011C


def get_buffer(obj, flags):
    """The buffer of an object, by way of ctypes: NumPy and dlbridge have no part in it."""
    view = PyBuffer()
    _acquire(obj, view, flags)
    return view


def buffer_address(obj):
    """Where a buffer begins."""
    view = get_buffer(obj, PyBUF_FULL_RO)
    try:
        return view.buf or 0
    finally:
        release_buffer(view)


BEFORE_NUMPY_2_1 = np.lib.NumpyVersion(np.__version__) < "2.1.0"


def versioned(array):
    """What gives versioned capsules of an array: itself, and before NumPy 2.1 a producer over it."""
    return Producer(array) if BEFORE_NUMPY_2_1 else array


# ---- objects with one protocol only --------------------------------------------------------------------------------

class ArrayStruct:
    """``__array_struct__`` and nothing else."""

    def __init__(self, base):
        self.base = base

    @property
    def __array_struct__(self):
        return self.base.__array_struct__


class ArrayInterface:
    """``__array_interface__`` with an address."""

    def __init__(self, base):
        self.base = base

    @property
    def __array_interface__(self):
        return dict(self.base.__array_interface__)


class BufferInterface:
    """``__array_interface__`` whose data are a buffer, from an offset on."""

    OFFSET = 16

    def __init__(self, base):
        self.shape, self.typestr = base.shape, base.dtype.str
        self.room = bytearray(self.OFFSET) + bytearray(base.tobytes())

    @property
    def __array_interface__(self):
        return {"shape": self.shape, "typestr": self.typestr, "data": self.room, "offset": self.OFFSET, "version": 3}


class OwnBufferInterface(bytearray):
    """``__array_interface__`` without data: the object's own buffer has them."""

    @property
    def __array_interface__(self):
        return {"shape": (len(self) // 4,), "typestr": "<f4", "version": 3}


class VersionTwo:
    """The attributes that version 2 of the array interface had, with the address in hexadecimal digits."""

    def __init__(self, base):
        self.base = base
        self.__array_shape__ = base.shape
        self.__array_typestr__ = base.dtype.str
        self.__array_data__ = (hex(base.ctypes.data), False)


class ByInstance:
    """The protocol is an attribute of the instance; the type has none."""

    def __init__(self, base):
        self.base = base
        self.__array_interface__ = dict(base.__array_interface__)


class Proxy:
    """Hands every attribute on."""

    def __init__(self, base):
        self._base = base

    def __getattr__(self, name):
        return getattr(self._base, name)


class ArraySubclass(np.ndarray):
    """An ndarray subclass that adds nothing."""


class TensorSubclass(torch.Tensor):
    """A torch.Tensor subclass that adds nothing."""


# ---- makers ----------------------------------------------------------------------------------------------------------

def make_read_only(elements, stack):
    elements.flags.writeable = False
    return elements


def make_memmap(elements, stack):
    file = stack.enter_context(tempfile.NamedTemporaryFile())     # noqa: SIM115
    mapped = np.memmap(file.name, dtype=elements.dtype, mode="w+", shape=elements.shape)
    mapped[:] = elements
    return mapped


def make_parameter(elements, stack):
    return torch.nn.Parameter(torch.from_numpy(elements))


def make_torch_subclass(elements, stack):
    return torch.from_numpy(elements).as_subclass(TensorSubclass)


def make_bytearray(elements, stack):
    return bytearray(elements.tobytes())


def make_strided_memoryview(elements, stack):
    return memoryview(elements)[::2]


def make_scalar_memoryview(elements, stack):
    return memoryview(elements)


def make_array(elements, stack):
    return array.array(elements.dtype.char, elements.tolist())


def make_mmap(elements, stack):
    mapped = mmap.mmap(-1, elements.nbytes)
    mapped[:] = elements.tobytes()
    return mapped


def make_read_only_mmap(elements, stack):
    file = stack.enter_context(tempfile.NamedTemporaryFile())     # noqa: SIM115
    file.write(elements.tobytes())
    file.flush()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def make_ctypes(elements, stack):
    rows, columns = elements.shape
    return ((ctypes.c_float * columns) * rows).from_buffer(elements)


def make_shared_memory(elements, stack):
    memory = shared_memory.SharedMemory(create=True, size=elements.nbytes)
    # The system may round the size up to pages.
    view = memory.buf[:elements.nbytes]
    view[:] = elements.tobytes()
    stack.callback(close_shared_memory, memory)
    stack.callback(view.release)
    return view


def close_shared_memory(memory):
    memory.close()
    memory.unlink()


def make_image(elements, stack):
    return Image.fromarray(elements)


# ---- the table -------------------------------------------------------------------------------------------------------

class Exporter(NamedTuple):
    name: str
    make: Callable[[np.ndarray, contextlib.ExitStack], Any]
    shape: tuple = (6, 4)
    dtype: str = "float32"
    readonly: bool = False
    written: bool = False                           # … though somebody can still write to it
    keeps: str = "base"
    address: Callable[[Any], int] | None = None     # None: that of the elements; see also ``unseen``
    unseen: bool = False                            # each export makes new memory, so no address is to be expected
    once: bool = False                              # a capsule
    detach: bool = False
    seen_as: tuple[tuple, str] | None = None        # shape and dtype, where the object has others than the elements
    step: int = 1                                   # of the first axis, where the object has every so many rows
    library: str = ""                               # the importer that gives the object itself back
    protocol: str = ""
    needs: tuple[str, ...] = ()                     # libraries


def base_address(obj):
    return obj.ctypes.data


def make_arrow(elements, stack):
    return pyarrow.Array.from_buffers(pyarrow.float32(), elements.size, [None, pyarrow.py_buffer(elements)])


class ArrowInterface:
    """What offers nothing but Arrow's interface."""

    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


OF_TORCH = "exchange_api" if hasattr(torch.Tensor, "__dlpack_c_exchange_api__") else "dlpack"      # before 2.10
OF_ARROW = "arrow" if release(getattr(pyarrow, "__version__", "26")) < (26,) else "dlpack"
EXPORTERS = (
    Exporter("ndarray", lambda e, s: e, library="numpy", protocol="numpy"),
    Exporter("ndarray read-only", make_read_only, readonly=True, written=True, library="numpy", protocol="numpy"),
    Exporter("ndarray subclass", lambda e, s: e.view(ArraySubclass), protocol="numpy"),
    Exporter("memmap", make_memmap, keeps="count", address=base_address, protocol="numpy"),
    Exporter("torch.Tensor", lambda e, s: torch.from_numpy(e), library="torch", protocol=OF_TORCH, needs=("torch",)),
    Exporter("torch Parameter", make_parameter, detach=True, library="torch", protocol=OF_TORCH, needs=("torch",)),
    Exporter("torch subclass", make_torch_subclass, library="torch", protocol=OF_TORCH, needs=("torch",)),
    Exporter("jax.Array", lambda e, s: jax.dlpack.from_dlpack(e), readonly=True, library="jax", protocol="buffer",
             needs=("jax",)),
    Exporter("StridedMemoryView", lambda e, s: StridedMemoryView.from_any_interface(e, stream_ptr=-1),
             protocol="exchange_api", needs=("cuda",)),
    Exporter("array_api_strict", lambda e, s: array_api_strict.asarray(e, copy=False), protocol="dlpack",
             needs=("array_api_strict",)),
    Exporter("pyarrow Array", make_arrow, shape=(24,), readonly=True, protocol=OF_ARROW, needs=("pyarrow",)),
    Exporter("Arrow's interface", lambda e, s: ArrowInterface(make_arrow(e, s)), shape=(24,), readonly=True,
             protocol="arrow", needs=("pyarrow",)),
    Exporter("pyarrow Tensor", lambda e, s: pyarrow.Tensor.from_numpy(e), protocol="dlpack", needs=("pyarrow",)),
    # A pyarrow buffer calls its bytes signed.
    Exporter("pyarrow Buffer", lambda e, s: pyarrow.py_buffer(e), shape=(24,), dtype="int8", protocol="buffer",
             needs=("pyarrow",)),
    Exporter("Pillow Image", make_image, dtype="uint8", readonly=True, keeps="", unseen=True,
             protocol="array_interface", needs=("PIL",)),
    Exporter("bytes", lambda e, s: e.tobytes(), shape=(24,), dtype="uint8", readonly=True, keeps="count",
             address=buffer_address, protocol="buffer"),
    Exporter("bytearray", make_bytearray, shape=(24,), dtype="uint8", keeps="count", address=buffer_address,
             protocol="buffer"),
    Exporter("memoryview", lambda e, s: memoryview(e), shape=(24,), dtype="uint8", protocol="buffer",
             library="memoryview"),
    Exporter("memoryview cast", lambda e, s: memoryview(e.reshape(-1).view("uint8")).cast("f", e.shape),
             protocol="buffer", library="memoryview"),
    Exporter("memoryview strided", make_strided_memoryview, step=2, protocol="buffer", library="memoryview"),
    Exporter("memoryview 0-d", make_scalar_memoryview, shape=(), protocol="buffer", library="memoryview"),
    Exporter("array.array", make_array, shape=(24,), keeps="count", address=buffer_address, protocol="buffer"),
    Exporter("mmap", make_mmap, shape=(24,), dtype="uint8", keeps="count", address=buffer_address, protocol="buffer"),
    Exporter("mmap read-only", make_read_only_mmap, shape=(24,), dtype="uint8", readonly=True, keeps="count",
             address=buffer_address, protocol="buffer"),
    Exporter("ctypes array", make_ctypes, protocol="buffer"),
    Exporter("SharedMemory.buf", make_shared_memory, shape=(24,), dtype="uint8", keeps="count",
             address=buffer_address, protocol="buffer", library="memoryview"),
    Exporter("array_struct", lambda e, s: ArrayStruct(e), protocol="array_struct"),
    Exporter("array_interface address", lambda e, s: ArrayInterface(e), protocol="array_interface"),
    Exporter("array_interface buffer", lambda e, s: BufferInterface(e), keeps="count",
             address=lambda obj: buffer_address(obj.room) + obj.OFFSET, protocol="array_interface"),
    Exporter("array_interface without data", lambda e, s: OwnBufferInterface(e.tobytes()), shape=(24,), keeps="count",
             address=buffer_address, protocol="array_interface"),
    Exporter("array_interface version 2", lambda e, s: VersionTwo(e), protocol="array_interface"),
    Exporter("instance attribute", lambda e, s: ByInstance(e), protocol="array_interface"),
    Exporter("proxy", lambda e, s: Proxy(versioned(e)), protocol="dlpack" if BEFORE_NUMPY_2_1 else "numpy"),
    Exporter("legacy capsule", lambda e, s: e.__dlpack__(), once=True, protocol="dlpack (legacy)"),
    Exporter("versioned capsule", lambda e, s: versioned(e).__dlpack__(max_version=(1, 0)), once=True,
             protocol="dlpack"),
    Exporter("versioned capsule read-only", lambda e, s: versioned(make_read_only(e, s)).__dlpack__(
        max_version=(1, 0)), once=True, readonly=True, written=True, protocol="dlpack"),
    Exporter("legacy __dlpack__", lambda e, s: LegacyProducer(e), protocol="dlpack (legacy)"),
    Exporter("versioned __dlpack__", lambda e, s: VersionedProducer(versioned(e)), protocol="dlpack"),
    Exporter("dlbridge.Tensor", lambda e, s: dlbridge.asdlpack(e), library="dlbridge", protocol="exchange_api"),
)
