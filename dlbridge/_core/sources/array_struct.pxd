"""``__array_struct__``: the struct of NumPy's array interface, and its flags."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)

# The numbers in brackets are byte offsets on a 64-bit machine.
ctypedef struct PyArrayInterface:
    int two                     # [0] ARRAY_STRUCT_VERSION
    int nd                      # [4]
    char typekind               # [8]
    int itemsize                # [12]
    int flags                   # [16]
    Py_ssize_t* shape           # [24]
    Py_ssize_t* strides         # [32]
    void* data                  # [40]
    void* descr                 # [48]

cdef enum:
    ARRAY_STRUCT_VERSION = 2

cdef enum ArrayStructFlag:
    ARRAY_STRUCT_C_CONTIGUOUS = 0x1
    ARRAY_STRUCT_NOTSWAPPED = 0x200
    ARRAY_STRUCT_WRITEABLE = 0x400
