"""What most libraries have in common. A library's own file says what differs."""

from dlbridge.libraries.library import Fact

# ---- hints -----------------------------------------------------------------------------------------------------------

IN_TREE = "call dlbridge.convert_tree(x, to)"
OF_POINTER = "call dlbridge.from_pointer({}, shape, dtype, owner=x)"

# ---- layouts ---------------------------------------------------------------------------------------------------------

ELEMENT_STRIDES = Fact("ODD_STRIDES", "dlpack 1.3", "counts strides in elements")
NATIVE_BYTES = Fact("SWAPPED_BYTES", "dlpack 1.3", "has native byte order only")
# Whatever takes DLPack has these limits, since the standard has no word for more.
DLPACK = (ELEMENT_STRIDES, NATIVE_BYTES)
LENGTH_1_STRIDES = Fact("LENGTH_1_STRIDES", "jax#25066",
                    "may refuse them, or read them wrongly, if they are not those of a compact array; dlbridge gives "
                    "it those, without a copy")
PLAIN = (*DLPACK, LENGTH_1_STRIDES)


def compact(evidence: str, text: str = "takes compact arrays only") -> tuple[Fact, ...]:
    """Of a library whose arrays are compact in C order."""
    return tuple(
        Fact(lacks, evidence, text) for lacks in ("NEGATIVE_STRIDES", "ZERO_STRIDES", "ANY_STRIDES", "ANY_ORDER"))


# ---- memory ----------------------------------------------------------------------------------------------------------

NO_PINNED = Fact("PINNED", "pytorch#96318", "few libraries know the device type")
NO_UNIFIED = Fact("UNIFIED", "pytorch#96318", "few libraries know the device type")
# Pinned and managed memory under its own device type.
NO_LABELS = (NO_PINNED, NO_UNIFIED)

# ---- types -----------------------------------------------------------------------------------------------------------

NO_PACKED = Fact("PACKED", "dlpack 1.3", "few libraries have such types")
NO_PADDED = Fact("PADDED", "dlpack 1.3", "few libraries have such types")
NO_SUBBYTE = (NO_PACKED, NO_PADDED)

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
# Types of one byte that most libraries of machine learning have, by their names in ml_dtypes.
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")

# ---- a library that dlbridge was not taught --------------------------------------------------------------------------

# It is given only what every library supports.
UNKNOWN = (
    Fact("NEGATIVE_STRIDES", "pytorch#188023", "aborted the process in one library"),
    *PLAIN,
    *NO_LABELS,
    Fact("READ_ONLY", "seen in 2.13.0", "may ignore the flag, as torch does"),
    *NO_SUBBYTE,
)
