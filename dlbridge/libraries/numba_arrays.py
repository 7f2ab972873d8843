"""Numba's device arrays, made by their class, without the contexts and questions to the driver of Numba's importer.

What is relied on
    ``DeviceNDArray``, ``MemoryPointer``, ``Stream`` and ``memory_size_from_info`` with their arguments, the class
    ``binding.CUdeviceptr``, and ``get_primary_context`` of a device in ``numba.cuda.gpus``.
How it is checked before use
    The first array on each device is made by ``numba.cuda.from_cuda_array_interface`` too. Both must be equal in type,
    address, shape, strides, dtype, size, context and owner.
What happens without it
    ``numba.cuda.from_cuda_array_interface`` is called for every array.
How to delete it
    Delete this file, ``private`` and ``versions`` in ``numba.py``, and what calls it in ``_core/targets/numba.pyx``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dlbridge.libraries.library import uses_private_parts

Maker = Callable[[dict[str, Any], Any], Any]
made_on: dict[int, Maker | None] = {}       # by the number of a device, which has None if its first arrays differed


def in_use() -> bool:
    return any(made_on.values())


def check(cuda: Any, index: int, interface: dict[str, Any], owner: Any, expected: Any) -> None:
    """Find out whether the arrays on a device can be made directly, by one that Numba's importer made."""
    maker = None
    if uses_private_parts("numba"):
        try:
            direct = new_maker(cuda, index)
            if described(direct(interface, owner)) == described(expected):
                maker = direct
        except Exception:       # what is private may raise anything
            pass
    made_on.setdefault(index, maker)


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
