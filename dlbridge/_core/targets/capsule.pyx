"""A DLPack capsule."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.capsule cimport new_legacy_capsule, new_versioned_capsule
from dlbridge._core.targets.target cimport Target


cdef int prepare_legacy(Target target) except -1:
    target.deliver = deliver_legacy
    target.current_stream = default_stream
    return 0


cdef int prepare_versioned(Target target) except -1:
    target.deliver = deliver_versioned
    target.current_stream = default_stream
    return 0


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
