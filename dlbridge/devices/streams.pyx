"""Who waits for whom when device memory is handed over, and when it is let go.

The consumer's stream waits for the producer's by an event, on the device; when the last consumer lets go, the
producer's stream waits for the consumer's, so that nobody writes into memory that is still being read. The host never
waits here, but where memory is read by the CPU.
"""

import sys

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from dlbridge.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    STREAM_LEGACY_DEFAULT,
    STREAM_PER_THREAD_DEFAULT,
    STREAM_UNORDERED,
    DLDevice,
    DLTensor,
)
from dlbridge.devices.cuda cimport (
    Driver,
    Failure,
    Location,
    allocate,
    any_driver,
    copy_on_device,
    deallocate,
    driver_error,
    fetch,
    find_driver,
    follow,
    is_capturing,
    locate,
    wait_for,
)
from dlbridge.devices.table cimport operations
from dlbridge.layout cimport Span
from dlbridge.managed cimport (
    OWNS_OBJECT,
    OWNS_WRAPPED,
    Managed,
    managed_data,
    managed_like,
    managed_own,
    managed_release,
    managed_span,
    python_is_up,
    release_owner,
)

from dlbridge.errors import DeviceError, refusal

cdef extern from *:
    """
    #define dlbridge_count(where) __atomic_add_fetch(where, 1, __ATOMIC_RELAXED)
    """
    int64_t count_one "dlbridge_count"(int64_t* where) noexcept nogil

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef int64_t unordered = 0


def unordered_releases():
    """How often memory went back to its producer with no order between the streams.

    So where a handle could be stale, since no object keeps its stream alive, and where a stream was being captured.
    """
    return unordered


# ---- what is known of a block --------------------------------------------------------------------------------------

cdef Handover* handover_of(const Managed* managed) noexcept nogil:
    """Of memory whose stream is known, or NULL."""
    cdef Handover* handover = <Handover*> managed.abi.manager_ctx
    return handover if managed.owns == OWNS_WRAPPED and handover.wrapped.release == release_handover else NULL


cdef Handover* wrap(Managed* managed) except NULL:
    """Put a Handover around the owner of a block that nobody else has seen yet."""
    cdef Handover* handover = <Handover*> calloc(1, sizeof(Handover))
    if handover == NULL:
        raise MemoryError
    handover.wrapped.release = release_handover
    handover.wrapped.owns = managed.owns
    handover.wrapped.owner = managed.abi.manager_ctx
    handover.producer.number = handover.consumer.number = STREAM_UNORDERED
    handover.thread = PyThread_get_thread_ident()
    managed_own(managed, OWNS_WRAPPED, handover)
    return handover


cdef int set_stream(Stream* stream, int64_t number, object keeper, bint lasts) except -1:
    cdef PyObject* before = stream.keeper
    if keeper is not None:
        Py_INCREF(keeper)
    stream.number = number
    stream.keeper = NULL if keeper is None else <PyObject*> keeper
    stream.lasts = lasts or keeper is not None or number in (STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT)
    release_reference(before)
    return 0


