"""Which stream waits for which when device memory is handed over, and when it is released.

The consumer's stream waits for the producer's stream by an event, on the device. When the last consumer lets go, the
producer's stream waits for the consumer's stream, so that no work writes into memory that is still being read. If the
producer's stream is not known, the memory is kept until the consumer's stream is done. The host waits for memory that
the CPU reads, and for the oldest where very much is kept.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    STREAM_LEGACY_DEFAULT,
    STREAM_PER_THREAD_DEFAULT,
    STREAM_UNORDERED,
    DLDevice,
    DLManagedTensorVersioned,
    DLTensor,
    kDLCUDA,
    kDLROCM,
)
from dlbridge._core.atomic cimport (
    add_size,
    count_one,
    exchange_pointer,
    load_pointer,
    load_size,
    lock,
    replace_pointer,
    store_flag,
    store_size,
    unlock,
)
from dlbridge._core.block cimport (
    OWNS_BASE,
    OWNS_LEGACY,
    OWNS_OBJECT,
    OWNS_VERSIONED,
    OWNS_WRAPPED,
    Managed,
    Protocol,
    holds_gil,
    lent_deleter,
    managed_count,
    managed_data,
    managed_like,
    managed_nbytes,
    managed_own,
    managed_release,
    managed_shape,
    managed_share,
    managed_span,
    protocol_name,
    python_is_up,
    release_owner,
    sole_deleter,
)
from dlbridge._core.copying cimport Copy, add_axis, begin_copy
from dlbridge._core.devices cimport cuda
from dlbridge._core.devices.cuda cimport (
    Driver,
    Failure,
    Location,
    any_driver,
    checked_ordinal,
    driver_error,
    find_driver,
    is_well,
)
from dlbridge._core.devices.staging cimport DOWN, UP, is_staged, is_worth, stage
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, Tell, operations
from dlbridge._core.layout cimport BACKWARD, REPEATED, STRIDED, Span, fill_compact, is_dense

from dlbridge._core.locks import call_in_child
from dlbridge.errors import REPORT, ConversionError, DeviceError, refusal

cdef enum:
    MOST_BUSY = 16              # streams that are remembered during a look

# Releases that wait. Beyond that the oldest is waited for.
cdef size_t MOST_WAITING = 1024
cdef size_t MOST_BYTES_WAITING = <size_t> 4 << 30

cdef extern from "Python.h":
    ctypedef struct PyThreadState
    PyThreadState* PyEval_SaveThread() noexcept nogil
    void PyEval_RestoreThread(PyThreadState* state) noexcept nogil
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef int64_t unordered = 0


def unordered_releases():
    """How often memory went back to its producer although its consumer's stream could still be using it.

    That happens if the handle of that stream could be stale, since no object keeps the stream alive, and if the stream
    is being captured.
    """
    return unordered


def waiting_releases():
    """How many releases wait until the stream of their consumer is done.

    What is done goes back first, as at each hand-over and release.
    """
    release_what_is_done()
    return load_size(&waiting_count)


# ---- what is known of a block --------------------------------------------------------------------------------------

cdef Handover* handover_of(const Managed* managed) noexcept nogil:
    """The Handover of memory whose stream is known, or NULL."""
    cdef Handover* handover = <Handover*> managed.abi.manager_ctx
    return handover if managed.owns == OWNS_WRAPPED and handover.wrapped.release == release_handover else NULL


cdef Handover* wrap(Managed* managed) except NULL:
    """Put a Handover around the owner of a block that no consumer has yet."""
    cdef Handover* handover = <Handover*> calloc(1, sizeof(Handover))
    cdef Span span = managed_span(managed)
    if handover == NULL:
        raise MemoryError
    handover.wrapped.release = release_handover
    handover.wrapped.owns = managed.owns
    handover.wrapped.owner = managed.abi.manager_ctx
    handover.nbytes = span.high_bytes - span.low_bytes
    handover.producer.number = handover.own.number = handover.consumer.number = STREAM_UNORDERED
    handover.thread = PyThread_get_thread_ident()
    managed_own(managed, OWNS_WRAPPED, handover)
    return handover


cdef int fill_stream(Stream* stream, int64_t number, object keeper, bint lasts) except -1:
    cdef PyObject* before = stream.keeper
    if keeper is not None:
        Py_INCREF(keeper)
    stream.number = number
    stream.keeper = NULL if keeper is None else <PyObject*> keeper
    stream.lasts = lasts or keeper is not None or number in (STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT)
    release_reference(before)
    return 0


cdef int need_driver(Managed* managed, Handover* handover) except -1:
    """Load the driver, and find the device whose streams matter. DLPack has pinned and managed memory on device 0.

    The block may already be lent, so another thread may be doing the same.
    """
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef Driver* driver
    cdef Location location = Location(0, tensor.device.device_id, 0, 0, False)
    if load_pointer(<void**> &handover.driver) != NULL:
        return 0
    driver = find_driver(tensor.device.device_type)
    if tensor.device.device_type != driver.device_type and tensor.data != NULL:
        cuda.locate(driver, managed_data(managed), &location)
    checked_ordinal(driver, location.device_id)
    lock(&handover.lock)
    if handover.driver == NULL:
        handover.device_id = location.device_id
        exchange_pointer(<void**> &handover.driver, driver)      # last: then device_id is read without the lock
    unlock(&handover.lock)
    return 0


# ---- operations ----------------------------------------------------------------------------------------------------

cdef int locate(Managed* managed) except -1:
    """Find the device of memory that came by an interface without a device."""
    cdef Driver* driver = any_driver()
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef Location location = Location(driver.device_type, 0, 0, 0, False)
    cdef Handover* handover
    if tensor.data != NULL:
        cuda.locate(driver, tensor.data, &location)
        check_bounds(managed, &location)
    tensor.device.device_type = location.device_type
    # DLPack has pinned and managed memory on device 0.
    tensor.device.device_id = location.device_id if location.device_type == driver.device_type else 0
    handover = wrap(managed)
    handover.driver = driver
    handover.device_id = location.device_id
    return 0


cdef int check_bounds(const Managed* managed, const Location* location) except -1:
    """Refuse memory that reaches beyond the allocation that it is in. A pool's allocation has many arrays in it."""
    cdef Span span = managed_span(managed)
    cdef size_t first = <size_t> managed_data(managed) + span.low_bytes
    cdef size_t nbytes = span.high_bytes - span.low_bytes
    if nbytes and location.nbytes and (
            first < location.start or nbytes > location.nbytes - (first - location.start)):
        raise refusal(ConversionError, protocol_name(<Protocol> managed.protocol), "shape", managed_shape(managed),
                      f"is {nbytes} bytes from {first:#x} on, and the allocation there is {location.nbytes} bytes from "
                      f"{location.start:#x} on", REPORT)
    return 0


