"""Copies of device memory: to the host and from it, and on the device, in the order of the streams."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT,
    STREAM_UNORDERED, DLDevice, DLTensor,
)
from dlbridge._core.atomic cimport store_flag
from dlbridge._core.block cimport (
    OWNS_WRAPPED, Managed, Wrapped, managed_count, managed_data, managed_like, managed_nbytes, managed_new_view,
    managed_own, managed_release, managed_span, python_runs,
)
from dlbridge._core.copying cimport Copy, add_axis, begin_copy
from dlbridge._core.devices cimport cuda
from dlbridge._core.devices.cuda cimport Driver, DriverFailure, Location, check, checked_ordinal, find_driver, is_well
from dlbridge._core.devices.releases cimport (
    Handover, PyThreadState, Stream, count_unordered, give_up_gil, number_here, ready_stream, release_all, take_gil,
    usable_number,
)
from dlbridge._core.devices.staging cimport DOWN, UP, is_staged, is_worth, stage
from dlbridge._core.devices.streams cimport (
    fill_stream, get_or_make_handover, need_driver, order_on_device, set_producer, ready_handover,
)
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, operations
from dlbridge._core.layout cimport Span

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil


cdef int fetch(Managed* source, void* into, const void* begin, size_t nbytes) except -1:
    """Copy bytes of a block's memory to the host. They are there when this returns."""
    cdef int64_t stream
    cdef Handover* handover = ready_handover(source, &stream)
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef bint done
    cdef Copy copy
    begin_copy(&copy, into, NULL, 1)
    add_axis(&copy, nbytes, 1, 1)
    with nogil:
        done = is_staged(handover.driver, into, nbytes) and stage(
            handover.driver, handover.device_id, <void*> begin, &copy, DOWN, stream, &failure)
        if not done and is_well(&failure):
            if stream == STREAM_UNORDERED:
                stream = STREAM_PER_THREAD_DEFAULT      # no other stream has to wait for this one
            cuda.move(handover.driver, handover.device_id, &handover.driver.calls.copy_to_host, into, <void*> begin,
                      nbytes, stream, True, &failure)
    check(handover.driver, &failure)


cdef bint stages(const DLDevice* device, const void* host, int64_t nbytes) except -1:
    """Whether host memory would go to a device through pinned buffers, if there are any."""
    return is_worth(nbytes) and is_staged(find_driver(device.device_type), host, nbytes)


cdef bint copy_staged(Managed* into, const Copy* copy) except -1:
    """Copy memory of the host into a block's memory, which is compact in the order of ``copy.into``.

    It is there when this returns. False if it was not done, since there is not enough to gain, or no pinned memory.
    """
    cdef int64_t stream
    cdef Handover* handover = ready_handover(into, &stream)
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef bint done
    with nogil:
        done = is_staged(handover.driver, copy.source, managed_nbytes(into)) and stage(
            handover.driver, handover.device_id, managed_data(into), copy, UP, stream, &failure)
    check(handover.driver, &failure)
    return done


cdef int send(Managed* into, const void* source, bint waits) except -1:
    """Copy bytes of the host into a block's memory, which is dense. If this ``waits``, they are there when it returns.
    """
    cdef int64_t stream
    cdef Handover* handover = ready_handover(into, &stream)
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    with nogil:
        cuda.move(handover.driver, handover.device_id, &handover.driver.calls.copy_to_device, managed_data(into),
                  <void*> source, managed_nbytes(into), stream, waits, &failure)
    check(handover.driver, &failure)


cdef int copy_there(Managed* into, Managed* source) except -1:
    """Copy the touched bytes of a block into new memory of its device, with the same strides.

    As in duplicate(), no stream has to be waited for by the caller.
    """
    cdef int64_t stream, ready
    cdef Handover* handover = ready_handover(source, &stream)
    cdef Handover* made = ready_handover(into, &ready)
    cdef Span span = managed_span(source)
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    if stream == STREAM_UNORDERED:
        stream = STREAM_LEGACY_DEFAULT
    with nogil:
        cuda.move(made.driver, made.device_id, &made.driver.calls.copy_on_device, managed_data(into) + span.low_bytes,
                  managed_data(source) + span.low_bytes, span.high_bytes - span.low_bytes, stream, False, &failure)
    check(made.driver, &failure)
    try:
        order_on_device(made.driver, made.device_id, stream, ready)
    except BaseException:
        count_unordered()       # the copy is on its way, and nothing says when it is done
        raise
    note_read(handover, stream)


# ---- memory of the driver's pool -------------------------------------------------------------------------------------

