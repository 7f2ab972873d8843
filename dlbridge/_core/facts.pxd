"""What the files of libraries/ name, as bits. The Python names are imported when the first of those files is read."""

from dlbridge._core.block cimport BYTE_STRIDES, SWAPPED
from dlbridge._core.layout cimport BACKWARD, LENGTH_1, REPEATED, STRIDED


# What a library's arrays support beyond a compact, native-endian block of whole bytes. If memory has a mark
# for it, the value is that of the mark, so that one test of the bits tells whether anything must be resolved.
cpdef enum Supports:
    SWAPPED_BYTES = SWAPPED
    ODD_STRIDES = BYTE_STRIDES  # strides that are not multiples of the item size
    NEGATIVE_STRIDES = BACKWARD
    ZERO_STRIDES = REPEATED
    ANY_STRIDES = STRIDED       # without it memory must be dense, in C order or with ANY_ORDER
    LENGTH_1_STRIDES = LENGTH_1
    READ_ONLY = 256             # memory that is flagged as read-only, which the library heeds
    PACKED = 512                # elements below a byte, side by side
    PADDED = 1024               # elements below a byte, one in each byte
    OTHER_DEVICES = 2048        # memory that is not the host's
    HOST = 4096                 # memory of the host
    PINNED = 8192               # pinned memory under its own device type
    UNIFIED = 16384             # managed memory under its own device type
    ANY_ORDER = 32768           # dense memory with any order of the axes
    SHARING = 65536             # the memory of other libraries, and not only copies of it
    BOOLS = 131072              # bools under their own type code
    WRITABLE = 262144           # memory that other code can write to, since its own arrays can be written to
    GAPS = 524288               # memory of which the elements, from the first to the last, are not all
