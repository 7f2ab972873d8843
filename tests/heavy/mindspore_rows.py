"""MindSpore's row for tests/libraries, whose environment has nothing else."""

import mindspore
import numpy as np
from libraries.row import FLOATS, INTEGERS, SHARED, Row

import dlbridge


def values(tensor):
    return tensor.asnumpy().tolist()


def address(tensor):
    return dlbridge.asdlpack(mindspore.utils.to_dlpack(tensor)).data_ptr


ROWS = (
    Row("mindspore", mindspore.Tensor, lambda x: mindspore.Tensor(np.ascontiguousarray(x)), values, address,
        (*INTEGERS, *FLOATS), SHARED | {"backwards"}, ml_dtypes=("bfloat16",)),
)
