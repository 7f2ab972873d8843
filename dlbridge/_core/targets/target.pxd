"""Target: what a library can hold, as data, and how its array is made."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from dlbridge._core.abi cimport DLDevice, DLPackExchangeAPI
from dlbridge._core.block cimport BYTE_STRIDES, SWAPPED, Managed
from dlbridge._core.layout cimport BACKWARD, REPEATED, STRIDED
from dlbridge._core.request cimport CurrentStream


# What a library's arrays can hold beyond a compact, writable, native-endian block of whole bytes. Where memory has a
# mark for it the value is the mark's, so that one test of the bits tells whether anything must be resolved.
cdef enum Holds:
    SWAPPED_BYTES = SWAPPED
    ODD_STRIDES = BYTE_STRIDES  # no multiple of the item size
    NEGATIVE_STRIDES = BACKWARD
    ZERO_STRIDES = REPEATED
    ANY_STRIDES = STRIDED       # without it: dense, in C order or ANY_ORDER
    READ_ONLY = 256             # the consumer can be told, and heeds it
    PACKED = 512                # elements below a byte, side by side
    PADDED = 1024               # elements below a byte, one in each
    OTHER_DEVICES = 2048        # memory that is not the host's
    HOST = 4096                 # memory that is
    PINNED = 8192               # pinned memory under its own device type
    UNIFIED = 16384             # managed memory under its own device type
    ANY_ORDER = 32768           # of the axes, where not ANY_STRIDES
    SHARING = 65536             # memory of others at all, and not only copies of it
    BOOLS = 131072              # bools under their own type code


cdef class Target

# Why the target cannot have this memory in any form: an exception to raise, or None.
ctypedef object (*Accepts)(const Managed* managed, Target target)
# Makes the library's array; steals managed, also when it fails.
ctypedef object (*Deliver)(Managed* managed, Target target)
# Makes the library's array on a device, from host memory and by the library's own copy; steals managed likewise.
ctypedef object (*Upload)(Managed* managed, Target target, const DLDevice* device)
# Has the last word about what was read from the library's facts, once the library is imported.
ctypedef int (*Settle)(Target target) except -1


cdef class Target:
    cdef readonly str name              # as in convert(…, to=name)
    cdef readonly object facts          # libraries/library.Library
    cdef readonly bint loaded
    cdef uint32_t holds                 # Holds, or'ed
    cdef uint64_t rows                  # of the dtype table: what the library has
    cdef uint64_t copied_rows           # … those of them that it takes only by a copy of its own
    cdef uint64_t asked_rows            # … those of them that accepts has a word about
    cdef uint64_t plain_rows            # … the rest, less those below a byte: taken as they are
    cdef int64_t alignment              # of the first element, in bytes
    cdef int32_t fewest_axes, most_axes
    cdef int32_t gpus                   # how many it sees, where another one's memory would end the process; else -1
    cdef Accepts accepts
    cdef Deliver deliver
    cdef Upload upload                  # or NULL
    cdef int32_t upload_type            # … to devices of which DLPack type; 0 where there is none
    cdef CurrentStream current_stream   # or NULL: the library asks a Tensor to be ordered
    cdef Settle settle                  # or NULL
    cdef const DLPackExchangeAPI* api   # or NULL
    cdef object namespace               # the imported module, or what the user gave
    cdef tuple array_types              # an instance of one is an array of this target already
    cdef object function                # the library's importer, or a registered deliver
    cdef object settings                # of a registered target: a function of it that settles it; or None

    cdef int load(self) except -1
    cdef object imported(self)
    cdef int read_facts(self) except -1
    cdef int read_module(self) except -1
    cdef int read_types(self, str version) except -1
    cdef bint owns(self, object src)
    cdef object why_not(self, const Managed* managed)


cdef Target new_target(object facts)
