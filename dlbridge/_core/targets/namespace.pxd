"""Any namespace with ``from_dlpack``, and targets that users register."""

from dlbridge._core.managed cimport Managed
from dlbridge._core.targets.target cimport Target


cdef object deliver(Managed* managed, Target target)
cdef Target new_target(object namespace)
cdef Target new_registered(str name, object function, object holds)
