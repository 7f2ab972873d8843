"""One table of dtypes: DLDataType, name, typestr, PEP 3118 format and NumPy type, in every direction."""

from libc.stdint cimport int64_t, uint64_t

from cpython.object cimport PyObject

from dlbridge._core.abi cimport DATA_TYPE_CODES, DLDataType
from dlbridge._core.atomic cimport load_pointer


cdef enum:
    NO_ROW = -1
    MAX_ROWS = 64               # a set of rows is one uint64
    NUMPY_TYPES = 32            # NumPy's own type numbers are below this one
    MAX_BITS = 128


ctypedef struct DTypeRow:
    DLDataType dlpack
    int64_t item_bytes          # of one element; 1 for elements below a byte, as if they were padded
    int item_shift              # item_bytes is two to this power
    bint subbyte                # elements below a byte lie packed, unless flagged as padded
    char kind                   # the kind in a typestr: b i u f c, or 'V' for a type that no typestr can name
    const char* format          # PEP 3118, or NULL


cdef DTypeRow rows[MAX_ROWS]
cdef signed char by_numpy_type[NUMPY_TYPES]
cdef signed char by_code_and_bits[DATA_TYPE_CODES][MAX_BITS + 1]

cdef PyObject* numpy_dtypes[MAX_ROWS]       # in native byte order, owned; NULL until first needed

cdef inline const DTypeRow* get_row(int row) noexcept nogil:
    return &rows[row]

cdef inline int find_numpy(int number, object array) except -2:
    """The row of an array whose dtype has this number, of either byte order, or NO_ROW."""
    if 0 <= number < NUMPY_TYPES:
        return by_numpy_type[number]
    return find_registered(number, array)

cdef int find_registered(int number, object array) except -2

cdef inline int find_dlpack(DLDataType dtype) noexcept nogil:
    """The row of a DLDataType, or NO_ROW."""
    if dtype.lanes == 1 and dtype.code < DATA_TYPE_CODES and dtype.bits <= MAX_BITS:
        return by_code_and_bits[dtype.code][dtype.bits]
    return find_lanes(dtype)

cdef int find_lanes(DLDataType dtype) noexcept nogil

cdef signed char nearest[MAX_ROWS]

cdef inline int nearest_row(int row) noexcept nogil:
    """The row of the type that stands in for a wide one where a library lacks that, or NO_ROW."""
    return nearest[row]
cdef int find_sized(char kind, Py_ssize_t item_bytes) noexcept nogil
cdef int find_typestr(str typestr, bint* swapped) except -2
cdef int find_arrow(const char* format) noexcept nogil
cdef int find_format(const char* format, Py_ssize_t item_bytes, bint* swapped) noexcept nogil

cdef inline object numpy_dtype(int row):
    """The NumPy dtype of a row. MissingLibraryError if it is a dtype of ml_dtypes, and that is missing or too old."""
    cdef PyObject* found = <PyObject*> load_pointer(<void**> &numpy_dtypes[row])
    return <object> found if found != NULL else import_numpy_dtype(row)

cdef object import_numpy_dtype(int row)
cdef str row_name(int row)
cdef object row_typestr(int row)
cdef int find_name(str name) except -2
cdef uint64_t rows_named(object names)
cdef str dtype_name(DLDataType dtype)
