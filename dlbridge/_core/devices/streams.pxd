"""Which stream waits for which when device memory is handed over, and when it is released."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.block cimport Wrapped
from dlbridge._core.devices.cuda cimport Driver
from dlbridge._core.devices.table cimport Tell


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
    bint named                  # whether its consumer named that stream to DLPack, so that its own is another one
    Stream own                  # if named: the producer's own stream; UNORDERED if it is not known
    bint settled                # a consumer lets the producer's stream wait by itself, so releases need no order
    unsigned char used          # whether the memory was used on the stream on which it is ready
    Stream consumer             # the stream that it was handed to; UNORDERED before that, and if no order is wanted
    Tell tell                   # how the producer's allocator is told of consumers; or NULL
    PyObject* array             # the producer's array, which tell is called with, owned; or NULL
    int64_t own_stream          # the producer's own stream, which tell is called with
    int64_t nbytes              # of the memory
    unsigned char lock          # of driver and device_id
    unsigned long thread        # the thread whose default stream STREAM_PER_THREAD_DEFAULT means


# A release that waits until the consumer's stream is done with the memory.
ctypedef struct Waiting:
    Waiting* next
    Handover* handover
    int64_t stream              # the consumer's
    void* event                 # … which happens when that is done
