"""A DLPack capsule."""

from dlbridge.capsule cimport new_legacy_capsule, new_versioned_capsule
from dlbridge.managed cimport Managed
from dlbridge.targets.target cimport Target


cdef Target new_legacy():
    cdef Target target = Target.__new__(Target)
    target.name = "dlpack"
    target.deliver = deliver_legacy
    target.array_types = ()
    return target


cdef Target new_versioned():
    cdef Target target = Target.__new__(Target)
    target.name = "dlpack_versioned"
    target.deliver = deliver_versioned
    target.array_types = ()
    return target


cdef object deliver_legacy(Managed* managed, Target target):
    return new_legacy_capsule(managed)


cdef object deliver_versioned(Managed* managed, Target target):
    return new_versioned_capsule(managed)
