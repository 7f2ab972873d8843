"""View and Want: what extensions see of an array, and what they ask of it. include/dlbridge.h has them for C.

The two are frozen by the major version of the C API; tests/face/test_face.py compares them with the header.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from dlbridge._core.abi cimport DLDataType, DLManagedTensorVersioned
from dlbridge._core.block cimport Managed
from dlbridge._core.layout cimport MAX_NDIM


cdef enum WantFlags:
    WANT_WRITABLE = 1           # read-only memory is refused, and memory where a stride of 0 repeats elements
    WANT_C_ORDER = 2            # compact, the last axis fastest
    WANT_ANY_DEVICE = 4         # without this flag only host memory is given
    WANT_DETACHED = 8           # gradients are dropped
    WANT_OR_COPY = 16           # memory that does not meet the want is copied, where a copy helps
    WANT_FLAGS = 31             # all of them

ctypedef struct Want:
    uint32_t size               # of the struct that the caller has
    uint32_t flags              # WantFlags
    const char* name            # of the function, for messages; or NULL
    DLDataType dtype            # bits 0: any
    int32_t ndim                # 0, with shape NULL: any
    const int64_t* shape        # ndim extents, of which -1 is any; or NULL
    int64_t stream              # 0: the legacy default one
    const DLDataType* dtypes    # dtype_count types, of which it has one; or NULL
    int64_t dtype_count

ctypedef struct View:
    Managed memory              # of which the header shows flags and tensor
    DLManagedTensorVersioned* owner     # NULL where the object that is looked at keeps the memory
    int64_t room[2 * MAX_NDIM]  # for shape and strides
