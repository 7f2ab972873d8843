"""What is known of device memory that was handed over, and what happens when it is released."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.block cimport Managed, Wrapped
from dlbridge._core.devices.cuda cimport Driver
from dlbridge._core.devices.table cimport Tell

cdef extern from "Python.h":
    ctypedef struct PyThreadState


# A stream, with the number of the array API standard; STREAM_UNORDERED if no stream need wait.
ctypedef struct Stream:
    int64_t number
    PyObject* keeper            # the object that keeps its handle alive, owned; or NULL
    bint lasts                  # whether it lives at least as long as the memory: kept, immortal, or a default stream


# A Handover is wrapped around the owner of device memory once a stream is known.
ctypedef struct Handover:
    Wrapped wrapped             # first: release_wrapped() finds the struct by it
    Driver* driver              # NULL until it is needed
    int32_t device_id           # the driver's number of the device; valid once driver is set
    Stream producer             # the stream on which the memory is ready
    bint named                  # whether a consumer named it to DLPack: the producer's own is then another stream
    Stream own                  # if named: the producer's own stream; UNORDERED if it is not known
    bint settled                # whether the consumer itself lets the producer's stream wait: no release orders it
    unsigned char used          # whether the memory was used on the stream on which it is ready
    Stream consumer             # the stream that it was handed to; UNORDERED before that, and if no order is wanted
    Tell tell                   # how the producer's allocator is told of consumers; or NULL
    PyObject* array             # the producer's array, which tell is called with, owned; or NULL
    int64_t own_stream          # the producer's own stream, which tell is called with
    int64_t nbytes              # of the memory
    unsigned char lock          # of driver and device_id
    unsigned long thread        # the thread whose default stream STREAM_PER_THREAD_DEFAULT means


# The release of a Handover, by which a block's owner is known to be one.
cdef void release_handover(void* owner) noexcept nogil
# The Handover of memory whose stream is known, or NULL.
cdef Handover* handover_of(const Managed* managed) noexcept nogil
cdef Stream* ready_stream(Handover* handover) noexcept nogil
# The number of a stream in this thread.
cdef int64_t usable_number(const Handover* handover, const Stream* stream) noexcept nogil
cdef int64_t number_here(int64_t number, unsigned long thread) noexcept nogil

cdef void release_reference(PyObject* reference) noexcept nogil
# Releases the memory that its consumer's stream is done with.
cdef void release_what_is_done() noexcept nogil
# Waits for all releases that wait; False if there is none.
cdef bint release_all() noexcept nogil
cdef void count_unordered() noexcept nogil
cdef void count_without_order() noexcept nogil
# How much memory was handed over without an order, or went back without one.
cdef int64_t unordered_so_far() noexcept nogil
# A deleter may be called with the GIL or without it. A driver may wait for a thread that wants the GIL, such as one
# that runs a host callback, so the driver is called without the GIL.
cdef PyThreadState* give_up_gil() noexcept nogil
cdef void take_gil(PyThreadState* state) noexcept nogil