cdef int need_driver(Managed* managed, Handover* handover) except -1:
    """Load the driver, and find the device whose streams matter: DLPack numbers pinned and managed memory 0."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef Driver* driver
    cdef Location location = Location(0, tensor.device.device_id, False)
    if handover.driver != NULL:
        return 0
    driver = find_driver(tensor.device.device_type)
    if tensor.device.device_type != driver.device_type and tensor.data != NULL:
        locate(driver, managed_data(managed), &location)
    handover.driver = driver
    handover.device_id = location.device_id
    return 0


# ---- operations ----------------------------------------------------------------------------------------------------

cdef int place_pointer(Managed* managed) except -1:
    """Find out the device of memory from an interface that does not name it."""
    cdef Driver* driver = any_driver()
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef Location location = Location(driver.device_type, 0, False)
    cdef Handover* handover
    if tensor.data != NULL:
        locate(driver, tensor.data, &location)
    tensor.device.device_type = location.device_type
    # DLPack: pinned and managed memory are of device 0.
    tensor.device.device_id = location.device_id if location.device_type == driver.device_type else 0
    handover = wrap(managed)
    handover.driver = driver
    handover.device_id = location.device_id
    return 0


cdef int label_device(Managed* managed) except -1:
    """See pinned or managed memory as that of its device."""
    cdef Driver* driver = find_driver(managed.abi.dl_tensor.device.device_type)
    cdef Location location = Location(0, 0, False)
    if managed.abi.dl_tensor.data != NULL:
        locate(driver, managed_data(managed), &location)
    managed.abi.dl_tensor.device.device_type = driver.device_type
    managed.abi.dl_tensor.device.device_id = location.device_id
    return 0


cdef int set_producer(Managed* managed, int64_t stream, object keeper, bint lasts, object tensor) except -1:
    """Remember on which stream the memory is ready; ``tensor`` is torch's, or None."""
    cdef Handover* handover = handover_of(managed)
    if handover == NULL:
        handover = wrap(managed)
    set_stream(&handover.producer, stream, keeper, lasts)
    if tensor is not None:
        Py_INCREF(tensor)
        handover.tensor = <PyObject*> tensor
    return 0


cdef int inherit(Managed* managed, const Managed* base) except -1:
    """A second block over the same memory: ready where the first one was handed over, or else where it was produced."""
    cdef Handover* handover = handover_of(base)
    return 0 if handover == NULL else inherit_stream(managed, handover)


cdef int inherit_stream(Managed* managed, Handover* handover) except -1:
    cdef const Stream* ready = ready_stream(handover)
    cdef object keeper = <object> ready.keeper if ready.keeper != NULL else None
    cdef object tensor = <object> handover.tensor if handover.tensor != NULL else None
    return set_producer(managed, ready.number, keeper, ready.lasts, tensor)


cdef Stream* ready_stream(Handover* handover) noexcept nogil:
    """On which the memory is ready: the consumer's, once it was ordered after the producer's."""
    return &handover.producer if handover.consumer.number == STREAM_UNORDERED else &handover.consumer


cdef int64_t stream_of(const Managed* managed) noexcept:
    """The stream on which the memory is ready: the legacy default one where nothing else is known."""
    cdef Handover* handover = handover_of(managed)
    return STREAM_LEGACY_DEFAULT if handover == NULL else ready_stream(handover).number


cdef int order(Managed* managed, int64_t stream, object keeper, bint lasts) except -1:
    """Let the consumer's stream wait until the memory is ready."""
    cdef Handover* handover = handover_of(managed)
    cdef Failure failure = Failure(0, 0)
    cdef bint done = True
    if handover == NULL:
        # The standard's rule for a capsule without a stream: ready on the legacy default one.
        set_producer(managed, STREAM_LEGACY_DEFAULT, None, True, None)
        handover = handover_of(managed)
    if stream == STREAM_UNORDERED:
        # Nor when it is let go.
        return set_stream(&handover.producer, STREAM_UNORDERED, None, False)
    if handover.producer.number != STREAM_UNORDERED and handover.producer.number != stream:
        need_driver(managed, handover)
        refuse_capture(handover, stream)
        with nogil:
            done = follow(handover.driver, handover.device_id, handover.producer.number, stream, &failure)
        if not done:
            raise driver_error(handover.driver, &failure)
        if handover.tensor != NULL:
            tell_torch(<object> handover.tensor, stream)
    return set_stream(&handover.consumer, stream, keeper, lasts)


cdef int follow_on(const DLDevice* device, int64_t first, int64_t then) except -1:
    """Let one stream of a device wait for another."""
    cdef Driver* driver
    cdef int32_t device_id = device.device_id
    cdef Failure failure = Failure(0, 0)
    cdef bint done
    if first == then:
        return 0
    driver = find_driver(device.device_type)
    with nogil:
        done = follow(driver, device_id, first, then, &failure)
    if not done:
        raise driver_error(driver, &failure)
    return 0


