"""Whether the memory of a legacy DLPack capsule is read-only, which the capsule does not say.

DLPack before 1.0 has no flags, and libraries with immutable arrays use it all the same (jax#40789). A class that hands
on the ``__dlpack__`` of such an array does not show whose memory it is. The capsule's deleter does: it is code of the
library that made the capsule.
"""

from cpython.buffer cimport PyBUF_FULL_RO, Py_buffer, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer

from dlbridge._core.block cimport Managed, managed_data
from dlbridge._core.sources.offer cimport library
from dlbridge._core.system cimport file_of

cdef dict known_deleters = {}       # frees_immutable() by the deleter's address, for deleters that lie in a file


cdef bint frees_immutable(const void* deleter) except -1:
    found = known_deleters.get(<size_t> deleter)
    if found is not None:
        return found
    # A function that was made while the program runs, by ctypes for example, is in no file.
    file = file_of(deleter)
    if not file:
        return False
    owner = library().library_with(file)
    immutable = owner is not None and library().makes_immutable(owner)
    known_deleters[<size_t> deleter] = immutable
    return immutable


cdef bint is_read_only_elsewhere(object obj, const Managed* managed) except -1:
    cdef size_t address = <size_t> managed_data(managed)
    for name in ("__array_interface__", "__cuda_array_interface__"):
        try:
            data = getattr(obj, name)["data"]
            if data[0] == address and data[1]:
                return True
        except (MemoryError, RecursionError):
            raise
        except Exception:
            pass                # the other protocol serves another kind of memory, or none
    return is_read_only_buffer(obj, address)


cdef bint is_read_only_buffer(object obj, size_t address) except -1:
    cdef Py_buffer view
    if not PyObject_CheckBuffer(obj):
        return False
    try:
        PyObject_GetBuffer(obj, &view, PyBUF_FULL_RO)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return False
    read_only = view.readonly and <size_t> view.buf == address
    PyBuffer_Release(&view)
    return read_only
