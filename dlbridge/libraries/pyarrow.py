"""pyarrow: immutable arrays of one axis, and tensors."""

from dlbridge.libraries.library import Arrays, Fact, Library, Sample
from dlbridge.libraries.profiles import FLOATS, IDLE_STRIDES, INTEGERS

SEEN = "seen in 26.0.1"
COMPACT = "has compact arrays; of tensors alone it takes others"

LIBRARY = Library(
    name="pyarrow",
    arrays=(
        Arrays("*", preferred=Fact("arrow", SEEN, "refuses nulls and bools in __dlpack__ too, but names no way out")),
    ),
    delivery="pyarrow",
    array_types=("Array", "Tensor"),
    lacks=(
        Fact("NEGATIVE_STRIDES", SEEN, "refuses them"),
        Fact("ZERO_STRIDES", SEEN, COMPACT),
        Fact("ANY_STRIDES", SEEN, COMPACT),
        Fact("ODD_STRIDES", SEEN, COMPACT),
        IDLE_STRIDES,
        Fact("SWAPPED_BYTES", SEEN, "has native byte order only"),
        Fact("OTHER_DEVICES", SEEN, "has buffers of the host's memory, unless built for CUDA"),
        Fact("PACKED", SEEN, "has no such types"),
        Fact("PADDED", SEEN, "has no such types"),
    ),
    fewest_axes=Fact(1, SEEN, "has neither an array nor a tensor without axes"),
    dtypes=(Fact((*INTEGERS, *FLOATS), SEEN, "has eight bools in a byte"),),
    sample=Sample(lambda pyarrow, array: pyarrow.array(array.ravel()), lambda pyarrow, array: array.to_numpy()),
)
