"""The C exchange API on the library's type."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed, managed_drop_second, managed_release, managed_retain
from dlbridge._core.target cimport Target
from dlbridge._core.targets.importer cimport consumer_error


cdef object deliver(Managed* managed, Target target)

cdef inline object array_of_table(Managed* managed, Target target):
    """The array that the library's table makes of a block, which is stolen, also on failure."""
    cdef void* made = NULL
    # The library steals the block. When it fails, it may have run the deleter (cuda.core) or not (torch). A second
    # reference keeps the block readable, and the block tells whether the owner is still to be released.
    managed_retain(managed)
    if target.api.managed_tensor_to_py_object_no_sync(&managed.abi, &made) or made == NULL:
        managed_release(managed)
        raise consumer_error(target)
    # The array owns the block now. No other code has the array yet, so its deleter cannot run before this returns.
    managed_drop_second(managed)
    array = <object> made
    Py_DECREF(array)            # the reference that the library gave
    return array

cdef object deliver_capsule(Managed* managed, Target target)
cdef object table_stream(PyObject* target, const DLDevice* device, int64_t* out)
