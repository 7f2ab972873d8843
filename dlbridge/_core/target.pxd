"""The Target: what a library supports, as data, and how its arrays are made."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

from dlbridge._core.abi cimport DLDevice, DLPackExchangeAPI
from dlbridge._core.block cimport BYTE_STRIDES, SWAPPED, Managed
from dlbridge._core.dtypes cimport MAX_ROWS
from dlbridge._core.layout cimport BACKWARD, LENGTH_1, REPEATED, STRIDED
from dlbridge._core.request cimport CurrentStream, Request


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
    GAPS = 524288               # memory with other bytes between its first and its last element


cdef class Target

# Says why the target cannot take this memory in any form: an exception to raise, or None.
ctypedef object (*Accepts)(const Managed* managed, Target target)
# Makes the library's array; steals managed, also when it fails.
ctypedef object (*Deliver)(Managed* managed, Target target)
# Makes the library's array over memory that an object keeps, from a description alone: no block was made.
ctypedef object (*Share)(const Managed* memory, object keeper)
# Makes the library's array on a device, from host memory and by the library's own copy; steals managed, too.
ctypedef object (*Upload)(Managed* managed, Target target, const DLDevice* device, const Request* request)
# Waits for an array that upload only queued, and for those before it on the same stream.
ctypedef int (*AwaitUpload)(object array) except -1
# Makes the library's array on a device, as a description of dense memory says, which is borrowed.
ctypedef object (*Allocate)(const Managed* like, Target target, const DLDevice* device)


cdef class Target:
    cdef readonly str name              # the name in convert(…, to=name)
    cdef readonly object facts          # libraries/library.Library
    cdef readonly bint loaded
    cdef str called                     # the name in messages
    cdef str export_hint                # of an export of a Tensor, whose consumer cannot pass readonly=: the hint
    #                                     that does not name it; or None
    cdef uint32_t supports               # Supports, or'ed
    cdef uint64_t rows                  # the rows of the dtype table that the library has
    cdef uint64_t copied_rows           # the rows that it takes only by a copy of its own
    cdef uint64_t asked_rows            # the rows for which accepts must be asked
    cdef uint64_t plain_rows            # the other rows of whole bytes, which are taken as they are from the host
    cdef uint64_t device_rows           # … and from a device, where it is neither pinned nor managed memory
    cdef int64_t alignment              # of the first element, in bytes: a power of two up to 256
    cdef uint8_t[MAX_ROWS] low_bits     # by row: the bits of the address that must be 0
    cdef uint8_t[MAX_ROWS] device_low_bits      # … on a device
    cdef int32_t fewest_axes, most_axes
    cdef int32_t gpus                   # how many GPUs it sees, if another GPU's memory ends the process; otherwise -1
    cdef int32_t hosts                  # how many devices of the host it numbers; 0 if it has one place for all
    cdef Accepts accepts
    cdef Deliver deliver
    cdef Share share                    # or NULL: the library needs a block
    cdef Upload upload                  # or NULL
    cdef AwaitUpload await_upload       # or NULL: what upload gave is complete
    cdef Allocate allocate              # or NULL: large memory goes into the device's pool, and that is shared
    cdef uint32_t upload_types          # bits of DLPack's types of the devices that upload copies to
    cdef bint copies_own                # whether it copies device memory itself, since its streams are not known
    cdef bint keeps_imports             # whether it keeps memory until its work is done; then copies_own is False
    cdef CurrentStream current_stream   # or NULL: the library names its stream to the Tensor that it consumes
    cdef object adjust                  # corrects what was read from the facts, once the library is imported; or None
    cdef const DLPackExchangeAPI* api   # or NULL
    cdef object namespace               # the imported module, or the namespace that the user gave
    cdef tuple array_types              # their instances are arrays of this target already
    cdef object function                # the library's importer, or the deliver of a registered target
    cdef object takes                   # of a dtype and a shape, or None, as in libraries/library

    cdef int load(self) except -1
    cdef object imported(self)
    cdef int read_facts(self) except -1
    cdef int read_named(self, str version) except -1
    cdef int read_types(self, str version) except -1
    cdef int read_alignments(self) except -1
    cdef int read_plain_rows(self) except -1
    cdef bint owns(self, object src)
    cdef bint owns_by_type(self, object kind) except -1
    cdef Target with_uploads_of(self, Target other)
    cdef object why_not(self, const Managed* managed)


cdef Target new_target(object facts)


cdef inline bint uploads_to(Target target, int32_t device_type) noexcept:
    return target.upload_types >> device_type & 1