ctypedef struct Pooled:
    Wrapped wrapped             # first: release_wrapped() finds the struct by it. It has no owner of its own
    Driver* driver
    int32_t device_id
    void* memory                # given back in the order of stream
    Stream stream               # the Handover around this one owns its keeper, and releases it after this
    unsigned long thread


cdef Managed* duplicate(Managed* source) except NULL:
    """A copy of the touched bytes on their device, in stream-ordered memory, with the strides of the source.

    The copy is made on the stream on which the source is ready, and the copy is ready there too. The producer's stream
    waits for it, so the producer may write to the source again afterwards.
    """
    cdef Handover* handover = get_or_make_handover(source)
    cdef Span span = managed_span(source)
    cdef Managed* block
    cdef Pooled* pooled
    cdef object keeper = None
    need_driver(source, handover)
    if span.high_bytes == span.low_bytes:
        return marked_as_copy(managed_new_view(source))
    if ready_stream(handover).keeper != NULL:
        keeper = <object> ready_stream(handover).keeper
    pooled = new_pooled(handover.driver, handover.device_id, ready_stream(handover), handover.thread)
    try:
        copy_into(pooled, handover, managed_data(source) + span.low_bytes, span.high_bytes - span.low_bytes)
        block = managed_like(source)
    except BaseException:
        release_pooled(pooled)
        raise
    return owning(block, pooled, span.low_bytes, keeper)


cdef Managed* owning(Managed* block, Pooled* pooled, int64_t low_bytes, object keeper) except NULL:
    """A block that owns pooled memory, in which the first element comes after so many bytes."""
    cdef DLTensor* tensor = &block.abi.dl_tensor
    managed_own(block, OWNS_WRAPPED, pooled)
    tensor.data = <char*> pooled.memory - low_bytes
    tensor.byte_offset = 0
    tensor.device.device_type, tensor.device.device_id = pooled.driver.device_type, pooled.device_id
    marked_as_copy(block)
    try:
        set_producer(block, pooled.stream.number, keeper, pooled.stream.lasts)
    except BaseException:
        managed_release(block)
        raise
    return block


cdef Managed* allocate(Managed* block, const DLDevice* device) except NULL:
    """Give a dense block without memory some of a device's pool, which is ready on dlbridge's own stream; steals it.

    A device without a number is the current one.
    """
    cdef Pooled* pooled
    try:
        pooled = allocated(managed_nbytes(block) if managed_count(block) else 0, device)
    except BaseException:
        managed_release(block)
        raise
    return owning(block, pooled, 0, None)


cdef Pooled* allocated(size_t nbytes, const DLDevice* device) except NULL:
    cdef Driver* driver = find_driver(device.device_type)
    cdef int32_t device_id = cuda.current_device(driver) if device.device_id == ANY_DEVICE_ID else device.device_id
    cdef Stream own = Stream(0, NULL, True)
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Pooled* pooled
    checked_ordinal(driver, device_id)
    with nogil:
        own.number = <int64_t> <size_t> cuda.own_stream(driver, device_id, &failure)
    if not own.number:
        check(driver, &failure)
    pooled = new_pooled(driver, device_id, &own, PyThread_get_thread_ident())
    try:
        if nbytes:
            fill_pooled(pooled, NULL, nbytes)
    except BaseException:
        release_pooled(pooled)
        raise
    return pooled


cdef Managed* marked_as_copy(Managed* block) noexcept nogil:
    block.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
    block.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY
    return block


cdef Pooled* new_pooled(
    Driver* driver, int32_t device_id, const Stream* stream, unsigned long thread,
) except NULL:
    cdef Pooled* pooled = <Pooled*> calloc(1, sizeof(Pooled))
    if pooled == NULL:
        raise MemoryError
    pooled.wrapped.release = release_pooled
    pooled.driver, pooled.device_id = driver, device_id
    pooled.stream.number, pooled.stream.lasts = number_here(stream.number, thread), stream.lasts
    pooled.thread = PyThread_get_thread_ident()
    if pooled.stream.number == STREAM_UNORDERED:
        # No stream is known, since no stream need wait. The consumer of the copy assumes the default stream.
        pooled.stream.number, pooled.stream.lasts = STREAM_LEGACY_DEFAULT, True
    return pooled


cdef int copy_into(Pooled* pooled, Handover* handover, void* begin, size_t nbytes) except -1:
    fill_pooled(pooled, begin, nbytes)
    note_read(handover, pooled.stream.number)


