"""One table of dtypes: DLDataType, name, typestr, PEP 3118 format and NumPy type, in every direction.

A new dtype is a new line of TABLE. Names are those of NumPy, or of ml_dtypes for the types that NumPy lacks. torch and
JAX use the same names.
"""

import importlib
import sys

import numpy as np

from cpython.ref cimport Py_INCREF
from libc.string cimport memset

from dlbridge._core cimport abi
from dlbridge._core.atomic cimport load_row, replace_pointer, store_row

from dlbridge.errors import MissingLibraryError, refusal

cdef extern from "numpy/ndarraytypes.h":
    int NPY_USERDEF


# int64 has two letters in native PEP 3118. The letter of the C type long is preferred, as in NumPy.
cdef bytes INT64 = b"l" if sizeof(long) == 8 else b"q"
cdef bytes UINT64 = b"L" if sizeof(long) == 8 else b"Q"

# name, code, bits, lanes, typestr kind, PEP 3118
TABLE = (
    ("bool", abi.kDLBool, 8, 1, "b", b"?"),
    ("int8", abi.kDLInt, 8, 1, "i", b"b"),
    ("int16", abi.kDLInt, 16, 1, "i", b"h"),
    ("int32", abi.kDLInt, 32, 1, "i", b"i"),
    ("int64", abi.kDLInt, 64, 1, "i", INT64),
    ("uint8", abi.kDLUInt, 8, 1, "u", b"B"),
    ("uint16", abi.kDLUInt, 16, 1, "u", b"H"),
    ("uint32", abi.kDLUInt, 32, 1, "u", b"I"),
    ("uint64", abi.kDLUInt, 64, 1, "u", UINT64),
    ("float16", abi.kDLFloat, 16, 1, "f", b"e"),
    ("float32", abi.kDLFloat, 32, 1, "f", b"f"),
    ("float64", abi.kDLFloat, 64, 1, "f", b"d"),
    ("complex32", abi.kDLComplex, 32, 1, "c", b"Ze"),
    ("complex64", abi.kDLComplex, 64, 1, "c", b"Zf"),
    ("complex128", abi.kDLComplex, 128, 1, "c", b"Zd"),
    ("bfloat16", abi.kDLBfloat, 16, 1, "V", None),
    ("float8_e3m4", abi.kDLFloat8_e3m4, 8, 1, "V", None),
    ("float8_e4m3", abi.kDLFloat8_e4m3, 8, 1, "V", None),
    ("float8_e4m3b11fnuz", abi.kDLFloat8_e4m3b11fnuz, 8, 1, "V", None),
    ("float8_e4m3fn", abi.kDLFloat8_e4m3fn, 8, 1, "V", None),
    ("float8_e4m3fnuz", abi.kDLFloat8_e4m3fnuz, 8, 1, "V", None),
    ("float8_e5m2", abi.kDLFloat8_e5m2, 8, 1, "V", None),
    ("float8_e5m2fnuz", abi.kDLFloat8_e5m2fnuz, 8, 1, "V", None),
    ("float8_e8m0fnu", abi.kDLFloat8_e8m0fnu, 8, 1, "V", None),
    ("float6_e2m3fn", abi.kDLFloat6_e2m3fn, 6, 1, "V", None),
    ("float6_e3m2fn", abi.kDLFloat6_e3m2fn, 6, 1, "V", None),
    ("float4_e2m1fn", abi.kDLFloat4_e2m1fn, 4, 1, "V", None),
    ("float4_e2m1fn_x2", abi.kDLFloat4_e2m1fn, 4, 2, "V", None),
    ("int4", abi.kDLInt, 4, 1, "V", None),
    ("uint4", abi.kDLUInt, 4, 1, "V", None),
    ("int2", abi.kDLInt, 2, 1, "V", None),
    ("uint2", abi.kDLUInt, 2, 1, "V", None),
    ("int1", abi.kDLInt, 1, 1, "V", None),
    ("uint1", abi.kDLUInt, 1, 1, "V", None),
)
NAMES = tuple(line[0] for line in TABLE)

