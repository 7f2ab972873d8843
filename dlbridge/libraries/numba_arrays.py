"""Numba's device arrays, made by their class, without the contexts and questions to the driver of Numba's importer.

What is relied on
    ``DeviceNDArray``, ``MemoryPointer``, ``Stream`` and ``memory_size_from_info`` with their arguments, the class
    ``binding.CUdeviceptr``, and of a device in ``numba.cuda.gpus``, ``get_primary_context`` and ``primary_context``,
    with its ``handle``.
How it is checked before use
    The first array on each device, and the first with a stream, are made by ``numba.cuda.from_cuda_array_interface``
    too. Both must be equal in type, address, shape, strides, dtype, size, stream, context and owner.
What happens without it
    ``numba.cuda.from_cuda_array_interface`` is called for every array, and ``numba.cuda.current_context`` for uploads.
How to delete it
    Delete this file, ``private`` and ``versions`` in ``numba.py``, and what calls it in ``_core/targets/numba.pyx``.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dlbridge.libraries.library import uses_private_parts

Maker = Callable[[dict[str, Any], Any], Any]
# By the number of a device, and whether a stream is named; None where the first arrays differed.
makers: dict[tuple[int, bool], Maker | None] = {}


def in_use() -> bool:
    return any(list(makers.values()))


@functools.cache
def may_be_used() -> bool:
    return uses_private_parts("numba")


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
