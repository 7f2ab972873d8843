"""ONNX Runtime's OrtValue."""

from dlbridge.targets.target cimport Target


cdef Target new_target()
