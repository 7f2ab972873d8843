"""ONNX Runtime's OrtValue, whose importer takes a legacy capsule.

Older versions take bools as bytes, and are told that they are bools.
"""

from dlbridge._core.abi cimport kDLBool, kDLUInt
from dlbridge._core.block cimport Managed
from dlbridge._core.target cimport BOOLS, Target
from dlbridge._core.targets.importer cimport call_consumer, waited_capsule


def prepare(Target target):
    target.deliver = deliver
    target.adjust = adjust


def adjust(Target target):
    value_type, = target.array_types
    bare = target.namespace.capi._pybind_state.OrtValue.from_dlpack
    if target.supports & BOOLS:
        target.function = lambda capsule, is_bool: value_type(bare(capsule))
    else:
        target.function = lambda capsule, is_bool: value_type(bare(capsule, is_bool))


cdef object deliver(Managed* managed, Target target):
    cdef bint is_bool = managed.abi.dl_tensor.dtype.code == kDLBool
    if is_bool and not target.supports & BOOLS:
        managed.abi.dl_tensor.dtype.code = kDLUInt      # no other code has this block
    capsule = waited_capsule(managed)
    return call_consumer(lambda given: target.function(given, is_bool), target, capsule)
