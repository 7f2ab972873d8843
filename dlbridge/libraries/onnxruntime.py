"""ONNX Runtime: OrtValues, through legacy capsules."""

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import FLOAT8, FLOATS, INTEGERS, NO_LABELS, NO_PADDED, PLAIN, compact

LIBRARY = Library(
    name="onnxruntime",
    arrays=(
        Arrays(
            "OrtValue",
            forgets=Fact(True, "seen in 1.32", "lets the memory of a NumPy array go with the value"),
            element_type=Fact(lambda value: "bool" if value.data_type() == "tensor(bool)" else None, "seen in 1.31",
                              "exports bools as bytes", below="1.32.0"),
        ),
    ),
    delivery="onnxruntime",
    array_types=("OrtValue",),
    lacks=(
        *compact("seen in 1.32"),
        *PLAIN,
        Fact("READ_ONLY", "seen in 1.32", "has no read-only values"),
        Fact("BOOLS", "seen in 1.31", "takes bytes, and is told that they are bools", below="1.32.0"),
        *NO_LABELS,
        Fact("PACKED", "seen in 1.31", "has no elements below a byte", below="1.32.0"),
        NO_PADDED,
    ),
    dtypes=(
        Fact(("bool", *INTEGERS, *FLOATS, "bfloat16"), "seen in 1.31"),
        Fact((*FLOAT8, "float4_e2m1fn", "int4", "uint4", "int2", "uint2"), "seen in 1.32", since="1.32.0"),
    ),
)