cdef int label_device(Managed* managed) except -1:
    """Label pinned or managed memory as its device's."""
    cdef Driver* driver = find_driver(managed.abi.dl_tensor.device.device_type)
    cdef Location location = Location(0, 0, 0, 0, False)
    if managed.abi.dl_tensor.data != NULL:
        cuda.locate(driver, managed_data(managed), &location)
    managed.abi.dl_tensor.device.device_type = driver.device_type
    managed.abi.dl_tensor.device.device_id = location.device_id
    return 0


cdef int set_producer(Managed* managed, int64_t stream, object keeper, bint lasts) except -1:
    """Note the stream on which the memory is ready."""
    cdef Handover* handover = handover_of(managed)
    if handover == NULL:
        handover = wrap(managed)
    fill_stream(&handover.producer, stream, keeper, lasts)
    keep_for_base(handover, stream, keeper, lasts)
    return 0


cdef int set_named(Managed* managed, int64_t stream, object keeper) except -1:
    """Note the stream that a producer was told, on which it made the memory ready. Its own stream is another one."""
    set_producer(managed, stream, keeper, False)
    return note_named(managed, handover_of(managed), True)


cdef int set_own(Managed* managed, int64_t stream, object keeper) except -1:
    """Note the own stream of a producer that was told another: the memory goes back in the order of that one."""
    return fill_stream(&handover_of(managed).own, stream, keeper, False)