cdef int refuse_capture(Handover* handover, int64_t stream) except -1:
    """An event between a captured stream and another one would tie the graph to what only happens now."""
    cdef Failure failure = Failure(0, 0)
    cdef bint capturing = False
    for number in (handover.producer.number, stream):
        if not is_capturing(handover.driver, handover.device_id, number, &capturing, &failure):
            raise driver_error(handover.driver, &failure)
        if capturing:
            raise refusal(DeviceError, "streams", "stream", f"{handover.producer.number:#x} to {stream:#x}",
                          "cannot be ordered, since one of them is captured into a graph",
                          "hand over on the captured stream, or pass stream=-1 and order them yourself")
    return 0


cdef int tell_torch(object tensor, int64_t stream) except -1:
    """torch gives memory to its next owner at once; it waits only for streams that it was told of."""
    torch = sys.modules["torch"]
    if stream == STREAM_LEGACY_DEFAULT:
        other = torch.cuda.default_stream(tensor.device)
    else:
        other = torch.cuda.ExternalStream(stream, device=tensor.device)
    tensor.record_stream(other)
    return 0


cdef int await_producer(Managed* managed) except -1:
    """Block until memory that the CPU is to read is ready."""
    cdef Handover* handover = handover_of(managed)
    cdef Failure failure = Failure(0, 0)
    cdef bint done
    if handover == NULL or handover.producer.number == STREAM_UNORDERED or not is_there(managed):
        return 0
    need_driver(managed, handover)
    with nogil:
        done = wait_for(handover.driver, handover.device_id, handover.producer.number, &failure)
    if not done:
        raise driver_error(handover.driver, &failure)
    return 0


cdef bint is_there(const Managed* managed) except -1:
    """Whether there is a driver at all, without which nobody queues anything."""
    try:
        find_driver(managed.abi.dl_tensor.device.device_type)
    except DeviceError:
        return False
    return True


cdef int fetch_bytes(Managed* source, void* into, const void* begin, size_t nbytes) except -1:
    """Copy bytes of a block's memory to the host; they are there when this returns."""
    cdef Handover* handover = handover_of(source)
    cdef int64_t stream = stream_of(source)
    cdef Failure failure = Failure(0, 0)
    cdef bint done
    if handover == NULL:
        handover = wrap(source)
    need_driver(source, handover)
    if stream == STREAM_UNORDERED:
        stream = STREAM_PER_THREAD_DEFAULT      # which no other stream has to wait for
    with nogil:
        done = fetch(handover.driver, handover.device_id, into, <void*> begin, nbytes, stream, &failure)
    if not done:
        raise driver_error(handover.driver, &failure)
    return 0


ctypedef struct Pooled:
    Wrapped wrapped             # first, as ever; owns nothing: the memory is given back in the order of a stream
    Driver* driver
    int32_t device_id
    void* memory
    Stream stream               # its keeper is the Handover's, which lets go of it after this


cdef Managed* duplicate(Managed* source) except NULL:
    """The touched bytes once more on their device, in stream-ordered memory, with the strides of the source.

    The copy is made, and will be ready, on the stream on which the source is.
    """
    cdef Handover* handover = handover_of(source)
    cdef int64_t stream = stream_of(source)
    cdef Span span = managed_span(source)
    cdef size_t nbytes = span.high_bytes - span.low_bytes
    cdef Managed* made = managed_like(source)
    cdef Pooled* pooled = <Pooled*> calloc(1, sizeof(Pooled))
    cdef Failure failure = Failure(0, 0)
    cdef bint done
    if handover == NULL:
        handover = wrap(source)
    try:
        if pooled == NULL:
            raise MemoryError
        need_driver(source, handover)
        if stream == STREAM_UNORDERED:
            stream = STREAM_PER_THREAD_DEFAULT
        pooled.wrapped.release = release_pooled
        pooled.driver, pooled.device_id = handover.driver, handover.device_id
        pooled.stream.number = stream
        pooled.stream.lasts = ready_stream(handover).lasts
        with nogil:
            done = allocate(
                handover.driver, handover.device_id, &pooled.memory, nbytes, stream, &failure) and copy_on_device(
                handover.driver, handover.device_id, pooled.memory, managed_data(source) + span.low_bytes, nbytes,
                stream, &failure)
        if not done:
            raise driver_error(handover.driver, &failure)
    except BaseException:
        if pooled != NULL:
            release_pooled(pooled)
        managed_release(made)
        raise
    managed_own(made, OWNS_WRAPPED, pooled)
    made.abi.dl_tensor.data = <char*> pooled.memory - span.low_bytes
    made.abi.dl_tensor.byte_offset = 0
    made.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
    made.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY
    try:
        inherit_stream(made, handover)
    except BaseException:
        managed_release(made)
        raise
    return made


