"""Copies of host memory in memory of a device's pool: pool.pxd says for whom."""

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport (
    Managed,
    managed_count,
    managed_data,
    managed_drop,
    managed_release,
    managed_share,
    managed_strides,
)
from dlbridge._core.copying cimport Copy
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.place cimport COPY, describe_copy, is_bool, place


cdef Managed* sent_to_pool(Managed* managed, const DLDevice* device) except NULL:
    cdef Managed* made = device_operations().allocate(managed, device)
    try:
        if managed_count(managed):
            fill(made, managed)
    except BaseException:
        managed_release(made)
        raise
    return made


cdef int fill(Managed* made, Managed* source) except -1:
    cdef Managed* compact
    cdef Copy copy
    describe_copy(&copy, made, source)
    if device_operations().upload(made, &copy):
        return 0
    if managed_strides(made) == managed_strides(source) and not is_bool(source):
        return device_operations().send(made, managed_data(source))
    compact = place(managed_share(source), COPY, NULL)
    try:
        return device_operations().send(made, managed_data(compact))
    finally:
        managed_drop(compact)
