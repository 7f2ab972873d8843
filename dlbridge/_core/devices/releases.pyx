"""What happens when device memory is released: the producer's stream waits for the consumer's, or the release waits.

The producer's stream waits so that no work writes into memory that is still being read. If that stream is not known,
the memory is kept until the consumer's stream is done. The host waits for the oldest where very much is kept.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT, STREAM_UNORDERED
from dlbridge._core.atomic cimport (
    add_size, count_one, exchange_pointer, load_pointer, load_size, replace_pointer, store_size,
)
from dlbridge._core.block cimport OWNS_BASE, OWNS_OBJECT, OWNS_WRAPPED, Managed, holds_gil, python_runs, release_owner
from dlbridge._core.devices cimport cuda
from dlbridge._core.devices.cuda cimport DriverFailure, is_well

from dlbridge._core.locks import call_in_child

cdef enum:
    MOST_BUSY = 16              # streams that one pass over the releases remembers

# How many releases may wait, and how many bytes. Beyond either limit the host waits for the oldest release.
cdef size_t MOST_WAITING = 1024
cdef size_t MOST_BYTES_WAITING = <size_t> 4 << 30

cdef extern from "Python.h":
    PyThreadState* PyEval_SaveThread() noexcept nogil
    void PyEval_RestoreThread(PyThreadState* state) noexcept nogil
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef int64_t unordered = 0
cdef int64_t without_order = 0      # hand-overs with stream=-1


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


cdef Handover* handover_of(const Managed* managed) noexcept nogil:
    cdef Handover* handover = <Handover*> managed.abi.manager_ctx
    return handover if managed.owns == OWNS_WRAPPED and handover.wrapped.release == release_handover else NULL


cdef bint is_settled(const Handover* handover) noexcept nogil:
    """Whether this block shares the memory of another block, and that one is settled."""
    cdef Handover* base = handover_of(<Managed*> handover.wrapped.owner) if handover.wrapped.owns == OWNS_BASE else NULL
    return base != NULL and base.settled


cdef Stream* ready_stream(Handover* handover) noexcept nogil:
    """The stream on which the memory is ready: the consumer's once that has waited for the producer's."""
    return &handover.producer if handover.consumer.number == STREAM_UNORDERED else &handover.consumer


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


cdef void release_handover(void* owner) noexcept nogil:
    """Let the producer's stream wait for the consumer's, or keep the memory until that is done; release the owner."""
    cdef Handover* handover = <Handover*> owner
    cdef bint kept = False
    # The driver is not called once Python is shutting down, since the driver may be shut down already.
    if python_runs():
        if needs_order(handover) and not order_producer(handover):
            kept = keep_until_done(handover)
            if not kept:
                count_unordered()
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
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef PyThreadState* gil
    if handover.driver == NULL or own.number == STREAM_UNORDERED or not (
            is_sound(handover, own) and is_sound(handover, used)):
        return False
    gil = give_up_gil()
    cuda.order_streams(handover.driver, handover.device_id, used.number, own.number, &failure)
    take_gil(gil)
    return is_well(&failure)


# ---- releases that wait --------------------------------------------------------------------------------------------

# A release that waits until the consumer's stream is done with the memory.
ctypedef struct WaitingRelease:
    WaitingRelease* next
    Handover* handover
    int64_t stream              # the consumer's
    void* event                 # … which happens when that is done


# Streams that were asked, and have not come far enough.
ctypedef struct Busy:
    int count
    int64_t[MOST_BUSY] streams
    int32_t[MOST_BUSY] devices

cdef void* waiting = NULL               # the WaitingRelease that was added last
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
    cdef WaitingRelease* entry
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef PyThreadState* gil
    if handover.driver == NULL or not used.lasts:
        return False
    entry = <WaitingRelease*> calloc(1, sizeof(WaitingRelease))
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


cdef void put_back(WaitingRelease* entry) noexcept nogil:
    """Add a release to those that wait."""
    while True:
        entry.next = <WaitingRelease*> load_pointer(&waiting)
        if replace_pointer(&waiting, entry.next, entry):
            return


cdef bint too_much_waits() noexcept nogil:
    """Whether the oldest release is to be waited for. A single one may be of any size."""
    return load_size(&waiting_count) > MOST_WAITING or (
        load_size(&waiting_bytes) > MOST_BYTES_WAITING and load_size(&waiting_count) > 1)


cdef void release_what_is_done() noexcept nogil:
    if load_pointer(&waiting) != NULL:
        release_waiting(False)


cdef void release_waiting(bint all_of_it) noexcept nogil:
    """Release the memory that its consumer's stream is done with, or wait for all of it.

    The whole list is taken at once, so no release is seen twice: not by two threads, and not by an owner whose release
    calls this function again.
    """
    cdef WaitingRelease* entry
    cdef WaitingRelease* following
    cdef WaitingRelease* done = NULL
    cdef Busy busy
    cdef PyThreadState* gil
    busy.count = 0
    entry = reversed_list(<WaitingRelease*> exchange_pointer(&waiting, NULL))      # the oldest first
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


cdef bint is_done(WaitingRelease* entry, bint wait, Busy* busy) noexcept nogil:
    """Whether the event of a release has happened, which is waited for if ``wait`` is set.

    A stream on which the event of an older release has not happened is busy, and is not asked again.
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


cdef WaitingRelease* reversed_list(WaitingRelease* entry) noexcept nogil:
    cdef WaitingRelease* made = NULL
    cdef WaitingRelease* following
    while entry != NULL:
        following = entry.next
        entry.next, made = made, entry
        entry = following
    return made


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


cdef void count_unordered() noexcept nogil:
    count_one(&unordered)


cdef void count_without_order() noexcept nogil:
    count_one(&without_order)


cdef int64_t unordered_so_far() noexcept nogil:
    return unordered + without_order


cdef bint release_all() noexcept nogil:
    if load_pointer(&waiting) == NULL:
        return False
    release_waiting(True)
    return True