cdef int note_read(Handover* handover, int64_t stream) except -1:
    """Let the producer's stream wait for a copy of its memory on another one.

    This is done now, while both handles are valid. The source may be released as soon as its copy was queued.
    """
    cdef int64_t producer = usable_number(handover, &handover.producer)
    handover.used = True
    if producer != STREAM_UNORDERED and producer != stream:
        order_on_device(handover.driver, handover.device_id, stream, producer)
        fill_stream(&handover.consumer, STREAM_UNORDERED, None, False)


cdef int fill_pooled(Pooled* pooled, void* source, size_t nbytes) except -1:
    """Allocate the memory, and copy into it unless source is NULL."""
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef int64_t stream = pooled.stream.number
    with nogil:
        cuda.allocate(pooled.driver, pooled.device_id, &pooled.memory, nbytes, source, stream, &failure)
        if failure.wanted and release_all():        # which may have freed enough
            failure = DriverFailure(0, 0, 0, 0, False)
            cuda.allocate(pooled.driver, pooled.device_id, &pooled.memory, nbytes, source, stream, &failure)
    check(pooled.driver, &failure)


cdef bint is_pooled(const Wrapped* owner) noexcept nogil:
    """Whether it is memory that dlbridge has of a driver's pool."""
    return owner.release == release_pooled


cdef void release_pooled(void* owner) noexcept nogil:
    """Give the memory back in the order of its stream.

    If the stream may be gone, the legacy default stream takes its place, which waits for most other streams.
    """
    cdef Pooled* pooled = <Pooled*> owner
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef int64_t stream = pooled.stream.number
    cdef PyThreadState* gil
    if pooled.memory != NULL and python_runs():
        if not pooled.stream.lasts or (
                stream == STREAM_PER_THREAD_DEFAULT and pooled.thread != PyThread_get_thread_ident()):
            stream = STREAM_LEGACY_DEFAULT
            count_unordered()
        gil = give_up_gil()
        cuda.deallocate(pooled.driver, pooled.device_id, pooled.memory, stream, &failure)
        if not is_well(&failure):
            count_unordered()
        take_gil(gil)
    free(pooled)


# ---- pinned memory ---------------------------------------------------------------------------------------------------

ctypedef struct Pinned:
    Wrapped wrapped             # first, and without an owner of its own, as in Pooled
    Driver* driver
    int32_t device_id
    void* memory


cdef Managed* pin(Managed* block, Managed* like, int64_t nbytes) except? NULL:
    """Give a block new pinned memory of ``nbytes``, under the label of ``like``, whose memory is pinned, too.

    NULL if the driver gives no pinned memory. The block is then released, as it is on failure.
    """
    cdef int64_t stream
    cdef Handover* handover
    cdef Pinned* pinned
    try:
        handover = ready_handover(like, &stream)
        pinned = <Pinned*> calloc(1, sizeof(Pinned))
        if pinned == NULL:
            raise MemoryError
    except BaseException:
        managed_release(block)
        raise
    pinned.wrapped.release = release_pinned
    pinned.driver, pinned.device_id = handover.driver, handover.device_id
    with nogil:
        pinned.memory = cuda.allocate_pinned(pinned.driver, pinned.device_id, max(nbytes, 1))
    managed_own(block, OWNS_WRAPPED, pinned)
    block.abi.dl_tensor.data = pinned.memory
    block.abi.dl_tensor.device = like.abi.dl_tensor.device
    if pinned.memory != NULL:
        return block
    managed_release(block)
    return NULL


cdef void release_pinned(void* owner) noexcept nogil:
    cdef Pinned* pinned = <Pinned*> owner
    cdef PyThreadState* gil
    if pinned.memory != NULL and python_runs():
        gil = give_up_gil()
        cuda.free_pinned(pinned.driver, pinned.device_id, pinned.memory)
        take_gil(gil)
    free(pinned)


cdef int32_t current_device(int32_t device_type) except -1:
    """The number of the device that is current in this thread."""
    return cuda.current_device(find_driver(device_type))


cdef bint is_readable(Managed* managed) except -1:
    """Whether the CPU may read managed memory where it is."""
    cdef Location location
    cdef Driver* driver = find_driver(managed.abi.dl_tensor.device.device_type)
    if managed.abi.dl_tensor.data == NULL:
        return True
    cuda.locate(driver, managed_data(managed), &location)
    return location.concurrent


operations.fetch = fetch
operations.current_device = current_device
operations.is_large = is_worth
operations.stages = stages
operations.copy_staged = copy_staged
operations.send = send
operations.copy_there = copy_there
operations.allocate = allocate
operations.duplicate = duplicate
operations.pin = pin
operations.is_readable = is_readable
operations.is_pooled = is_pooled
operations.check_device = cuda.check_device
store_flag(&operations.ready, True)