# What each PEP 3118 letter can stand for. "l" has 8 bytes natively and 4 in standard size, and "P" is an address.
LETTERS = {
    "?": ("bool",), "c": ("uint8",),
    "b": ("int8",), "h": ("int16",), "i": ("int32",), "l": ("int32", "int64"), "q": ("int64",), "n": ("int64",),
    "B": ("uint8",), "H": ("uint16",), "I": ("uint32",), "L": ("uint32", "uint64"), "Q": ("uint64",),
    "N": ("uint64",), "P": ("uint64",), "e": ("float16",), "f": ("float32",), "d": ("float64",),
}
# The letters of Arrow's format strings (CDataInterface).
ARROW_LETTERS = {
    "c": "int8", "s": "int16", "i": "int32", "l": "int64", "C": "uint8", "S": "uint16", "I": "uint32", "L": "uint64",
    "e": "float16", "f": "float32", "g": "float64",
}
# What stands in for a wide type that a library lacks.
NEAREST = {"float64": "float32", "complex128": "complex64", "int64": "int32"}

cdef enum:
    MAX_BYTES = MAX_BITS // 8
    USER_TYPES = 64             # how many registered type numbers are remembered
    UNSEEN = -2
    SWAPPED_TYPESTR = 1 << 8

cdef signed char by_kind[256][MAX_BYTES + 1]
cdef signed char by_letter[256][MAX_BYTES + 1]
cdef signed char by_arrow_letter[256]
cdef signed char by_user_type[USER_TYPES]
cdef dict row_by_typestr = {}           # the row, with SWAPPED_TYPESTR where the bytes are in the other order
cdef dict row_by_name = {name: row for row, name in enumerate(NAMES)}
cdef str NATIVE = "<" if sys.byteorder == "little" else ">"
cdef bint LITTLE_ENDIAN = sys.byteorder == "little"


cdef int _build_tables() except -1:
    cdef DTypeRow* row
    memset(by_code_and_bits, NO_ROW, sizeof(by_code_and_bits))
    memset(by_kind, NO_ROW, sizeof(by_kind))
    memset(by_letter, NO_ROW, sizeof(by_letter))
    memset(by_arrow_letter, NO_ROW, sizeof(by_arrow_letter))
    memset(by_numpy_type, NO_ROW, sizeof(by_numpy_type))
    memset(by_user_type, UNSEEN, sizeof(by_user_type))
    memset(nearest, NO_ROW, sizeof(nearest))
    for name, near in NEAREST.items():
        nearest[row_by_name[name]] = row_by_name[near]
    for index, (name, code, bits, lanes, kind, pep3118) in enumerate(TABLE):
        row = &rows[index]
        row.dlpack.code, row.dlpack.bits, row.dlpack.lanes = code, bits, lanes
        row.item_bytes = (bits * lanes + 7) // 8
        row.item_shift = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}[row.item_bytes]
        row.subbyte = bits * lanes < 8
        row.kind = ord(kind)
        row.format = NULL
        if pep3118 is not None:
            row.format = <const char*> pep3118
        if lanes == 1:
            by_code_and_bits[code][bits] = index
        if kind != "V":
            by_kind[ord(kind)][row.item_bytes] = index
            _add_typestrs(f"{kind}{row.item_bytes}", index, row.item_bytes > 1)
    for letter, names in LETTERS.items():
        for name in names:
            index = row_by_name[name]
            by_letter[ord(letter)][rows[index].item_bytes] = index
    for letter, name in ARROW_LETTERS.items():
        by_arrow_letter[ord(letter)] = row_by_name[name]
    for char in "?bhilqBHILQefdFD":
        dtype = np.dtype(char)
        by_numpy_type[dtype.num] = row_by_name[dtype.name]


cdef int find_lanes(DLDataType dtype) noexcept nogil:
    """The row of a DLDataType that may have lanes, or NO_ROW."""
    for row in range(MAX_ROWS):
        if (rows[row].dlpack.lanes == dtype.lanes and rows[row].dlpack.bits == dtype.bits
                and rows[row].dlpack.code == dtype.code and dtype.lanes):
            return row
    return NO_ROW


def _add_typestrs(text, row, ordered):
    """Add a typestr with every prefix. Single bytes have no order, but not every producer writes "|" for them."""
    for order in "<>|=":
        foreign = ordered and order in "<>" and order != NATIVE
        row_by_typestr[order + text] = row | (SWAPPED_TYPESTR if foreign else 0)


cdef int find_sized(char kind, Py_ssize_t item_bytes) noexcept nogil:
    """The row of a typestr's kind and size, or NO_ROW."""
    return by_kind[<unsigned char> kind][item_bytes] if 0 < item_bytes <= MAX_BYTES else NO_ROW


cdef int find_typestr(str typestr, bint* swapped) except -2:
    """The row of an array interface's typestr (``<f4``), or NO_ROW."""
    found = row_by_typestr.get(typestr)
    if found is None:
        return NO_ROW
    swapped[0] = <int> found & SWAPPED_TYPESTR
    return <int> found & ~SWAPPED_TYPESTR


