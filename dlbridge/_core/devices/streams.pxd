"""Who waits for whom when device memory is handed over, and when it is let go."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.devices.cuda cimport Driver
from dlbridge._core.devices.table cimport Tell
from dlbridge._core.ownership cimport Wrapped


# A stream as the array API standard numbers it; STREAM_UNORDERED where nobody need wait.
ctypedef struct Stream:
    int64_t number
    PyObject* keeper            # what keeps its handle alive, owned; or NULL
    bint lasts                  # alive at least as long as the memory: kept, immortal, or one of the two defaults


# Wrapped around what owns device memory, once a stream is known.
ctypedef struct Handover:
    Wrapped wrapped             # first: managed lets it go by this
    Driver* driver              # NULL until two streams must be ordered
    int32_t device_id           # … and only then the device's number among the driver's
    Stream producer             # on which the memory is ready
    Stream consumer             # to which it was given; UNORDERED before that, and where no order was asked for
    Tell tell                   # how the producer's allocator is told of consumers; or NULL
    PyObject* array             # … with the producer's array, owned
    unsigned char lock          # of driver and device_id
    unsigned long thread        # whose per-thread default stream is meant by STREAM_PER_THREAD_DEFAULT
