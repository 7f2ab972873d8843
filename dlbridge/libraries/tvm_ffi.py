"""TVM FFI: tensors, through its own importer."""

import numpy as np

from dlbridge.libraries.library import Fact, Library, Sample
from dlbridge.libraries.profiles import FLOAT8, FLOATS, INTEGERS, NO_PADDED, PLAIN

LIBRARY = Library(
    name="tvm_ffi",
    install="apache-tvm-ffi",
    delivery="importer",
    importer="from_dlpack",
    array_types=("Tensor",),
    lacks=(
        *PLAIN,
        Fact("READ_ONLY", "seen in 0.1.15", "ignores the flag"),
        NO_PADDED,
    ),
    dtypes=(Fact(("bool", *INTEGERS, *FLOATS, "bfloat16", *FLOAT8, "float4_e2m1fn_x2"), "seen in 0.1.15"),),
    sample=Sample(
        lambda tvm_ffi, array: tvm_ffi.from_dlpack(array),
        lambda tvm_ffi, tensor: np.from_dlpack(tensor),
        distributions=("apache-tvm-ffi",),
    ),
)
