"""CPython's test_buffer, where dlbridge is given every buffer that is verified."""

import numpy as np
from client import converted
from test import test_buffer

import dlbridge

own_verify = test_buffer.TestBufferProtocol.verify


def verify(self, result, **expected):
    own_verify(self, result, **expected)
    array = converted("test_buffer", lambda: dlbridge.convert(result, "numpy"), lambda: None, result)
    if array is not None:
        assert array.tobytes() == result.tobytes()
        assert array.flags.writeable != expected["readonly"]
        for each in array, np.asarray(dlbridge.asdlpack(result)):       # a Tensor is in native byte order
            agrees(each, **expected)


def agrees(array, *, itemsize, fmt, ndim, shape, lst, **expected):
    assert array.ndim == ndim
    assert array.itemsize == itemsize
    assert array.shape == tuple(shape)
    if fmt and not fmt.endswith("c"):       # else the items are bytes there, and numbers here
        assert array.tolist() == lst


test_buffer.TestBufferProtocol.verify = verify
