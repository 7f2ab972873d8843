"""What is noted of device memory, and which stream waits for which when it is handed over.

The consumer's stream waits for the producer's stream by an event, on the device. The host waits for memory that the CPU
reads. What happens when the memory is released is in ``releases``, and copies are in ``transfers``.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc

from dlbridge._core.abi cimport (
    STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT, STREAM_UNORDERED, DLDevice, DLManagedTensorVersioned, DLTensor,
    kDLCUDA, kDLROCM,
)
from dlbridge._core.atomic cimport exchange_pointer, load_pointer, lock, unlock
from dlbridge._core.block cimport (
    OWNS_LEGACY, OWNS_VERSIONED, OWNS_WRAPPED, Managed, Protocol, lent_deleter, managed_data, managed_own,
    managed_shape, managed_span, protocol_name, sole_deleter,
)
from dlbridge._core.devices cimport cuda
from dlbridge._core.devices.cuda cimport (
    Driver, DriverFailure, Location, any_driver, check, checked_ordinal, find_driver,
)
from dlbridge._core.devices.releases cimport (
    Handover, Stream, count_without_order, handover_of, ready_stream, release_handover, release_reference,
    release_what_is_done, usable_number,
)
from dlbridge._core.devices.table cimport MakeHandover, Tell, operations
from dlbridge._core.layout cimport Span

from dlbridge.errors import REPORT, ConversionError, DeviceError, refusal

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil


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


cdef int label_device(Managed* managed) except -1:
    """Label pinned or managed memory as its device's."""
    cdef Driver* driver = find_driver(managed.abi.dl_tensor.device.device_type)
    cdef Location location = Location(0, 0, 0, 0, False)
    if managed.abi.dl_tensor.data != NULL:
        cuda.locate(driver, managed_data(managed), &location)
    managed.abi.dl_tensor.device.device_type = driver.device_type
    managed.abi.dl_tensor.device.device_id = location.device_id


cdef int set_producer(Managed* managed, int64_t stream, object keeper, bint lasts) except -1:
    """Note the stream on which the memory is ready."""
    cdef Handover* handover = handover_of(managed)
    if handover == NULL:
        handover = wrap(managed)
    fill_stream(&handover.producer, stream, keeper, lasts)
    keep_for_base(handover, stream, keeper, lasts)


cdef int set_named(Managed* managed, int64_t stream, object keeper) except -1:
    """Note the stream that a producer was told, on which it made the memory ready. Its own stream is another one."""
    set_producer(managed, stream, keeper, False)
    return note_named(managed, handover_of(managed), True)


cdef int set_own(Managed* managed, int64_t stream, object keeper) except -1:
    """Note a producer's own stream, in whose order the memory goes back, where the producer was told another one."""
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


cdef int set_producer_event(Managed* managed, void* event) except -1:
    """Note that the memory is ready once an event has happened, or now if there is no event.

    The legacy default stream waits for the event, because consumers wait for a stream, and that one lasts for ever.
    """
    cdef Handover* handover
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    if event == NULL:
        return set_producer(managed, STREAM_UNORDERED, None, False)
    handover = get_or_make_handover(managed)
    need_driver(managed, handover)
    with nogil:
        cuda.order_after_event(handover.driver, handover.device_id, event, STREAM_LEGACY_DEFAULT, &failure)
    check(handover.driver, &failure)


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


cdef int settle(Managed* managed) except -1:
    """Note that the consumer will let the producer's stream wait for its work."""
    get_or_make_handover(managed).settled = True


cdef int inherit(Managed* managed, const Managed* base) except -1:
    """Note the stream of a second block over the same memory.

    The memory is ready on the stream that the first block was handed to, or on the producer's stream if it was not
    handed over.
    """
    cdef Handover* handover = handover_of(base)
    cdef const Stream* ready
    if handover == NULL:
        return 0
    handover.used = True
    ready = ready_stream(handover)
    keeper = <object> ready.keeper if ready.keeper != NULL else None
    set_producer(managed, usable_number(handover, ready), keeper, ready.lasts)
    if handover.array != NULL:
        set_allocator(managed, handover.tell, <object> handover.array, handover.own_stream)


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


cdef int order_consumer(Managed* managed, int64_t stream, object keeper, bint lasts) except -1:
    """Let the consumer's stream wait until the memory is ready."""
    cdef Handover* handover = get_or_make_handover(managed)
    cdef int64_t ready = usable_number(handover, &handover.producer)
    release_what_is_done()
    if stream == STREAM_UNORDERED:
        # Without a producer's stream there is no order when the memory is released either.
        count_without_order()
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


cdef Handover* ready_handover(Managed* managed, int64_t* stream) except NULL:
    cdef Handover* handover = get_or_make_handover(managed)
    stream[0] = usable_number(handover, ready_stream(handover))
    need_driver(managed, handover)
    return handover


cdef int note_named(Managed* managed, Handover* handover, bint by_dlpack) except -1:
    """Note whether memory came by DLPack, which says where it is ready and not in which order it goes back.

    Memory of a Tensor does not count as such: the Tensor's own block orders its release.
    """
    handover.named = by_dlpack and not is_lent(handover)
    if handover.named:
        try:
            need_driver(managed, handover)      # when the memory goes back it is too late to look for it
        except DeviceError:
            pass            # no order can be made: an error is raised where one is needed


cdef int order_on_device(Driver* driver, int32_t device_id, int64_t first, int64_t then) except -1:
    """Let one stream of a device wait for another."""
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    with nogil:
        cuda.order_streams(driver, device_id, first, then, &failure)
    check(driver, &failure)


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
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    if stream == STREAM_UNORDERED:
        return 0
    try:
        find_driver(managed.abi.dl_tensor.device.device_type)
    except DeviceError:
        return 0                # without a driver no library can have queued work
    need_driver(managed, handover)
    with nogil:
        cuda.wait_for_stream(handover.driver, handover.device_id, stream, &failure)
    check(handover.driver, &failure)


operations.locate = locate
operations.set_producer = set_producer
operations.set_named = set_named
operations.set_own = set_own
operations.set_allocator = set_allocator
operations.set_producer_event = set_producer_event
operations.label_device = label_device
operations.settle = settle
operations.inherit = inherit
operations.make_handover = <MakeHandover> get_or_make_handover
operations.stream_of = stream_of
operations.order_consumer = order_consumer
operations.order_streams = order_streams
operations.stream_device = stream_device
operations.current_context = cuda.current_context
operations.restore_context = cuda.restore_context
operations.await_producer = await_producer