cdef bint is_lent(const Handover* handover) noexcept nogil:
    """Whether the memory is of a block of dlbridge's own."""
    cdef DLManagedTensorVersioned* foreign = <DLManagedTensorVersioned*> handover.wrapped.owner
    return handover.wrapped.owns == OWNS_VERSIONED and foreign.deleter in (sole_deleter, lent_deleter)


cdef int set_allocator(Managed* managed, Tell tell, object array, int64_t stream) except -1:
    """Note how the producer's allocator is told that the producer's own stream, this one, uses the memory.

    The stream on which the memory is ready was noted before.
    """
    cdef Handover* handover = handover_of(managed)
    cdef PyObject* before = handover.array
    Py_INCREF(array)
    handover.tell, handover.array, handover.own_stream = tell, <PyObject*> array, stream
    release_reference(before)
    return 0


cdef int set_producer_event(Managed* managed, void* event) except -1:
    """Note that the memory is ready once an event has happened, or now if there is no event.

    The legacy default stream waits for the event. That stream lasts for ever, and consumers can wait for a stream.
    """
    cdef Handover* handover
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef bint done
    if event == NULL:
        return set_producer(managed, STREAM_UNORDERED, None, False)
    handover = get_or_make_handover(managed)
    need_driver(managed, handover)
    with nogil:
        done = cuda.order_after_event(handover.driver, handover.device_id, event, STREAM_LEGACY_DEFAULT, &failure)
    if not done:
        raise driver_error(handover.driver, &failure)
    return 0


cdef int keep_for_base(const Handover* handover, int64_t stream, object keeper, bint lasts) except -1:
    """Note in the block of a Tensor what keeps its consumer's stream alive.

    The Tensor's export was given only the number of the stream. Its keeper is known here.
    """
    cdef DLManagedTensorVersioned* foreign = <DLManagedTensorVersioned*> handover.wrapped.owner
    cdef Handover* base
    if handover.wrapped.owns == OWNS_VERSIONED and foreign.deleter == sole_deleter:
        base = handover_of(<Managed*> foreign)
        if base != NULL and base.consumer.number == stream:
            fill_stream(&base.consumer, stream, keeper, lasts)
    return 0


cdef int make_handover(Managed* managed) except -1:
    """Put a Handover around a block's owner before the block is lent. Other threads may use the block after that."""
    get_or_make_handover(managed)
    return 0


cdef int settle(Managed* managed) except -1:
    """Note that the consumer will let the producer's stream wait for its work."""
    get_or_make_handover(managed).settled = True
    return 0


cdef bint is_settled(const Handover* handover) noexcept nogil:
    """Whether this block shares the memory of another block, and that one is settled."""
    cdef Handover* base = handover_of(<Managed*> handover.wrapped.owner) if handover.wrapped.owns == OWNS_BASE else NULL
    return base != NULL and base.settled


cdef int inherit(Managed* managed, const Managed* base) except -1:
    """Note the stream of a second block over the same memory.

    The memory is ready on the stream that the first block was handed to, or on the producer's stream if it was not
    handed over.
    """
    cdef Handover* handover = handover_of(base)
    if handover == NULL:
        return 0
    handover.used = True
    return inherit_stream(managed, handover)


cdef int inherit_stream(Managed* managed, Handover* handover) except -1:
    cdef const Stream* ready = ready_stream(handover)
    cdef object keeper = <object> ready.keeper if ready.keeper != NULL else None
    set_producer(managed, usable_number(handover, ready), keeper, ready.lasts)
    if handover.array != NULL:
        set_allocator(managed, handover.tell, <object> handover.array, handover.own_stream)
    return 0


cdef Stream* ready_stream(Handover* handover) noexcept nogil:
    """The stream on which the memory is ready: the consumer's once that has waited for the producer's."""
    return &handover.producer if handover.consumer.number == STREAM_UNORDERED else &handover.consumer


cdef int64_t stream_of(const Managed* managed) noexcept:
    """The number of the stream on which the memory is ready, or the legacy default one if no stream is known."""
    cdef Handover* handover = handover_of(managed)
    return STREAM_LEGACY_DEFAULT if handover == NULL else usable_number(handover, ready_stream(handover))


