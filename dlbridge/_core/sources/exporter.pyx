"""Whether the memory of a legacy DLPack capsule may be written, which the capsule does not say.

DLPack before 1.0 has no flags, and libraries with immutable arrays use it all the same (jax#40789). A class that hands
on the ``__dlpack__`` of such an array does not show whose memory it is. The capsule's deleter does: it is code of the
library that made the capsule.
"""

from cpython.buffer cimport PyBUF_STRIDES, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer

from libc.stdint cimport uint64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport PROTOCOL_DLPACK_LEGACY, PROTOCOL_DLPACK_UNSAID, Managed, managed_data
from dlbridge._core.sources.offer cimport library


cdef extern from "dlfcn.h" nogil:
    ctypedef struct Dl_info:
        const char* dli_fname
    int dladdr(const void* address, Dl_info* info)


cdef dict known_deleters = {}       # Access by the deleter's address, for deleters that lie in a file


cdef Access access_by_deleter(const void* deleter) except? ACCESS_UNSAID:
    """What the library of this deleter gives, or ACCESS_UNSAID where no library of ``libraries/`` has it."""
    cdef Dl_info info
    cdef Access access = ACCESS_UNSAID
    found = known_deleters.get(<size_t> deleter)
    if found is not None:
        return <Access> <int> found
    # A function that was made while the program runs, by ctypes for example, is in no file.
    if not dladdr(deleter, &info) or info.dli_fname == NULL:
        return ACCESS_UNSAID
    owner = library().library_with(info.dli_fname)
    if owner is not None:
        access = ACCESS_READ_ONLY if library().makes_immutable(owner) else ACCESS_WRITABLE
    known_deleters[<size_t> deleter] = <int> access
    return access


cdef void set_access(Managed* managed, Access access) noexcept:
    """Note whether the memory of a legacy capsule may be written. If that is not known, it is flagged as read-only."""
    managed.protocol = PROTOCOL_DLPACK_UNSAID if access == ACCESS_UNSAID else PROTOCOL_DLPACK_LEGACY
    managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY
    if access != ACCESS_WRITABLE:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY


cdef bint is_writable_elsewhere(object obj, const Managed* managed) except -1:
    """Whether another protocol of the object gives the same memory, and says that it may be written."""
    cdef size_t address = <size_t> managed_data(managed)
    for name in ("__array_interface__", "__cuda_array_interface__"):
        try:
            data = getattr(obj, name)["data"]
            if data[0] == address and not data[1]:
                return True
        except Exception:
            pass                # the other protocol serves another kind of memory, or none
    return is_writable_buffer(obj, address)


cdef bint is_writable_buffer(object obj, size_t address) except -1:
    cdef Py_buffer view
    try:
        PyObject_GetBuffer(obj, &view, PyBUF_STRIDES | PyBUF_WRITABLE)
    except Exception:
        return False
    writable = <size_t> view.buf == address
    PyBuffer_Release(&view)
    return writable
