"""The C exchange API on the library's type."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.capsule cimport new_versioned_capsule
from dlbridge._core.sources.exchange cimport find_exchange_api
from dlbridge._core.target cimport Target
from dlbridge._core.targets.importer cimport call_consumer, consumer_error


def prepare(Target target):
    target.deliver = deliver
    target.adjust = adjust


def adjust(Target target):
    target.current_stream = table_stream
    target.api = find_exchange_api(target.array_types[0])
    if target.api == NULL:
        target.deliver = deliver_capsule
        target.gpus = 0             # without a table it is not known which stream has to wait


cdef object deliver(Managed* managed, Target target):
    return array_of_table(managed, target)


cdef object deliver_capsule(Managed* managed, Target target):
    """Deliver to a version of the library that has no exchange API yet."""
    return call_consumer(target.function, target, new_versioned_capsule(managed))


cdef object table_stream(PyObject* target, const DLDevice* device, int64_t* out):
    """The current stream that the library's own table gives. The table does not say what keeps its handle alive."""
    cdef Target library = <Target> target
    cdef void* stream = NULL
    if library.api.current_work_stream(device.device_type, device.device_id, &stream):
        raise consumer_error(library)
    out[0] = <int64_t> stream if stream != NULL else STREAM_LEGACY_DEFAULT
    return None