cdef int stream_device(Managed* managed, DLDevice* out) except -1:
    """The device whose streams matter, with the driver's number. DLPack has pinned and managed memory on device 0."""
    cdef Handover* handover = get_or_make_handover(managed)
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    out[0] = managed.abi.dl_tensor.device
    if device_type != kDLCUDA and device_type != kDLROCM:
        need_driver(managed, handover)
        out.device_type = handover.driver.device_type
        out.device_id = handover.device_id
    return 0


cdef void* current_context(int32_t device_type) except? NULL:
    """The caller's current context, for restore_context()."""
    cdef Driver* driver = find_driver(device_type)
    cdef void* context
    with nogil:
        context = cuda.current_context(driver)
    return context


cdef int restore_context(int32_t device_type, void* context) except -1:
    cdef Driver* driver = find_driver(device_type)
    with nogil:
        cuda.restore_context(driver, context)
    return 0


cdef int order_consumer(Managed* managed, int64_t stream, object keeper, bint lasts) except -1:
    """Let the consumer's stream wait until the memory is ready."""
    cdef Handover* handover = get_or_make_handover(managed)
    cdef int64_t ready = usable_number(handover, &handover.producer)
    release_what_is_done()
    if stream == STREAM_UNORDERED:
        # Without a producer's stream there is no order when the memory is released either.
        return fill_stream(&handover.producer, STREAM_UNORDERED, None, False)
    if ready != STREAM_UNORDERED and ready != stream:
        need_driver(managed, handover)
        order_on_device(handover.driver, handover.device_id, ready, stream)
        if handover.array != NULL:
            handover.tell(<object> handover.array, handover.own_stream)
    return fill_stream(&handover.consumer, stream, keeper, lasts)


cdef Handover* get_or_make_handover(Managed* managed) except NULL:
    """A block's Handover, which is made if there is none.

    Memory that came without a stream, in a capsule, is ready on the legacy default stream: that is the rule of the
    array API standard.
    """
    cdef Handover* handover = handover_of(managed)
    if handover == NULL:
        handover = wrap(managed)
        fill_stream(&handover.producer, STREAM_LEGACY_DEFAULT, None, True)
        note_named(managed, handover, handover.wrapped.owns in (OWNS_VERSIONED, OWNS_LEGACY))
    return handover


cdef int note_named(Managed* managed, Handover* handover, bint by_dlpack) except -1:
    """Note whether memory came by DLPack, which says where it is ready and not in which order it goes back.

    A Tensor is no such producer: its block knows by itself whom it waits for.
    """
    handover.named = by_dlpack and not is_lent(handover)
    if handover.named:
        try:
            need_driver(managed, handover)      # when the memory goes back it is too late to look for it
        except DeviceError:
            pass            # no order can be made: an error is raised where one is needed
    return 0


cdef int64_t usable_number(const Handover* handover, const Stream* stream) noexcept nogil:
    """The number of a stream in this thread.

    STREAM_PER_THREAD_DEFAULT of another thread means another stream here. The legacy default stream takes its place,
    since it waits for the default streams of all threads.
    """
    return number_here(stream.number, handover.thread)


cdef int64_t number_here(int64_t number, unsigned long thread) noexcept nogil:
    if number == STREAM_PER_THREAD_DEFAULT and thread != PyThread_get_thread_ident():
        return STREAM_LEGACY_DEFAULT
    return number


cdef int order_on_device(Driver* driver, int32_t device_id, int64_t first, int64_t then) except -1:
    """Let one stream of a device wait for another."""
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef bint done
    with nogil:
        done = cuda.order_streams(driver, device_id, first, then, &failure)
    if not done:
        raise driver_error(driver, &failure)
    return 0


cdef int order_streams(const DLDevice* device, int64_t first, int64_t then) except -1:
    """Let one stream wait for another, on a device that DLPack names."""
    cdef Driver* driver
    if first == then or first == STREAM_UNORDERED or then == STREAM_UNORDERED:
        return 0
    driver = find_driver(device.device_type)
    return order_on_device(driver, checked_ordinal(driver, device.device_id), first, then)


