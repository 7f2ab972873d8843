"""The C API; include/dlbridge.h has it for C and C++, __init__.pxd for Cython."""

from typing_extensions import CapsuleType

_C_API: CapsuleType
__test__: dict[str, str]
