"""pyarrow's: an Array where there is one axis, else a Tensor."""

import numpy as np

from dlbridge._core.targets cimport namespace
from dlbridge._core.targets.target cimport Target


cdef Target new_target():
    cdef Target target = Target.__new__(Target)
    target.name = target.library = target.install = "pyarrow"
    target.deliver = namespace.deliver
    target._load = _load
    return target


def _load(Target target):
    pyarrow = target.namespace
    target.array_types = (pyarrow.Array, pyarrow.Tensor)

    def make(tensor):
        if tensor.ndim > 1:
            return pyarrow.Tensor.from_numpy(np.asarray(tensor))
        kind = pyarrow.from_numpy_dtype(np.dtype(tensor.dtype))
        return pyarrow.Array.from_buffers(kind, tensor.size, [None, pyarrow.py_buffer(tensor)])

    target.function = make
