"""place: the copies of a block in host memory, and its bytes seen as other elements.

No other module copies host memory: it is allocated and described here, and ``copying`` moves the elements.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLDevice, DLManagedTensorVersioned,
    DLPackExchangeAPI, DLTensor, kDLComplex, kDLInt,
)
from dlbridge._core.atomic cimport add
from dlbridge._core.block cimport (
    BYTE_STRIDES, CONJUGATED, NEGATED, OWNS_MEMORY, SWAPPED, Managed, Protocol, managed_checked, managed_count,
    managed_data, managed_drop, managed_item_bytes, managed_like, managed_nbytes, managed_new, managed_new_view,
    managed_own, managed_packed, managed_release, managed_set_row, managed_span, managed_take_versioned, protocol_name,
)
from dlbridge._core.copying cimport (
    SWAP, SWAPPED_TO_FLOAT, SWAPPED_TO_INT32, SWAP_HALVES, TO_FLOAT, TO_INT32, TRUTH, Copy, add_axis, begin_copy,
    copy_words, flip, repack,
)
from dlbridge._core.decision cimport (
    COPY, COPY_SPAN, IN_C_ORDER, IN_PINNED_MEMORY, NARROW, PACK, PAIRS_TO_PACKED, is_bool,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, is_host
from dlbridge._core.dtypes cimport NO_ROW, dtype_name, get_row, nearest_row
from dlbridge._core.late cimport load_module
from dlbridge._core.layout cimport LARGEST_SPAN, LENGTH_1, STRIDED, Span, add_overflows, fill_compact, is_dense
from dlbridge._core.pending cimport take_error
from dlbridge._core.system cimport want_huge_pages

from dlbridge.errors import REPORT, ConversionError, DeviceError, refusal

cdef enum:
    ALIGNMENT = 256                     # DLPack's header asks for 256; JAX needs 64
    LARGE = 1 << 26                     # from this size on, the system is asked whether it has the memory
    HUGE = 1 << 22                      # from this size on, memory is asked for in huge pages
    THEIRS = 1 << 20                    # from this size on, the target's own allocator costs no more than malloc()
    SMALL = 1 << 16                     # below this size, giving up the GIL costs more than the copy


cdef Managed* replaced(Managed* managed, int32_t steps) except NULL:
    cdef Managed* block
    try:
        block = copied(managed, steps, NULL)
    except BaseException:
        managed_release(managed)
        raise
    managed_drop(managed)
    return block


cdef Managed* shared_in_order(Managed* base) except NULL:
    return in_order_of(base, managed_new_view(base))


cdef Managed* in_order_of(const Managed* base, Managed* managed) except NULL:
    if not has_streams(managed.abi.dl_tensor.device.device_type):
        return managed
    try:
        device_operations().inherit(managed, base)
    except BaseException:
        managed_release(managed)
        raise
    return managed


# ---- copies --------------------------------------------------------------------------------------------------------

cdef Managed* copied(Managed* source, int32_t steps, const DLPackExchangeAPI* api) except NULL:
    cdef Managed* block
    cdef int64_t nbytes
    if not is_host(source.abi.dl_tensor.device.device_type):
        # The bytes, as they are. For another order or other values a library's kernel is called, or it is refused.
        return device_operations().duplicate(source)
    if has_streams(source.abi.dl_tensor.device.device_type):
        device_operations().await_producer(source)      # the CPU is about to read pinned memory
    if steps & COPY_SPAN:
        return copied_span(source)
    if steps & NARROW:
        return narrowed(source, steps)
    nbytes = managed_nbytes(source)
    block = NULL
    if steps & IN_PINNED_MEMORY:
        block = allocated_pinned(source, nbytes)
    elif api != NULL and nbytes >= THEIRS:
        block = allocated_by(api, source)
    if block == NULL:
        block = allocated(source, nbytes)
        if nbytes < SMALL and not source.marks and not is_bool(source):
            if nbytes:          # a source without elements may have no address
                memcpy(block.abi.dl_tensor.data, managed_data(source), nbytes)
            return block        # compact, as it was allocated
        block = managed_checked(block)
    keep_order(block, source, steps)
    copy_elements(block, source)
    return block


cdef void keep_order(Managed* block, const Managed* source, int32_t steps) noexcept:
    """Let a copy of dense memory have the order of its axes, unless a later step reads the elements in C order."""
    cdef const DLTensor* tensor = &source.abi.dl_tensor
    if steps & (PAIRS_TO_PACKED | PACK | IN_C_ORDER) or source.marks & BYTE_STRIDES:
        return
    if is_dense(tensor.ndim, tensor.shape, tensor.strides, managed_count(source)):
        memcpy(block.abi.dl_tensor.strides, tensor.strides, tensor.ndim * sizeof(int64_t))
        block.marks |= source.marks & (STRIDED | LENGTH_1)


cdef Managed* narrowed(Managed* source, int32_t steps) except NULL:
    """A copy in the nearest type."""
    cdef Managed like = source[0]       # with the other type
    cdef Managed* resolved
    cdef Managed* block
    cdef Copy copy
    cdef uint8_t lost = 0
    if source.marks & (NEGATED | CONJUGATED):
        resolved = copied(source, COPY, NULL)
        try:
            return narrowed(resolved, steps)
        finally:
            managed_release(resolved)
    managed_set_row(&like, nearest_row(source.row))
    block = managed_checked(allocated(&like, managed_nbytes(&like)))
    keep_order(block, source, steps)
    if managed_count(block):
        describe_narrowing(&copy, block, source, &lost)
        run_copy(&copy, managed_nbytes(block))
    if lost:
        managed_release(block)
        raise error_of_lost(source)
    return block


cdef object error_of_lost(const Managed* source):
    # A Python function, which takes no pointer, gets the address as an integer.
    return load_module("dlbridge._core.narrowing").first_lost(<size_t> source)


cdef Managed* gathered(Managed** parts, size_t count, bint peek) except NULL:
    cdef const Managed* first = parts[0]
    cdef Managed* block
    cdef char* at
    cdef int64_t rows = 0, nbytes = 0
    cdef size_t index
    for index in range(count):
        rows += parts[index].abi.dl_tensor.shape[0]
        if add_overflows(nbytes, managed_nbytes(parts[index]), &nbytes) or nbytes > LARGEST_SPAN:
            raise refusal(ConversionError, protocol_name(<Protocol> first.protocol), "length", rows,
                          "has more bytes than any memory", REPORT)
    block = allocated(<Managed*> first, nbytes)
    block.abi.dl_tensor.shape[0] = rows
    memcpy(block.abi.dl_tensor.strides, first.abi.dl_tensor.strides, block.abi.dl_tensor.ndim * sizeof(int64_t))
    at = <char*> block.abi.dl_tensor.data
    add(&copies_made, 1)
    with nogil:
        for index in range(0 if peek else count):
            memcpy(at, managed_data(parts[index]), managed_nbytes(parts[index]))
            at += managed_nbytes(parts[index])
    return managed_checked(block)


cdef Managed* copied_span(Managed* source) except NULL:
    """A copy of the touched bytes, with their strides. A broadcast row is copied only once."""
    cdef Span span = managed_span(source)
    cdef int64_t nbytes = span.high_bytes - span.low_bytes
    cdef Managed* block = allocated(source, nbytes)
    cdef Copy copy
    if nbytes:          # a source without elements may have no address, and memcpy() must not be given NULL
        begin_copy(&copy, block.abi.dl_tensor.data, managed_data(source) + span.low_bytes, 1)
        add_axis(&copy, nbytes, 1, 1)
        if is_bool(source):
            copy.change = TRUTH
        run_copy(&copy, nbytes)
    return like_span(block, source, span)


cdef Managed* fetched(Managed* source) except NULL:
    cdef Span span = managed_span(source)
    cdef int64_t nbytes = span.high_bytes - span.low_bytes
    cdef Managed* block = allocated(source, nbytes)
    try:
        if nbytes:
            device_operations().fetch(
                source, block.abi.dl_tensor.data, managed_data(source) + span.low_bytes, nbytes)
    except BaseException:
        managed_release(block)
        raise
    if is_bool(source):
        make_bools(<char*> block.abi.dl_tensor.data, nbytes)
    return like_span(block, source, span)


cdef void make_bools(char* bytes_of, int64_t nbytes) noexcept nogil:
    cdef int64_t index
    for index in range(nbytes):
        bytes_of[index] = bytes_of[index] != 0


cdef Managed* like_span(Managed* block, const Managed* source, Span span) except NULL:
    """Give the copied bytes of a span the description that the source has."""
    block.abi.dl_tensor.data = <char*> block.abi.dl_tensor.data - span.low_bytes
    memcpy(block.abi.dl_tensor.strides, source.abi.dl_tensor.strides, block.abi.dl_tensor.ndim * sizeof(int64_t))
    block.marks = source.marks
    return managed_checked(block)


cdef str PASS_A_PART = "pass a part of it"
cdef str COPY_THERE = "copy it with the library that made it, x.copy() or so"
cdef str FETCH_THERE = "move it to the CPU with the library that made it"


cdef Managed* allocated(Managed* like, int64_t nbytes) except NULL:
    # This comes first: if it raises, there is nothing to release yet.
    cdef bint room = has_room_for(nbytes)
    cdef Managed* block = managed_new(<Protocol> like.protocol, like.abi.dl_tensor.ndim)
    cdef DLTensor* tensor = &block.abi.dl_tensor
    cdef void* memory = NULL
    memcpy(tensor.shape, like.abi.dl_tensor.shape, tensor.ndim * sizeof(int64_t))
    fill_compact(tensor.ndim, tensor.shape, tensor.strides)
    tensor.dtype = like.abi.dl_tensor.dtype
    block.row = like.row
    block.abi.flags = DLPACK_FLAG_BITMASK_IS_COPIED | (like.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    if nbytes:
        # malloc() reuses the memory that was freed last, with its pages. posix_memalign() often takes fresh pages.
        memory = malloc(nbytes + ALIGNMENT - 1) if room else NULL
        if memory == NULL:
            managed_release(block)
            raise MemoryError(f"place: copy {nbytes} bytes: do not fit into the memory available ({PASS_A_PART})")
        managed_own(block, OWNS_MEMORY, memory)
        tensor.data = <void*> ((<size_t> memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
        ask_for_huge_pages(tensor.data, nbytes)
    return block


cdef void ask_for_huge_pages(void* memory, int64_t nbytes) noexcept nogil:
    """Ask the system for huge pages, because fresh memory takes longer to get, page by page, than to write.

    NumPy asks from the same size on. The system can ignore the request, and then nothing is lost.
    """
    if nbytes >= HUGE:
        want_huge_pages(memory, nbytes)


cdef bint has_room_for(int64_t nbytes) except -1:
    if nbytes < LARGE:
        return True
    return nbytes <= <int64_t> load_module("dlbridge._core.system_memory").available_bytes()


cdef Managed* allocated_pinned(Managed* like, int64_t nbytes) except? NULL:
    """As allocated(), in pinned memory; NULL where the driver has none left, or there is no driver."""
    if not has_room_for(nbytes):
        return NULL
    try:
        return device_operations().pin(allocated(like, 0), like, nbytes)
    except DeviceError:
        return NULL


cdef Managed* allocated_by(const DLPackExchangeAPI* api, Managed* like) except? NULL:
    """Memory from the target's own allocator, or NULL if that cannot give this shape or dtype."""
    cdef DLManagedTensorVersioned* given = NULL
    cdef Managed* block
    cdef DLTensor prototype = like.abi.dl_tensor
    prototype.strides = NULL
    prototype.data = NULL
    if like.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED or not has_room_for(managed_nbytes(like)):
        return NULL
    if api.managed_tensor_allocator(&prototype, &given, NULL, ignore_error) or given == NULL:
        take_error()
        return NULL
    if given.dl_tensor.data == NULL:        # torch's FakeTensorMode makes a tensor without memory of it
        if given.deleter != NULL:
            given.deleter(given)
        return NULL
    block = managed_take_versioned(<Protocol> like.protocol, given)
    if block.marks & STRIDED:
        managed_release(block)
        return NULL
    block.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
    ask_for_huge_pages(managed_data(block), managed_nbytes(block))
    return block