cdef void release_pooled(void* owner) noexcept nogil:
    cdef Pooled* pooled = <Pooled*> owner
    cdef Failure failure = Failure(0, 0)
    # In the order of a stream that may be gone it cannot be given back; the default one waits for most others.
    if pooled.memory != NULL and python_is_up():
        deallocate(
            pooled.driver, pooled.device_id, pooled.memory,
            pooled.stream.number if pooled.stream.lasts else <int64_t> STREAM_LEGACY_DEFAULT, &failure)
    free(pooled)


cdef bint is_readable(Managed* managed) except -1:
    """Whether the CPU may read managed memory where it is."""
    cdef Location location
    cdef Driver* driver = find_driver(managed.abi.dl_tensor.device.device_type)
    if managed.abi.dl_tensor.data == NULL:
        return True
    locate(driver, managed_data(managed), &location)
    return location.concurrent


# ---- release -------------------------------------------------------------------------------------------------------

cdef void release_handover(void* owner) noexcept nogil:
    """The way back: the producer's stream waits for the consumer's. What cannot be ordered is counted."""
    cdef Handover* handover = <Handover*> owner
    # Nothing touches the driver once Python is going down: it may be gone before.
    if needs_order(handover) and python_is_up() and not order_back(handover):
        count_one(&unordered)
    release_owner(handover.wrapped.owns, handover.wrapped.owner)
    release_reference(handover.producer.keeper)
    release_reference(handover.consumer.keeper)
    release_reference(handover.tensor)
    free(handover)


cdef void release_reference(PyObject* reference) noexcept nogil:
    if reference != NULL:
        release_owner(OWNS_OBJECT, reference)


cdef bint needs_order(const Handover* handover) noexcept nogil:
    return (
        handover.consumer.number != STREAM_UNORDERED
        and handover.producer.number != STREAM_UNORDERED
        and handover.consumer.number != handover.producer.number
        and handover.tensor == NULL         # torch's allocator sees to it
    )


cdef bint order_back(Handover* handover) noexcept nogil:
    """False where a handle could be stale, a stream is being captured, or the driver refuses; no error leaves here."""
    cdef Failure failure = Failure(0, 0)
    cdef bint first = True, then = True
    if not (is_sound(handover, &handover.producer) and is_sound(handover, &handover.consumer)):
        return False
    return (
        is_capturing(handover.driver, handover.device_id, handover.consumer.number, &first, &failure) and not first
        and is_capturing(handover.driver, handover.device_id, handover.producer.number, &then, &failure) and not then
        and follow(
            handover.driver, handover.device_id, handover.consumer.number, handover.producer.number, &failure)
    )


cdef bint is_sound(const Handover* handover, const Stream* stream) noexcept nogil:
    """Alive, and the stream that was meant: another thread's per-thread default is another one."""
    return stream.lasts and (
        stream.number != STREAM_PER_THREAD_DEFAULT or handover.thread == PyThread_get_thread_ident())


operations.locate = place_pointer
operations.set_producer = set_producer
operations.label_device = label_device
operations.inherit = inherit
operations.stream_of = stream_of
operations.order = order
operations.follow = follow_on
operations.await_producer = await_producer
operations.fetch = fetch_bytes
operations.duplicate = duplicate
operations.is_readable = is_readable
operations.ready = True
