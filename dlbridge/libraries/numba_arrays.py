"""Numba's device arrays, made by their class and read by their attributes.

Numba's importer enters contexts and asks the driver, and its interface takes longer than a hand-over.

What is relied on
    ``DeviceNDArray``, ``MemoryPointer``, ``Stream`` and ``memory_size_from_info`` with their arguments, the class
    ``binding.CUdeviceptr``, and of a device in ``numba.cuda.gpus``, ``get_primary_context`` and ``primary_context``,
    with its ``handle``. Of an array, ``device_ctypes_pointer``, ``shape``, ``strides``, ``dtype`` and ``stream``.
How it is checked before use
    The first array on each device, and the first with a stream, are made by ``numba.cuda.from_cuda_array_interface``
    too. Both must be equal in type, address, shape, strides, dtype, size, stream, context and owner. The interface of
    the first array of each type, with and without a stream, must say what its attributes say, and no other strides.
What happens without it
    ``numba.cuda.from_cuda_array_interface`` is called for every array, ``numba.cuda.current_context`` for uploads, and
    ``__cuda_array_interface__`` is read.
How to delete it
    Delete this file, ``private``, ``versions`` and ``interface`` in ``numba.py``, and what calls it in
    ``_core/targets/numba.pyx``.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dlbridge.libraries.library import uses_internals

Maker = Callable[[dict[str, Any], Any], Any]
# By the number of a device, and whether a stream is named; None where the first arrays differed.
makers: dict[tuple[int, bool], Maker | None] = {}
# By an array's type and that of its stream: whether its attributes say what its interface says.
readers: dict[tuple[Any, Any], bool] = {}


def in_use() -> bool:
    return any(list(makers.values()))


@functools.cache
def may_be_used() -> bool:
    return uses_internals("numba")


def primary_context(cuda: Any, index: int) -> int:
    """The handle of the context in which Numba works on a device; 0 if it has none yet, or if that is not known."""
    try:
        context = cuda.gpus[index].primary_context if may_be_used() else None
        return 0 if context is None else int(context.handle)
    except Exception:           # what is private may raise anything
        return 0


def check(cuda: Any, index: int, interface: dict[str, Any], owner: Any, expected: Any) -> None:
    """Find out whether such arrays on a device can be made directly, by one that Numba's importer made."""
    maker = None
    if may_be_used():
        try:
            direct = new_maker(cuda, index)
            if described(direct(interface, owner)) == described(expected):
                maker = direct
        except Exception:
            pass
    makers.setdefault((index, interface.get("stream") is not None), maker)


def interface_of(array: Any) -> Any:
    """The ``__cuda_array_interface__`` of an array, in a new dictionary; it may have strides although it is compact."""
    kind = type(array), type(getattr(array, "stream", None))
    readable = readers.get(kind)
    if readable:
        return attributes_of(array)
    interface = array.__cuda_array_interface__
    if readable is None:
        try:
            read = attributes_of(array)
            said = read if interface["strides"] is not None else read | {"strides": None}
            readers[kind] = may_be_used() and said == interface
        except Exception:
            readers[kind] = False
    return dict(interface) if isinstance(interface, dict) else interface


def attributes_of(array: Any) -> dict[str, Any]:
    """What the interface of an array says, by the attributes that it is made of."""
    stream = array.stream
    return {"shape": array.shape, "strides": array.strides, "data": (array.device_ctypes_pointer.value or 0, False),
            "typestr": typestr(array.dtype), "stream": int(stream) if stream != 0 else None, "version": 3}


@functools.lru_cache(maxsize=64)
def typestr(dtype: np.dtype[Any]) -> str:
    return dtype.str


def described(array: Any) -> tuple[Any, ...]:
    pointer = array.gpu_data
    return (type(array), array.__cuda_array_interface__, array.shape, array.strides, array.dtype, array.size,
            array.alloc_size, type(pointer), pointer.size, pointer.is_managed, id(pointer.context), id(pointer.owner))


def new_maker(cuda: Any, index: int) -> Maker:
    driver, device = cuda.cudadrv.driver, cuda.gpus[index]
    array_type, size_of = cuda.cudadrv.devicearray.DeviceNDArray, driver.memory_size_from_info

    def make(interface: dict[str, Any], owner: Any) -> Any:
        """The array of an interface that has elements; a stream that it names is ordered already."""
        shape, strides, dtype = interface["shape"], interface["strides"], np.dtype(interface["typestr"])
        handle = interface.get("stream")
        stream = 0 if handle is None else driver.Stream(driver.binding.CUstream(handle), external=True)
        pointer = driver.binding.CUdeviceptr(interface["data"][0])
        memory = driver.MemoryPointer(
            device.get_primary_context(), pointer, size=size_of(shape, strides, dtype.itemsize), owner=owner)
        return array_type(shape, strides, dtype, stream, memory)

    return make