cdef void ignore_error(void* context, const char* kind, const char* message) noexcept:
    """SetError of the exchange API. dlbridge then allocates the memory itself, and has the better message."""


# ---- elements ------------------------------------------------------------------------------------------------------

cdef void copy_elements(Managed* into, Managed* source) noexcept:
    """Copy every element. The byte order is changed and signs are resolved in the same pass."""
    cdef Copy copy
    if not managed_count(source):
        return
    describe_copy(&copy, into, source)
    run_copy(&copy, managed_nbytes(source))


cdef Managed* dense_like(const Managed* source, int row, int32_t steps) except NULL:
    cdef Managed* block = managed_like(source)
    cdef DLTensor* tensor = &block.abi.dl_tensor
    managed_set_row(block, row)
    if source.marks & BYTE_STRIDES or steps & IN_C_ORDER or not is_dense(
            tensor.ndim, tensor.shape, tensor.strides, managed_count(block)):
        fill_compact(tensor.ndim, tensor.shape, tensor.strides)
        block.marks = 0
    block.marks &= STRIDED | LENGTH_1
    return block


cdef bint copy_staged(Managed* into, Managed* source) except -1:
    cdef Copy copy
    cdef uint8_t lost = 0
    cdef bint done
    if into.row == source.row:
        describe_copy(&copy, into, source)
    elif into.row == nearest_row(source.row):
        describe_narrowing(&copy, into, source, &lost)
    else:
        return False
    done = device_operations().copy_staged(into, &copy)
    if lost:
        raise error_of_lost(source)
    return done


