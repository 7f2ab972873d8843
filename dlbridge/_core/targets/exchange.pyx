"""The C exchange API on the library's type."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, DLDevice
from dlbridge._core.block cimport Managed, managed_drop_second, managed_release, managed_retain
from dlbridge._core.capsule cimport new_versioned_capsule
from dlbridge._core.sources.exchange cimport find_exchange_api
from dlbridge._core.targets.consumer cimport call_consumer, consumer_error
from dlbridge._core.targets.target cimport Target


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
    cdef void* made = NULL
    # The library steals the block. When it fails, it may have run the deleter (cuda.core) or not (torch). A second
    # reference keeps the block readable, and the block tells whether the owner is still to be released.
    managed_retain(managed)
    if target.api.managed_tensor_to_py_object_no_sync(&managed.abi, &made) or made == NULL:
        managed_release(managed)
        raise consumer_error(target)
    # The array owns the block now. No other code has the array yet, so its deleter cannot run before this returns.
    managed_drop_second(managed)
    array = <object> made
    Py_DECREF(array)            # the reference that the library gave
    return array


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
