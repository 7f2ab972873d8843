"""What the keywords of convert() may be; nothing here exists at run time."""

from typing import Any, Literal, Protocol, TypeAlias

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

class _CudaStream(Protocol):
    """A stream by the protocol that cuda-python defined."""

    def __cuda_stream__(self) -> tuple[int, int]: ...

class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

class _CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...

class _NumbaStream(Protocol):
    # An int, or a ctypes object with a value.
    @property
    def handle(self) -> Any: ...

class _TorchDevice(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...

class _JaxDevice(Protocol):
    @property
    def platform(self) -> str: ...
    @property
    def id(self) -> int: ...

# The literals serve completion; str also takes an index ("cuda:1").
_DeviceName: TypeAlias = Literal[
    "cpu",
    "cuda",
    "cuda_host",
    "opencl",
    "vulkan",
    "metal",
    "vpi",
    "rocm",
    "rocm_host",
    "ext_dev",
    "cuda_managed",
    "oneapi",
    "webgpu",
    "hexagon",
    "maia",
    "trn",
    "gpu",
    "mps",
    "hip",
    "xpu",
    "sycl",
]
_Device: TypeAlias = _DeviceName | str | tuple[int, int | None] | _TorchDevice | _JaxDevice
_Stream: TypeAlias = int | _CudaStream | _TorchStream | _CupyStream | _NumbaStream
_Readonly: TypeAlias = Literal["copy", "share", "error"]
_MaxVersion: TypeAlias = tuple[int, int]
