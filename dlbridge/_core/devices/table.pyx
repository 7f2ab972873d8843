"""The device table: a row for each DLPack device type, with its names and the kind of its memory."""

from enum import Enum

from cpython.long cimport PyLong_Check

from dlbridge._core cimport abi
from dlbridge._core.late cimport load_module
from dlbridge.errors import DeviceError, refusal, shown


# The name of each device type, as in device="cuda:1".
TABLE = {
    abi.kDLCPU: "cpu",
    abi.kDLCUDA: "cuda",
    abi.kDLCUDAHost: "cuda_host",
    abi.kDLOpenCL: "opencl",
    abi.kDLVulkan: "vulkan",
    abi.kDLMetal: "metal",
    abi.kDLVPI: "vpi",
    abi.kDLROCM: "rocm",
    abi.kDLROCMHost: "rocm_host",
    abi.kDLExtDev: "ext_dev",
    abi.kDLCUDAManaged: "cuda_managed",
    abi.kDLOneAPI: "oneapi",
    abi.kDLWebGPU: "webgpu",
    abi.kDLHexagon: "hexagon",
    abi.kDLMAIA: "maia",
    abi.kDLTrn: "trn",
}
# Libraries' names for the same devices: JAX's platforms, torch's types, and tinygrad's host without a compiler.
ALIASES = {
    "gpu": abi.kDLCUDA, "mps": abi.kDLMetal, "hip": abi.kDLROCM, "xpu": abi.kDLOneAPI, "sycl": abi.kDLOneAPI,
    "python": abi.kDLCPU,
}

cdef enum:
    LARGEST_ID = 0x7FFFFFFF
    MAX_DIGITS = 10             # the digits of LARGEST_ID; Python raises ValueError for some thousands of digits

cdef unsigned int STREAMING = (
    1 << abi.kDLCUDA | 1 << abi.kDLCUDAHost | 1 << abi.kDLCUDAManaged | 1 << abi.kDLROCM | 1 << abi.kDLROCMHost)
# The types whose memory the CPU may always read. Managed memory is not among them: its driver has to be asked.
cdef unsigned int HOST_TYPES = 1 << abi.kDLCPU | 1 << abi.kDLCUDAHost | 1 << abi.kDLROCMHost
cdef dict types_by_name = {name: device_type for device_type, name in TABLE.items()} | ALIASES


cdef bint is_host(int32_t device_type) noexcept nogil:
    return 0 <= device_type < 32 and HOST_TYPES >> device_type & 1


cdef bint has_streams(int32_t device_type) noexcept nogil:
    """Whether memory of this type comes from the driver of CUDA or ROCm. Pinned and managed memory does too."""
    return 0 <= device_type < 32 and STREAMING >> device_type & 1


cdef str device_name(DLDevice device):
    name = TABLE[device.device_type]
    numbered = device.device_type != abi.kDLCPU and device.device_id != ANY_DEVICE_ID
    return f"{name}:{device.device_id}" if numbered else name


cdef bint same_device(const DLDevice* wanted, const DLDevice* actual) noexcept nogil:
    return wanted.device_type == actual.device_type and (
        wanted.device_id == ANY_DEVICE_ID or wanted.device_id == actual.device_id)


cdef int parse_device(object device, DLDevice* out) except -1:
    """Read ``"cuda:1"``, a ``(type, id)`` pair, or a library's own device object."""
    if type(device) is str and device in types_by_name:     # what most people write, without taking it apart
        out.device_type, out.device_id = types_by_name[device], ANY_DEVICE_ID
        return 0
    if isinstance(device, str):
        return _parse_name(str.__str__(device), device, out)
    if isinstance(device, tuple) and len(device) == 2 and PyLong_Check(kind := type_number(device[0])):
        # Only the numbers are read, since a subclass of int may define its own comparisons.
        kind, index = int.__int__(kind), device[1]
        if kind not in TABLE or not (index is None or PyLong_Check(index)):
            raise _unknown(device)
        out.device_type = kind
        out.device_id = ANY_DEVICE_ID if index is None else _checked_id(int.__int__(index), device)
        return 0
    text = load_module("dlbridge.libraries.library").device_text(device)
    if text is not None:
        return _parse_name(text, device, out)
    # The devices of torch, TVM FFI and others have type and index.
    name, index = getattr(device, "type", None), getattr(device, "index", None)
    if isinstance(name, str):
        return _parse_name(f"{name}" if index is None else f"{name}:{shown(index, str)}", device, out)
    raise _unknown(device)


cdef object type_number(object device_type):
    """A device type as a number. The array API standard writes it as an enum.Enum, which need be no integer."""
    return device_type if PyLong_Check(device_type) or not isinstance(device_type, Enum) else device_type.value


cdef int _parse_name(str name, object device, DLDevice* out) except -1:
    # TensorFlow writes "/job:localhost/replica:0/task:0/device:CPU:0", and tinygrad "CPU".
    text = name.rpartition("/")[2].removeprefix("device:") if name.startswith("/") else name
    kind, colon, index = text.lower().partition(":")
    if kind not in types_by_name or bool(colon) != index.isdecimal() or len(index) > MAX_DIGITS:
        raise _unknown(device)
    out.device_type = types_by_name[kind]
    out.device_id = _checked_id(int(index), device) if index else ANY_DEVICE_ID


cdef int32_t _checked_id(object index, object device) except -2:
    if not 0 <= index <= LARGEST_ID:
        raise _unknown(device)
    return index


def _unknown(device):
    return refusal(DeviceError, "convert", "device", shown(device), "is no device that dlbridge knows",
                   'pass "cpu", "cuda:0", a (type, id) pair or the library\'s own device object')
