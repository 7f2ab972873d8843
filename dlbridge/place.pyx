"""place: copy, swap, relabel: Managed* -> Managed*.

The only room where memory is copied. Elements are moved by NumPy's own strided copy, which is hard to beat, knows every
layout and gives up the GIL; dense memory is one memcpy.
"""

cimport numpy
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memcpy, memset

from dlbridge.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
    kDLComplex,
    kDLCPU,
)
from dlbridge.devices.table cimport device_name, is_host
from dlbridge.dtypes cimport NO_ROW
from dlbridge.layout cimport fill_compact, is_compact, is_dense
from dlbridge.managed cimport (
    BYTE_STRIDES,
    CONJUGATED,
    MAX_NDIM,
    NEGATED,
    SWAPPED,
    Managed,
    managed_checked,
    managed_data,
    managed_forget,
    managed_nbytes,
    managed_new,
    managed_own_memory,
    managed_packed,
    managed_release,
    managed_share,
    managed_take_versioned,
    take_error,
)

from dlbridge.errors import DeviceError, refusal

numpy.import_array()

cdef extern from "stdlib.h":
    int posix_memalign(void** out, size_t alignment, size_t size) noexcept nogil

cdef extern from "numpy/arrayobject.h":
    numpy.ndarray PyArray_NewFromDescr(
        type subtype, numpy.dtype descr, int nd, const numpy.npy_intp* dims, const numpy.npy_intp* strides, void* data,
        int flags, PyObject* obj)
    int PyArray_CopyInto(numpy.ndarray into, numpy.ndarray source) except -1

cdef enum:
    ALIGNMENT = 256                     # DLPack's own wish; JAX needs 64
    LARGE = 1 << 26                     # from here on, memory is asked for before it is taken
    SMALL = 1 << 16                     # below, giving up the GIL costs more than the copy


cdef Managed* place(Managed* managed, int32_t steps, const DLPackExchangeAPI* api) except NULL:
    """Take the steps in their order."""
    if steps & TO_HOST_LABEL:
        managed.abi.dl_tensor.device.device_type = kDLCPU
        managed.abi.dl_tensor.device.device_id = 0
    try:
        if steps & (COPY | COPY_SPAN):
            managed = replaced(managed, copied(managed, steps, api))
        if steps & PAIRS_TO_PACKED:
            managed = replaced(managed, with_lanes(managed, 1))
        if steps & UNPACK:
            managed = replaced(managed, repacked(managed, True))
        if steps & PACK:
            managed = replaced(managed, repacked(managed, False))
        if steps & PACKED_TO_PAIRS:
            managed = replaced(managed, with_lanes(managed, 2))
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef inline Managed* replaced(Managed* old, Managed* new) noexcept:
    managed_forget(old)
    return new


cdef int32_t writable_steps(const Managed* managed) noexcept nogil:
    """How read-only memory becomes writable: a broadcast array touches few bytes, and those alone are copied."""
    return COPY_SPAN if managed.high_bytes - managed.low_bytes < managed.count * managed.item_bytes else COPY


