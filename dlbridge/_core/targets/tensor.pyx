"""dlbridge's own: a Tensor, a memoryview over one, and DLPack capsules."""

from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, DLDevice
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.capsule cimport new_legacy_capsule, new_versioned_capsule
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.dtypes cimport get_row, rows_named
from dlbridge._core.request cimport READONLY_COPY, Request
from dlbridge._core.target cimport Target
from dlbridge._core.uploads cimport sent_to_pool
from dlbridge.tensor cimport Tensor, new_tensor

from dlbridge._core.dtypes import NAMES


def prepare(Target target):
    target.deliver = deliver
    target.upload = upload
    target.await_upload = await_upload


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Copy host memory to memory of a device's pool."""
    cdef Managed* block
    try:
        block = sent_to_pool(managed, device, request.queued == NULL)
    finally:
        managed_release(managed)
    return new_tensor(block, READONLY_COPY)


cdef int await_upload(object tensor) except -1:
    """Wait for dlbridge's own stream."""
    return device_operations().await_producer((<Tensor> tensor).managed)


cdef object deliver(Managed* managed, Target target):
    return new_tensor(managed, READONLY_COPY)


def prepare_memoryview(Target target):
    target.deliver = deliver_memoryview
    target.adjust = name_formats


def name_formats(Target target):
    """A buffer has only the types that PEP 3118 has a format for."""
    target.rows = rows_named([name for row, name in enumerate(NAMES) if get_row(row).format != NULL])


cdef object deliver_memoryview(Managed* managed, Target target):
    return PyMemoryView_FromObject(new_tensor(managed, READONLY_COPY))


# ---- capsules --------------------------------------------------------------------------------------------------------

def prepare_legacy(Target target):
    target.deliver = deliver_legacy
    target.current_stream = default_stream


def prepare_versioned(Target target):
    target.deliver = deliver_versioned
    target.current_stream = default_stream


cdef object default_stream(PyObject* target, const DLDevice* device, int64_t* out):
    """The stream on which a capsule's memory is ready.

    A consumer cannot ask a capsule to be ordered for another stream. The array API standard says that its memory is
    ready on the legacy default stream.
    """
    out[0] = STREAM_LEGACY_DEFAULT
    return None


cdef object deliver_legacy(Managed* managed, Target target):
    return new_legacy_capsule(managed)


cdef object deliver_versioned(Managed* managed, Target target):
    return new_versioned_capsule(managed)
