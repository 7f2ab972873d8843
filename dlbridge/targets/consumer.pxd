"""Calling a target library, and putting its errors into dlbridge's words."""

from dlbridge.targets.target cimport Target


cdef object call_consumer(object importer, Target target, object producer)
cdef object consumer_error(Target target)
