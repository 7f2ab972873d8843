"""ONNX Runtime's OrtValue, whose importer takes a legacy capsule of bytes for bools, and is told so."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
