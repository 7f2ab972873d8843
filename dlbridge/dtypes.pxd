"""One table of dtypes: DLDataType, name, typestr, PEP 3118 format and NumPy type, in every direction."""

from libc.stdint cimport int64_t, uint64_t

cimport numpy

from dlbridge.abi cimport DLDataType


cdef enum:
    NO_ROW = -1
    MAX_ROWS = 64               # a set of rows is one uint64


ctypedef struct DTypeRow:
    DLDataType dlpack
    int64_t item_bytes          # of one element; where elements are below a byte, when they are padded to one
    bint subbyte                # elements below a byte lie packed, unless flagged as padded
    char kind                   # of typestr: b i u f c, or 'V' where typestr has no word for the type
    const char* format          # PEP 3118, or NULL


cdef const DTypeRow* get_row(int row) noexcept nogil
cdef int find_dlpack(DLDataType dtype) noexcept nogil
cdef int find_sized(char kind, Py_ssize_t item_bytes) noexcept nogil
cdef int find_typestr(str typestr, bint* swapped) except -2
cdef int find_format(const char* format, Py_ssize_t item_bytes, bint* swapped) noexcept nogil
cdef int find_numpy(numpy.dtype dtype) except -2
cdef numpy.dtype numpy_dtype(int row, bint swapped)
cdef str row_name(int row)
cdef object row_typestr(int row)
cdef uint64_t rows_named(object names)
cdef str describe(DLDataType dtype)
cdef str way_out(object numpy_kind)
