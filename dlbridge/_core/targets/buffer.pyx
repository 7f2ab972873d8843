"""A memoryview, over a Tensor."""

from cpython.memoryview cimport PyMemoryView_FromObject

from dlbridge._core.dtypes cimport get_row, rows_named
from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport READONLY_COPY
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport new_tensor

from dlbridge._core.dtypes import NAMES


cdef Target new_target():
    cdef Target target = Target.__new__(Target)
    target.name = "memoryview"
    target.deliver = deliver
    target._load = _load
    return target


def _load(Target target):
    target.rows = rows_named(name for row, name in enumerate(NAMES) if get_row(row).format != NULL)
    target.array_types = (memoryview,)


cdef object deliver(Managed* managed, Target target):
    return PyMemoryView_FromObject(new_tensor(managed, READONLY_COPY))
