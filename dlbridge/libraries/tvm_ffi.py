"""TVM FFI: tensors, through its own importer."""

from dlbridge.libraries.library import Fact, Library
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
)