cdef int find_format(const char* format, Py_ssize_t item_bytes, bint* swapped) noexcept nogil:
    """The row of a PEP 3118 format of one element, or NO_ROW.

    The size is taken from item_bytes, since exporters disagree about the letters (ctypes says ``<l`` for 8 bytes). A
    size that the letter cannot have gives NO_ROW.
    """
    cdef char prefix = b"@"
    cdef bint is_complex
    cdef int row
    swapped[0] = False
    if not 0 < item_bytes <= MAX_BYTES:
        return NO_ROW
    if format == NULL:                      # PEP 3118: NULL stands for unsigned bytes
        return find_sized(b"u", item_bytes) if item_bytes == 1 else NO_ROW
    if format[0] in (b"@", b"=", b"<", b">", b"!"):
        prefix = format[0]
        format += 1
    if item_bytes > 1:
        swapped[0] = prefix in (b">", b"!") if LITTLE_ENDIAN else prefix == b"<"
    is_complex = format[0] == b"Z"
    format += is_complex
    if format[0] == 0 or format[1] != 0:
        return NO_ROW
    row = by_letter[<unsigned char> format[0]][item_bytes >> is_complex]
    if not is_complex or row == NO_ROW:
        return row
    return find_sized(b"c", item_bytes) if rows[row].kind == b"f" else NO_ROW


cdef int find_arrow(const char* format) noexcept nogil:
    """The row of an Arrow format string, or NO_ROW."""
    return by_arrow_letter[<unsigned char> format[0]] if format[0] and not format[1] else NO_ROW


cdef int find_registered(int number, object array) except -2:
    """The row of a type that another package registered with NumPy. Such types have numbers from NPY_USERDEF on."""
    cdef int slot = number - NPY_USERDEF
    cdef int row
    if not 0 <= slot < USER_TYPES:
        return _find_registered(array.dtype)
    row = load_row(&by_user_type[slot])
    if row == UNSEEN:
        row = _find_registered(array.dtype)
        store_row(&by_user_type[slot], row)
    return row


cdef int _find_registered(object dtype) except -2:
    """The row of a registered dtype. Only ml_dtypes' dtypes are taken, since their bits are known."""
    if dtype.type.__module__.partition(".")[0] != "ml_dtypes":
        return NO_ROW
    return row_by_name.get(dtype.name, NO_ROW)


cdef object import_numpy_dtype(int row):
    dtype = _import_numpy_dtype(NAMES[row])
    # Another thread can have stored its dtype first. Only the dtype that is stored gets a reference.
    if replace_pointer(<void**> &numpy_dtypes[row], NULL, <void*> dtype):
        Py_INCREF(dtype)
    return dtype


def _import_numpy_dtype(name):
    if rows[row_by_name[name]].kind != b"V" and name != "complex32":
        return np.dtype(name)
    try:
        ml_dtypes = importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise refusal(MissingLibraryError, "numpy", "dtype", name, "is one that NumPy has through ml_dtypes only",
                      "pip install ml_dtypes") from error
    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        raise refusal(MissingLibraryError, "numpy", "dtype", name,
                      f"is one that ml_dtypes {ml_dtypes.__version__} does not have", "pip install -U ml_dtypes")
    return np.dtype(scalar)


cdef str row_name(int row):
    return NAMES[row]


cdef object row_typestr(int row):
    """The typestr, or None for a type that the array interface cannot name."""
    if rows[row].kind == b"V":
        return None
    if rows[row].item_bytes == 1:
        return f"|{chr(rows[row].kind)}1"
    return f"{NATIVE}{chr(rows[row].kind)}{rows[row].item_bytes}"


cdef int find_name(str name) except -2:
    """The row of a name of NumPy or ml_dtypes, or NO_ROW."""
    return row_by_name.get(name, NO_ROW)


cdef uint64_t rows_named(object names):
    """The set of rows with these names, one bit for each row. Names that the table lacks are ignored."""
    cdef uint64_t found = 0
    for name in names:
        row = row_by_name.get(name)
        if row is not None:
            found |= <uint64_t> 1 << <int> row
    return found


cdef str dtype_name(DLDataType dtype):
    """The name of a DLDataType, or its three numbers."""
    row = find_dlpack(dtype)
    return NAMES[row] if row >= 0 else f"(code={dtype.code}, bits={dtype.bits}, lanes={dtype.lanes})"


_build_tables()