cdef bint is_stageable(Managed* source, int row, const DLDevice* device) except -1:
    if not has_streams(device.device_type) or (row != source.row and source.marks & (NEGATED | CONJUGATED)):
        return False
    return device_operations().stages(device, managed_data(source), managed_count(source) * get_row(row).item_bytes)


cdef int copy_into(Managed* into, Managed* source) except -1:
    cdef Managed* apart
    cdef Span read = managed_span(source)
    cdef Span written = managed_span(into)
    if has_streams(source.abi.dl_tensor.device.device_type):
        device_operations().await_producer(source)      # the CPU is about to read pinned memory
    if managed_data(source) + read.low_bytes >= managed_data(into) + written.high_bytes or (
            managed_data(into) + written.low_bytes >= managed_data(source) + read.high_bytes):
        copy_elements(into, source)
        return 0
    apart = copied(source, COPY, NULL)
    copy_elements(into, apart)
    managed_release(apart)


cdef void run_copy(Copy* copy, int64_t nbytes) noexcept:
    if nbytes < SMALL:
        copy_words(copy)
    else:
        with nogil:
            copy_words(copy)


cdef void describe_copy(Copy* copy, Managed* into, Managed* source) noexcept nogil:
    """Describe a copy of elements as one of words, whose numbers are not interpreted."""
    cdef const DLTensor* tensor = &source.abi.dl_tensor
    cdef int64_t item_bytes = managed_item_bytes(source)
    cdef int64_t step = 1 if source.marks & BYTE_STRIDES else item_bytes
    cdef int64_t into_step = 1 if into.marks & BYTE_STRIDES else item_bytes
    cdef bint complex_words = tensor.dtype.code == kDLComplex
    cdef int64_t number_bytes, sign
    cdef int32_t axis
    if managed_packed(source) or not source.marks | into.marks:
        # Both sides are compact, and the bytes of numbers do not change.
        begin_copy(copy, managed_data(into), managed_data(source), 1)
        add_axis(copy, managed_nbytes(source), 1, 1)
        if is_bool(source):
            copy.change = TRUTH
        return
    begin_copy(copy, managed_data(into), managed_data(source), item_bytes)
    for axis in range(tensor.ndim):
        add_axis(copy, tensor.shape[axis], into.abi.dl_tensor.strides[axis] * into_step, tensor.strides[axis] * step)
    if is_bool(source):
        copy.change = TRUTH
    if (source.marks ^ into.marks) & SWAPPED:
        copy.change = SWAP_HALVES if complex_words else SWAP
    # On a little-endian machine the sign of an IEEE number, and of bfloat16, is the highest bit of its last byte. The
    # bits are inverted in the result, so if that is swapped, the sign is in its first byte.
    number_bytes = item_bytes // 2 if complex_words else item_bytes
    sign = 0 if into.marks & SWAPPED else number_bytes - 1
    if source.marks & NEGATED:
        flip(copy, sign)
        if complex_words:
            flip(copy, sign + number_bytes)
    if source.marks & CONJUGATED and complex_words:
        flip(copy, sign + number_bytes)


