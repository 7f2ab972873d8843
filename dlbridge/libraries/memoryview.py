"""Python's memoryview, over a Tensor."""

from dlbridge.libraries.library import Fact, Library

LIBRARY = Library(
    name="memoryview",
    module="builtins",
    delivery="tensor:prepare_memoryview",
    array_types=("memoryview",),
    lacks=(
        Fact("ODD_STRIDES", "dlpack 1.3", "is made over a Tensor, which counts strides in elements"),
        Fact("SWAPPED_BYTES", "dlpack 1.3", "is made over a Tensor, which has native byte order only"),
        Fact("PACKED", "PEP 3118", "has no format for elements below a byte"),
        Fact("PADDED", "PEP 3118", "has no format for elements below a byte"),
        Fact("OTHER_DEVICES", "PEP 3118", "is host memory only"),
    ),
)