cdef int32_t pack_steps(const Managed* managed) noexcept nogil:
    """Packing reads compact memory."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    return PACK if is_compact(tensor.ndim, tensor.shape, tensor.strides) else COPY | PACK


# ---- copies --------------------------------------------------------------------------------------------------------

cdef Managed* copied(Managed* source, int32_t steps, const DLPackExchangeAPI* api) except NULL:
    """The same values in memory of our own, writable and in native byte order."""
    cdef Managed* made
    if not is_host(source.abi.dl_tensor.device.device_type):
        raise refusal(DeviceError, "place", "device", device_name(source.abi.dl_tensor.device),
                      "is memory that dlbridge has no copy operation for", "copy it with the library that made it")
    if steps & COPY_SPAN:
        return copied_span(source)
    made = NULL if api == NULL else allocated_by(api, source)
    if made == NULL:
        made = allocated(source, managed_nbytes(source))
        # What follows these steps reads elements in C order.
        if keeps_order(source) and not steps & (PAIRS_TO_PACKED | PACK):
            memcpy(made.abi.dl_tensor.strides, source.abi.dl_tensor.strides, made.abi.dl_tensor.ndim * sizeof(int64_t))
        managed_checked(made)
    try:
        copy_elements(made, source)
        flip_signs(made, source.marks)
    except BaseException:
        managed_release(made)
        raise
    return made


cdef Managed* copied_span(Managed* source) except NULL:
    """The touched bytes with their strides: a broadcast row is copied once, not once for each time it is seen."""
    cdef int64_t span = source.high_bytes - source.low_bytes
    cdef Managed* made = allocated(source, span)
    with nogil:
        memcpy(made.abi.dl_tensor.data, managed_data(source) + source.low_bytes, span)
    made.abi.dl_tensor.data = <char*> made.abi.dl_tensor.data - source.low_bytes
    memcpy(made.abi.dl_tensor.strides, source.abi.dl_tensor.strides, made.abi.dl_tensor.ndim * sizeof(int64_t))
    made.marks = source.marks
    return managed_checked(made)


cdef bint keeps_order(Managed* source) noexcept nogil:
    """Dense in native bytes: one memcpy copies it, whatever the order of its axes."""
    return not source.marks & (SWAPPED | BYTE_STRIDES) and is_dense(
        source.abi.dl_tensor.ndim, source.abi.dl_tensor.shape, source.abi.dl_tensor.strides, source.count)


cdef Managed* allocated(Managed* like, int64_t nbytes) except NULL:
    """Host memory of our own for the shape and dtype of ``like``, compact; not validated yet."""
    # Asked first: what raises here has nothing to release yet.
    cdef bint room = fits(nbytes)
    cdef Managed* made = managed_new(like.protocol, like.abi.dl_tensor.ndim)
    cdef DLTensor* tensor = &made.abi.dl_tensor
    cdef void* memory = NULL
    cdef bint read_only = like.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY
    way_out = 'pass readonly="share" and do not write' if read_only else "pass a part of it, or copy=False"
    memcpy(tensor.shape, like.abi.dl_tensor.shape, tensor.ndim * sizeof(int64_t))
    fill_compact(tensor.ndim, tensor.shape, tensor.strides)
    tensor.dtype = like.abi.dl_tensor.dtype
    made.abi.flags = DLPACK_FLAG_BITMASK_IS_COPIED | (like.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    if nbytes:
        if not room or posix_memalign(&memory, ALIGNMENT, nbytes):
            managed_release(made)
            raise MemoryError(f"place: copy {nbytes} bytes: do not fit into the memory available ({way_out})")
        tensor.data = memory
        managed_own_memory(made, memory)
    return made


cdef bint fits(int64_t nbytes) except -1:
    """Whether the system can give so much: it may promise more than it has, and then end the process."""
    return nbytes < LARGE or nbytes <= available_bytes()


cdef int64_t available_bytes() except? -1:
    """What the system says it can still give, or no limit where it does not say."""
    try:
        with open("/proc/meminfo") as meminfo:
            for line in meminfo:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0x7FFFFFFFFFFFFFFF


cdef Managed* allocated_by(const DLPackExchangeAPI* api, Managed* like) except? NULL:
    """Memory of the target's own allocator, or NULL where it has no way to give this shape or dtype."""
    cdef DLManagedTensorVersioned* given = NULL
    cdef Managed* made
    cdef DLTensor prototype = like.abi.dl_tensor
    prototype.strides = NULL
    prototype.data = NULL
    if like.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED or not fits(managed_nbytes(like)):
        return NULL
    if api.managed_tensor_allocator(&prototype, &given, NULL, ignore_error) or given == NULL:
        take_error()
        return NULL
    made = managed_take_versioned(like.protocol, given)
    made.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
    return made


cdef void ignore_error(void* context, const char* kind, const char* message) noexcept:
    """SetError of the exchange API: dlbridge then allocates itself, which gives the better message."""


# ---- elements ------------------------------------------------------------------------------------------------------

cdef int copy_elements(Managed* into, Managed* source) except -1:
    cdef int64_t nbytes = managed_nbytes(source)
    cdef int64_t word_bytes = source.item_bytes
    cdef bint swapped = source.marks & SWAPPED
    cdef bint complex_words = swapped and source.abi.dl_tensor.dtype.code == kDLComplex
    if not source.count:
        return 0
    if managed_packed(source) or (keeps_order(source) and same_strides(into, source)):
        if nbytes < SMALL:
            memcpy(managed_data(into), managed_data(source), nbytes)
        else:
            with nogil:
                memcpy(managed_data(into), managed_data(source), nbytes)
        return 0
    if complex_words:
        word_bytes //= 2            # each half is swapped by itself
    PyArray_CopyInto(words(into, word_bytes, False, complex_words), words(source, word_bytes, swapped, complex_words))
    return 0


cdef bint same_strides(Managed* a, Managed* b) noexcept nogil:
    cdef int32_t axis
    for axis in range(a.abi.dl_tensor.ndim):
        if a.abi.dl_tensor.strides[axis] != b.abi.dl_tensor.strides[axis]:
            return False
    return True


