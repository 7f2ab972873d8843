"""pyarrow's arrays and tensors: an Array if there is one axis, otherwise a Tensor."""

import numpy as np

from dlbridge._core.targets cimport importer
from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1:
    target.deliver = importer.deliver
    target.adjust = adjust
    return 0


cdef int adjust(Target target) except -1:
    pyarrow = target.namespace

    def make(tensor):
        if tensor.ndim > 1:
            return pyarrow.Tensor.from_numpy(np.asarray(tensor))
        kind = pyarrow.from_numpy_dtype(np.dtype(tensor.dtype))
        return pyarrow.Array.from_buffers(kind, tensor.size, [None, pyarrow.py_buffer(tensor)])

    target.function = make
    return 0