cdef void describe_narrowing(Copy* copy, Managed* into, Managed* source, uint8_t* lost) noexcept nogil:
    """Describe a copy into the nearest type, of a source without lazy bits; ``lost`` becomes 1 if a value does not fit.
    """
    cdef const DLTensor* tensor = &source.abi.dl_tensor
    cdef int64_t step = 1 if source.marks & BYTE_STRIDES else managed_item_bytes(source)
    cdef int64_t into_step = managed_item_bytes(into)
    cdef int32_t axis
    begin_copy(copy, managed_data(into), managed_data(source), into_step)
    for axis in range(tensor.ndim):
        add_axis(copy, tensor.shape[axis], into.abi.dl_tensor.strides[axis] * into_step, tensor.strides[axis] * step)
    if source.marks & SWAPPED:
        copy.change = SWAPPED_TO_INT32 if tensor.dtype.code == kDLInt else SWAPPED_TO_FLOAT
    else:
        copy.change = TO_INT32 if tensor.dtype.code == kDLInt else TO_FLOAT
    copy.lost = lost


# ---- elements below a byte -----------------------------------------------------------------------------------------

cdef Managed* with_lanes(Managed* managed, int lanes) except NULL:
    """The memory is shared: element i lies at bit i * bits (DLPack 1.3 on packed types), so both describe its bytes."""
    cdef Managed* seen = shared_in_order(managed)
    cdef DLTensor* tensor = &seen.abi.dl_tensor
    cdef int64_t* extent = &tensor.shape[tensor.ndim - 1]
    tensor.dtype.lanes = lanes
    seen.row = NO_ROW
    extent[0] = extent[0] * 2 if lanes == 1 else extent[0] // 2
    fill_compact(tensor.ndim, tensor.shape, tensor.strides)
    seen.abi.flags |= managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED
    return managed_checked(seen)


cdef Managed* repacked(Managed* source, bint unpacks) except NULL:
    cdef int bits = source.abi.dl_tensor.dtype.bits
    cdef int64_t count = managed_count(source)
    cdef int64_t nbytes = count if unpacks else (count * bits + 7) // 8
    cdef Managed* block
    cdef bint known
    if has_streams(source.abi.dl_tensor.device.device_type):
        device_operations().await_producer(source)      # the CPU is about to read pinned memory
    block = allocated(source, nbytes)
    if count < SMALL:
        known = repack(managed_data(block), managed_data(source), count, bits, unpacks)
    else:
        with nogil:
            known = repack(managed_data(block), managed_data(source), count, bits, unpacks)
    if not known:
        managed_release(block)
        raise refusal(ConversionError, "place", "dtype", dtype_name(source.abi.dl_tensor.dtype),
                      f"has elements of {bits} bits, which dlbridge does not pack", REPORT)
    block.abi.flags = DLPACK_FLAG_BITMASK_IS_COPIED
    if unpacks:
        block.abi.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
    return managed_checked(block)