cdef int await_producer(Managed* managed) except -1:
    """Block until memory that the CPU is to read is ready."""
    cdef Handover* handover = get_or_make_handover(managed)
    cdef int64_t stream = usable_number(handover, ready_stream(handover))
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef bint done
    if stream == STREAM_UNORDERED or not is_there(managed):
        return 0
    need_driver(managed, handover)
    with nogil:
        done = cuda.wait_for_stream(handover.driver, handover.device_id, stream, &failure)
    if not done:
        raise driver_error(handover.driver, &failure)
    return 0


cdef bint is_there(const Managed* managed) except -1:
    """Whether there is a driver. Without a driver no library can have queued work."""
    try:
        find_driver(managed.abi.dl_tensor.device.device_type)
    except DeviceError:
        return False
    return True


cdef int fetch(Managed* source, void* into, const void* begin, size_t nbytes) except -1:
    """Copy bytes of a block's memory to the host. They are there when this returns."""
    cdef Handover* handover = get_or_make_handover(source)
    cdef int64_t stream = usable_number(handover, ready_stream(handover))
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef bint done
    cdef Copy copy
    need_driver(source, handover)
    begin_copy(&copy, into, NULL, 1)
    add_axis(&copy, nbytes, 1, 1)
    with nogil:
        done = is_staged(handover.driver, into, nbytes) and stage(
            handover.driver, handover.device_id, <void*> begin, &copy, DOWN, stream, &failure)
        if not done and is_well(&failure):
            if stream == STREAM_UNORDERED:
                stream = STREAM_PER_THREAD_DEFAULT      # no other stream has to wait for this one
            done = cuda.move(
                handover.driver, handover.device_id, into, <void*> begin, nbytes, False, stream, &failure)
    if not done:
        raise driver_error(handover.driver, &failure)
    return 0


cdef int32_t current_device(int32_t device_type) except -1:
    """The number of the device that is current in this thread."""
    return cuda.current_device(find_driver(device_type))


cdef bint is_large(int64_t nbytes) noexcept:
    """Whether memory of this size moves faster by several threads than by a library's own copy."""
    return is_worth(nbytes)


cdef bint upload(Managed* into, const Copy* copy) except -1:
    """Copy memory of the host into a block's memory, which is compact in the order of ``copy.into``.

    It is there when this returns. False if it was not done, since there is not enough to gain, or no pinned memory.
    """
    cdef Handover* handover = get_or_make_handover(into)
    cdef int64_t stream = usable_number(handover, ready_stream(handover))
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef bint done
    need_driver(into, handover)
    with nogil:
        done = is_staged(handover.driver, copy.source, managed_nbytes(into)) and stage(
            handover.driver, handover.device_id, managed_data(into), copy, UP, stream, &failure)
    if not is_well(&failure):
        raise driver_error(handover.driver, &failure)
    return done


cdef int send(Managed* into, const void* source) except -1:
    """Copy bytes of the host into a block's memory, which is dense. They are there when this returns."""
    cdef Handover* handover = get_or_make_handover(into)
    cdef int64_t stream = usable_number(handover, ready_stream(handover))
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef bint done
    need_driver(into, handover)
    with nogil:
        done = cuda.move(handover.driver, handover.device_id, managed_data(into), <void*> source,
                         managed_nbytes(into), True, stream, &failure)
    if not done:
        raise driver_error(handover.driver, &failure)
    return 0


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
    cdef Managed* made
    cdef Pooled* pooled
    cdef object keeper = None
    need_driver(source, handover)
    if span.high_bytes == span.low_bytes:
        return marked_as_copy(managed_share(source))
    if ready_stream(handover).keeper != NULL:
        keeper = <object> ready_stream(handover).keeper
    pooled = new_pooled(handover.driver, handover.device_id, ready_stream(handover), handover.thread)
    try:
        copy_into(pooled, handover, managed_data(source) + span.low_bytes, span.high_bytes - span.low_bytes)
        made = managed_like(source)
    except BaseException:
        release_pooled(pooled)
        raise
    return owning(made, pooled, span.low_bytes, keeper)