cdef numpy.ndarray words(Managed* managed, int64_t word_bytes, bint swapped, bint halves):
    """The elements as unsigned words, so that NumPy moves bits and interprets none."""
    cdef numpy.npy_intp shape[MAX_NDIM]
    cdef numpy.npy_intp strides_bytes[MAX_NDIM]
    cdef int ndim = 0
    cdef int64_t step = 1 if managed.marks & BYTE_STRIDES else managed.item_bytes
    cdef numpy.dtype dtype = WORDS[word_bytes]
    cdef int axis
    if swapped:
        dtype = dtype.newbyteorder()
    # Axes of extent 1 are left out: at most 62 others fit into int64, so NumPy's 64 have room for the halves.
    for axis in range(managed.abi.dl_tensor.ndim):
        if managed.abi.dl_tensor.shape[axis] != 1:
            shape[ndim] = managed.abi.dl_tensor.shape[axis]
            strides_bytes[ndim] = managed.abi.dl_tensor.strides[axis] * step
            ndim += 1
    if halves:
        shape[ndim] = 2
        strides_bytes[ndim] = word_bytes
        ndim += 1
    Py_INCREF(dtype)                # NewFromDescr steals it
    return PyArray_NewFromDescr(
        numpy.ndarray, dtype, ndim, shape, strides_bytes, managed_data(managed), numpy.NPY_ARRAY_WRITEABLE, NULL)


cdef dict WORDS = {
    1: numpy.dtype("u1"), 2: numpy.dtype("u2"), 4: numpy.dtype("u4"), 8: numpy.dtype("u8"), 16: numpy.dtype("c16"),
}


cdef int flip_signs(Managed* made, int32_t marks) except -1:
    """Resolve torch's lazy bits: negation flips every sign, conjugation that of the imaginary halves."""
    cdef bint complex_words = made.abi.dl_tensor.dtype.code == kDLComplex
    cdef bint flip_real = marks & NEGATED
    cdef bint flip_imaginary = bool(marks & NEGATED) != bool(marks & CONJUGATED)
    cdef int64_t word_bytes = made.item_bytes // 2 if complex_words else made.item_bytes
    cdef uint8_t* sign
    cdef int64_t word, count = made.count * (2 if complex_words else 1)
    if not marks & (NEGATED | CONJUGATED):
        return 0
    with nogil:
        # The sign of an IEEE number, of bfloat16 too, is the highest bit of its last byte on a little-endian machine.
        sign = <uint8_t*> managed_data(made) + word_bytes - 1
        for word in range(count):
            if flip_imaginary if complex_words and word & 1 else flip_real:
                sign[0] ^= 0x80
            sign += word_bytes
    return 0


# ---- elements below a byte -----------------------------------------------------------------------------------------

cdef Managed* with_lanes(Managed* managed, int lanes) except NULL:
    """Two-lane elements seen as twice as many packed ones along the last axis, or the other way round; shared.

    Element i lies at bit i * bits (DLPack 1.3 on packed types), so both mean the same bytes.
    """
    cdef Managed* seen = managed_share(managed)
    cdef DLTensor* tensor = &seen.abi.dl_tensor
    cdef int64_t* extent = &tensor.shape[tensor.ndim - 1]
    tensor.dtype.lanes = lanes
    seen.row = NO_ROW
    extent[0] = extent[0] * 2 if lanes == 1 else extent[0] // 2
    fill_compact(tensor.ndim, tensor.shape, tensor.strides)
    seen.abi.flags |= managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED
    return managed_checked(seen)


cdef Managed* repacked(Managed* source, bint unpack) except NULL:
    """Compact sub-byte elements from packed to one in a byte, or back; the low bits come first."""
    cdef int bits = source.abi.dl_tensor.dtype.bits
    cdef uint8_t mask = (1 << bits) - 1
    cdef int64_t nbytes = source.count if unpack else (source.count * bits + 7) // 8
    cdef int64_t element, bit
    cdef uint8_t* read = <uint8_t*> managed_data(source)
    cdef uint8_t* write
    cdef uint16_t value
    cdef Managed* made
    if not is_host(source.abi.dl_tensor.device.device_type):
        raise refusal(DeviceError, "place", "device", device_name(source.abi.dl_tensor.device),
                      "is memory that dlbridge cannot repack", "move it to the CPU first")
    made = allocated(source, nbytes)
    write = <uint8_t*> made.abi.dl_tensor.data
    with nogil:
        if not unpack:
            memset(write, 0, nbytes)
        for element in range(source.count):
            bit = element * bits
            if unpack:
                # An element of 6 bits may lie across two bytes.
                value = read[bit >> 3] >> (bit & 7)
                if (bit & 7) + bits > 8:
                    value |= <uint16_t> read[(bit >> 3) + 1] << (8 - (bit & 7))
                write[element] = value & mask
            else:
                value = <uint16_t> (read[element] & mask) << (bit & 7)
                write[bit >> 3] |= value & 0xFF
                if value >> 8:
                    write[(bit >> 3) + 1] |= value >> 8
    made.abi.flags = DLPACK_FLAG_BITMASK_IS_COPIED
    if unpack:
        made.abi.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
    return managed_checked(made)
