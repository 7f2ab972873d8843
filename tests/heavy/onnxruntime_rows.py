"""ONNX Runtime's row before 1.32, whose importer took bools as bytes and fewer types."""

import onnxruntime
from libraries.row import FLOATS, INTEGERS, Row

ROWS = (
    Row("onnxruntime", onnxruntime.OrtValue, lambda x: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()),
        lambda x: x.numpy().tolist(), lambda x: x.data_ptr(), ("bool", *INTEGERS, *FLOATS), frozenset(),
        ml_dtypes=("bfloat16",)),
)