cdef Managed* owning(Managed* made, Pooled* pooled, int64_t low_bytes, object keeper) except NULL:
    """A block that owns pooled memory, in which the first element comes after so many bytes."""
    cdef DLTensor* tensor = &made.abi.dl_tensor
    managed_own(made, OWNS_WRAPPED, pooled)
    tensor.data = <char*> pooled.memory - low_bytes
    tensor.byte_offset = 0
    tensor.device.device_type, tensor.device.device_id = pooled.driver.device_type, pooled.device_id
    marked_as_copy(made)
    try:
        set_producer(made, pooled.stream.number, keeper, pooled.stream.lasts)
    except BaseException:
        managed_release(made)
        raise
    return made


cdef Managed* allocate(const Managed* like, const DLDevice* device) except NULL:
    """New memory of a device's pool for the elements of ``like``, dense, and ready on dlbridge's own stream.

    A device without a number is the current one.
    """
    cdef Driver* driver = find_driver(device.device_type)
    cdef int32_t device_id = cuda.current_device(driver) if device.device_id == ANY_DEVICE_ID else device.device_id
    cdef Stream own = Stream(0, NULL, True)
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef Pooled* pooled
    cdef Managed* made
    checked_ordinal(driver, device_id)
    with nogil:
        own.number = <int64_t> <size_t> cuda.own_stream(driver, device_id, &failure)
    if not own.number:
        raise driver_error(driver, &failure)
    pooled = new_pooled(driver, device_id, &own, PyThread_get_thread_ident())
    try:
        if managed_count(like):
            fill_pooled(pooled, NULL, managed_nbytes(like))
        made = managed_like(like)
    except BaseException:
        release_pooled(pooled)
        raise
    make_dense(made)
    return owning(made, pooled, 0, None)


