"""ONNX Runtime's OrtValue, whose importer takes a legacy capsule; once one of bytes for bools, and was told so."""

from dlbridge._core.abi cimport kDLBool, kDLUInt
from dlbridge._core.managed cimport Managed
from dlbridge._core.targets.consumer cimport call_consumer, waited_capsule
from dlbridge._core.targets.target cimport BOOLS, Target


cdef Target new_target():
    cdef Target target = Target.__new__(Target)
    target.name = target.library = target.install = "onnxruntime"
    target.deliver = deliver
    target._load = _load
    return target


def _load(Target target):
    value_type = target.namespace.OrtValue
    target.array_types = (value_type,)
    bare = target.namespace.capi._pybind_state.OrtValue.from_dlpack
    if target.holds & BOOLS:
        target.function = lambda capsule, is_bool: value_type(bare(capsule))
    else:
        target.function = lambda capsule, is_bool: value_type(bare(capsule, is_bool))


cdef object deliver(Managed* managed, Target target):
    cdef bint is_bool = managed.abi.dl_tensor.dtype.code == kDLBool
    if is_bool and not target.holds & BOOLS:
        managed.abi.dl_tensor.dtype.code = kDLUInt      # nobody else has seen this block
    capsule = waited_capsule(managed)
    return call_consumer(lambda given: target.function(given, is_bool), target, capsule)
