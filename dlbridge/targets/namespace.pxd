"""Any namespace with ``from_dlpack``, and targets that users register."""

from dlbridge.targets.target cimport Target


cdef Target new_target(object namespace)
cdef Target new_registered(str name, object function, object holds)