cdef void make_dense(Managed* managed) noexcept nogil:
    """Give a block that has no memory yet the strides of C order, unless it is dense in another order."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    if not is_dense(tensor.ndim, tensor.shape, tensor.strides, managed_count(managed)):
        fill_compact(tensor.ndim, tensor.shape, tensor.strides)
        managed.marks &= ~<uint8_t> (STRIDED | REPEATED | BACKWARD)


cdef Managed* marked_as_copy(Managed* made) noexcept nogil:
    made.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
    made.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY
    return made


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
    cdef int64_t stream = pooled.stream.number
    cdef int64_t producer = usable_number(handover, &handover.producer)
    fill_pooled(pooled, begin, nbytes)
    handover.used = True
    if producer != STREAM_UNORDERED and producer != stream:
        # This is done now, while both handles are valid. The source may be released as soon as this function returns.
        order_on_device(pooled.driver, pooled.device_id, stream, producer)
        fill_stream(&handover.consumer, STREAM_UNORDERED, None, False)
    return 0


cdef int fill_pooled(Pooled* pooled, void* source, size_t nbytes) except -1:
    """Allocate the memory, and copy into it unless source is NULL."""
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef int64_t stream = pooled.stream.number
    cdef bint done
    with nogil:
        done = cuda.allocate(pooled.driver, pooled.device_id, &pooled.memory, nbytes, source, stream, &failure)
        if not done and failure.wanted and load_pointer(&waiting) != NULL:
            release_waiting(True)       # it may have the memory that is missing
            failure = Failure(0, 0, 0, 0, False)
            done = cuda.allocate(pooled.driver, pooled.device_id, &pooled.memory, nbytes, source, stream, &failure)
    if not done:
        raise driver_error(pooled.driver, &failure)
    return 0


cdef void release_pooled(void* owner) noexcept nogil:
    """Give the memory back in the order of its stream.

    If the stream may be gone, the legacy default stream takes its place, which waits for most other streams.
    """
    cdef Pooled* pooled = <Pooled*> owner
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef int64_t stream = pooled.stream.number
    cdef PyThreadState* gil
    if pooled.memory != NULL and python_is_up():
        if not pooled.stream.lasts or (
                stream == STREAM_PER_THREAD_DEFAULT and pooled.thread != PyThread_get_thread_ident()):
            stream = STREAM_LEGACY_DEFAULT
            count_one(&unordered)
        gil = give_up_gil()
        if not cuda.deallocate(pooled.driver, pooled.device_id, pooled.memory, stream, &failure):
            count_one(&unordered)
        take_gil(gil)
    free(pooled)


cdef bint is_readable(Managed* managed) except -1:
    """Whether the CPU may read managed memory where it is."""
    cdef Location location
    cdef Driver* driver = find_driver(managed.abi.dl_tensor.device.device_type)
    if managed.abi.dl_tensor.data == NULL:
        return True
    cuda.locate(driver, managed_data(managed), &location)
    return location.concurrent


# ---- release -------------------------------------------------------------------------------------------------------

cdef void release_handover(void* owner) noexcept nogil:
    """Let the producer's stream wait for the consumer's, or keep the memory until that is done; release the owner."""
    cdef Handover* handover = <Handover*> owner
    cdef bint kept = False
    # The driver is not called once Python is shutting down, since the driver may be shut down already.
    if python_is_up():
        if needs_order(handover) and not order_producer(handover):
            kept = keep_until_done(handover)
            if not kept:
                count_one(&unordered)
        release_what_is_done()
    if not kept:
        end_handover(handover)


cdef void end_handover(Handover* handover) noexcept nogil:
    release_owner(handover.wrapped.owns, handover.wrapped.owner)
    release_reference(handover.producer.keeper)
    release_reference(handover.own.keeper)
    release_reference(handover.consumer.keeper)
    release_reference(handover.array)
    free(handover)


cdef void release_reference(PyObject* reference) noexcept nogil:
    if reference != NULL:
        release_owner(OWNS_OBJECT, reference)


cdef bint needs_order(Handover* handover) noexcept nogil:
    if handover.producer.number == STREAM_UNORDERED or is_settled(handover):
        return False
    if handover.consumer.number == STREAM_UNORDERED and not handover.used:
        return False
    return ready_stream(handover).number != own_stream(handover).number


cdef Stream* own_stream(Handover* handover) noexcept nogil:
    """The stream in whose order the producer gives the memory back."""
    return &handover.own if handover.named else &handover.producer


cdef bint order_producer(Handover* handover) noexcept nogil:
    """Let the producer's stream wait for the consumer's.

    False if the producer's own stream is not known, if a handle could be stale, if a stream is being captured, or if
    the driver refuses. No error is raised.
    """
    cdef Stream* used = ready_stream(handover)
    cdef Stream* own = own_stream(handover)
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef PyThreadState* gil
    cdef bint ordered
    if handover.driver == NULL or own.number == STREAM_UNORDERED or not (
            is_sound(handover, own) and is_sound(handover, used)):
        return False
    gil = give_up_gil()
    ordered = cuda.order_streams(handover.driver, handover.device_id, used.number, own.number, &failure)
    take_gil(gil)
    return ordered


# ---- releases that wait --------------------------------------------------------------------------------------------

# Streams that were asked, and have not come far enough.
ctypedef struct Busy:
    int count
    int64_t[MOST_BUSY] streams
    int32_t[MOST_BUSY] devices

cdef void* waiting = NULL               # the Waiting that was added last
cdef size_t waiting_count = 0
cdef size_t waiting_bytes = 0


def forget_waiting():
    """Forget what waits. A forked child cannot ask the parent's driver, and the memory is the parent's."""
    exchange_pointer(&waiting, NULL)
    store_size(&waiting_count, 0)
    store_size(&waiting_bytes, 0)


call_in_child(forget_waiting)


cdef bint keep_until_done(Handover* handover) noexcept nogil:
    """Keep the memory until the consumer's stream has done what it was given so far.

    False if the handle of that stream could be stale, if the stream is being captured, or if the driver refuses.
    """
    cdef Stream* used = ready_stream(handover)
    cdef Waiting* entry
    cdef Failure failure = Failure(0, 0, 0, 0, False)
    cdef PyThreadState* gil
    if handover.driver == NULL or not used.lasts:
        return False
    entry = <Waiting*> calloc(1, sizeof(Waiting))
    if entry == NULL:
        return False
    entry.stream = usable_number(handover, used)
    gil = give_up_gil()
    entry.event = cuda.mark_stream(handover.driver, handover.device_id, entry.stream, &failure)
    take_gil(gil)
    if entry.event == NULL:
        free(entry)
        return False
    entry.handover = handover
    add_size(&waiting_count, 1)
    add_size(&waiting_bytes, <size_t> handover.nbytes)
    put_back(entry)
    return True


cdef void put_back(Waiting* entry) noexcept nogil:
    """Add a release to those that wait."""
    while True:
        entry.next = <Waiting*> load_pointer(&waiting)
        if replace_pointer(&waiting, entry.next, entry):
            return


cdef bint too_much_waits() noexcept nogil:
    """Whether the oldest release is to be waited for. A single one may be of any size."""
    return load_size(&waiting_count) > MOST_WAITING or (
        load_size(&waiting_bytes) > MOST_BYTES_WAITING and load_size(&waiting_count) > 1)


cdef inline void release_what_is_done() noexcept nogil:
    if load_pointer(&waiting) != NULL:
        release_waiting(False)


cdef void release_waiting(bint all_of_it) noexcept nogil:
    """Release the memory that its consumer's stream is done with, or wait for all of it.

    The list is taken as a whole, so two threads that do this share no release, and nor does an owner whose end leads
    here again.
    """
    cdef Waiting* entry
    cdef Waiting* following
    cdef Waiting* done = NULL
    cdef Busy busy
    cdef PyThreadState* gil
    busy.count = 0
    entry = reversed_list(<Waiting*> exchange_pointer(&waiting, NULL))      # the oldest first
    gil = give_up_gil()
    while entry != NULL:
        following = entry.next
        if is_done(entry, all_of_it or too_much_waits(), &busy):
            add_size(&waiting_count, -1)
            add_size(&waiting_bytes, -<size_t> entry.handover.nbytes)
            entry.next, done = done, entry
        else:
            put_back(entry)
        entry = following
    take_gil(gil)
    done = reversed_list(done)
    while done != NULL:
        following = done.next
        end_handover(done.handover)
        free(done)
        done = following


cdef bint is_done(Waiting* entry, bint wait, Busy* busy) noexcept nogil:
    """Whether a stream has come as far as this release wants, which is waited for if so told.

    A stream that has not come as far as an older release wants is busy, and is not asked again.
    """
    cdef int32_t device_id = entry.handover.device_id
    cdef int index
    for index in range(0 if wait else busy.count):
        if busy.streams[index] == entry.stream and busy.devices[index] == device_id:
            return False
    if cuda.has_happened(entry.handover.driver, device_id, entry.event, wait):
        return True
    if busy.count < MOST_BUSY:
        busy.streams[busy.count], busy.devices[busy.count] = entry.stream, device_id
        busy.count += 1
    return False


cdef Waiting* reversed_list(Waiting* entry) noexcept nogil:
    cdef Waiting* made = NULL
    cdef Waiting* following
    while entry != NULL:
        following = entry.next
        entry.next, made = made, entry
        entry = following
    return made


# A deleter may be called with the GIL or without it. A driver may wait for a thread that wants the GIL, such as one
# that runs a host callback, so it is called without.

cdef PyThreadState* give_up_gil() noexcept nogil:
    return PyEval_SaveThread() if holds_gil() else NULL


cdef void take_gil(PyThreadState* state) noexcept nogil:
    if state != NULL:
        PyEval_RestoreThread(state)


cdef bint is_sound(const Handover* handover, const Stream* stream) noexcept nogil:
    """Whether a stream is alive, and its number means the same stream in this thread.

    STREAM_PER_THREAD_DEFAULT means another stream in another thread.
    """
    return stream.lasts and (
        stream.number != STREAM_PER_THREAD_DEFAULT or handover.thread == PyThread_get_thread_ident())


operations.locate = locate
operations.set_producer = set_producer
operations.set_named = set_named
operations.set_own = set_own
operations.set_allocator = set_allocator
operations.set_producer_event = set_producer_event
operations.label_device = label_device
operations.settle = settle
operations.inherit = inherit
operations.make_handover = make_handover
operations.stream_of = stream_of
operations.order_consumer = order_consumer
operations.order_streams = order_streams
operations.stream_device = stream_device
operations.current_context = current_context
operations.restore_context = restore_context
operations.await_producer = await_producer
operations.fetch = fetch
operations.current_device = current_device
operations.is_large = is_large
operations.upload = upload
operations.send = send
operations.allocate = allocate
operations.duplicate = duplicate
operations.is_readable = is_readable
operations.check_device = cuda.check_device
store_flag(&operations.ready, True)
