"""What libraries cannot do, as data: one row per quirk, with the thread that says so.

A target starts with everything and loses what a row takes from it. When an issue is fixed, the row gets the first good
version as ``below``, and goes when nobody uses older ones.
"""

from typing import NamedTuple

from dlbridge._core.dtypes import NAMES


class Quirk(NamedTuple):
    library: str
    lacks: str          # a name of Holds, or one of LIMITS
    issue: str          # or the standard, or, where nobody has reported it, the version it was seen in
    words: str          # what happens without the row
    below: str = ""     # the first version without the quirk; "" while there is none
    value: int = 0      # of a limit


# What a row may set, beside taking something away: bytes that the first element is aligned to, and numbers of axes.
LIMITS = {"alignment": 1, "fewest_axes": 0, "most_axes": 64}


QUIRKS = (
    Quirk("numpy", "PACKED", "dlpack#158", "has sub-byte types from ml_dtypes, which keeps one element in a byte"),
    Quirk("numpy", "OTHER_DEVICES", "seen in 2.4.6", "has no other memory than the host's"),
    Quirk("torch", "NEGATIVE_STRIDES", "pytorch#188023", "aborts the process in 2.13, and has no such tensors later"),
    Quirk("torch", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("torch", "SWAPPED_BYTES", "pytorch#9508", "has native byte order only"),
    Quirk("torch", "PINNED", "pytorch#96318", "knows pinned memory as the CPU's, and refuses the device type"),
    Quirk("torch", "UNIFIED", "pytorch#96318", "refuses the device type"),
    Quirk("torch", "READ_ONLY", "seen in 2.13.0", "ignores the read-only flag, and writes"),
    Quirk("torch", "PACKED", "pytorch#146414", "packs float4 as a type of two lanes, and has no other packed type"),
    Quirk("torch", "PADDED", "pytorch#146414", "has no type of one sub-byte element in a byte"),
    Quirk("paddle", "NEGATIVE_STRIDES", "seen in 3.3.1", "takes them, and then asks for 2^64 bytes"),
    Quirk("paddle", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("paddle", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("paddle", "most_axes", "seen in 3.3.1", "refuses more", value=9),
    Quirk("paddle", "READ_ONLY", "seen in 3.3.1", "ignores the read-only flag"),
    Quirk("paddle", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("paddle", "PACKED", "dlpack 1.3", "few libraries have such types"),
    Quirk("paddle", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("jax", "NEGATIVE_STRIDES", "jax#8082", "refuses them, even with copy=True"),
    Quirk("jax", "ZERO_STRIDES", "jax#8082", "refuses them, even with copy=True"),
    Quirk("jax", "ANY_STRIDES", "jax#8082", "takes only arrays without holes, in any order of the axes"),
    Quirk("jax", "ANY_ORDER", "jax#17784", "takes the elements in another order", below="0.8.0"),
    Quirk("jax", "ODD_STRIDES", "jax#8082", "refuses them, even with copy=True"),
    Quirk("jax", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("jax", "PINNED", "seen in 0.10.2", "refuses the device type"),
    Quirk("jax", "UNIFIED", "jax#22346", "refused the device type for long"),
    Quirk("jax", "PACKED", "seen in 0.10.2", "exports packed float4, and refuses its own export"),
    Quirk("jax", "alignment", "seen in 0.10.2", "copies what is not aligned to 64 bytes, silently", value=64),
    Quirk("cupy", "HOST", "seen in 14.2", "has the memory of GPUs only"),
    Quirk("cupy", "PINNED", "seen in 14.2", "refuses the device type"),
    Quirk("cupy", "ODD_STRIDES", "dlpack 1.3", "is given a Tensor, which counts strides in elements"),
    Quirk("cupy", "SWAPPED_BYTES", "seen in 14.2", "has native byte order only"),
    Quirk("cupy", "READ_ONLY", "seen in 14.2", "ignores the read-only flag"),
    Quirk("cupy", "PACKED", "seen in 14.2", "has no elements below a byte"),
    Quirk("cupy", "PADDED", "seen in 14.2", "has no elements below a byte"),
    Quirk("numba", "HOST", "seen in 0.30.4", "has the memory of GPUs only"),
    Quirk("numba", "ZERO_STRIDES", "seen in 0.30.4", "takes them, and says of the array that it is compact"),
    Quirk("numba", "SWAPPED_BYTES", "seen in 0.30.4", "has native byte order only"),
    Quirk("numba", "READ_ONLY", "seen in 0.30.4", "has no read-only arrays on the device"),
    Quirk("numba", "PINNED", "seen in 0.30.4", "has no device types"),
    Quirk("numba", "UNIFIED", "seen in 0.30.4", "has no device types"),
    Quirk("memoryview", "ODD_STRIDES", "dlpack 1.3", "is made over a Tensor, which counts strides in elements"),
    Quirk("memoryview", "SWAPPED_BYTES", "dlpack 1.3", "is made over a Tensor, which has native byte order only"),
    Quirk("memoryview", "PACKED", "PEP 3118", "has no format for elements below a byte"),
    Quirk("memoryview", "PADDED", "PEP 3118", "has no format for elements below a byte"),
    Quirk("memoryview", "OTHER_DEVICES", "PEP 3118", "is host memory only"),
    Quirk("dlpack_versioned", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("dlpack_versioned", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("dlpack", "READ_ONLY", "dlpack 1.3", "has no flags"),
    Quirk("dlpack", "PADDED", "dlpack 1.3", "has no flags"),
    Quirk("dlpack", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("dlpack", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("dlbridge", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("dlbridge", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("array_api_strict", "OTHER_DEVICES", "seen in 2.6.1", "wraps NumPy arrays"),
    Quirk("array_api_strict", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("array_api_strict", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("tensorflow", "NEGATIVE_STRIDES", "seen in 2.21", "refuses them"),
    Quirk("tensorflow", "ZERO_STRIDES", "seen in 2.21", "refuses them"),
    Quirk("tensorflow", "ANY_STRIDES", "seen in 2.21", "takes compact arrays only"),
    Quirk("tensorflow", "ANY_ORDER", "seen in 2.21", "takes compact arrays only"),
    Quirk("tensorflow", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("tensorflow", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("tensorflow", "PINNED", "pytorch#96318", "few libraries know the device type"),
    Quirk("tensorflow", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("tensorflow", "PACKED", "dlpack 1.3", "few libraries have such types"),
    Quirk("tensorflow", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("tensorflow", "alignment", "seen in 2.21", "takes what is not aligned, and ends the process later", value=64),
    Quirk("dpnp", "HOST", "seen in 0.20", "copies it to a device unasked"),
    Quirk("dpnp", "NEGATIVE_STRIDES", "seen in 0.20", "refuses them"),
    Quirk("dpnp", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("dpnp", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("dpnp", "READ_ONLY", "seen in 0.20", "has no read-only arrays"),
    Quirk("dpnp", "PINNED", "pytorch#96318", "few libraries know the device type"),
    Quirk("dpnp", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("dpnp", "PACKED", "dlpack 1.3", "few libraries have such types"),
    Quirk("dpnp", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("mindspore", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("mindspore", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("mindspore", "READ_ONLY", "seen in 2.10", "takes capsules without flags, and writes"),
    Quirk("mindspore", "PINNED", "pytorch#96318", "few libraries know the device type"),
    Quirk("mindspore", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("mindspore", "PACKED", "dlpack 1.3", "few libraries have such types"),
    Quirk("mindspore", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("mlx", "NEGATIVE_STRIDES", "seen in 0.32.4", "refuses them"),
    Quirk("mlx", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("mlx", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("mlx", "PACKED", "dlpack 1.3", "few libraries have such types"),
    Quirk("mlx", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("mlx", "PINNED", "pytorch#96318", "few libraries know the device type"),
    Quirk("mlx", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("mlx", "SHARING", "seen in 0.32.4", "copies on the CPU, whatever it is given"),
    Quirk("warp", "fewest_axes", "seen in 1.19", "fails over a shape of ()", value=1),
    Quirk("warp", "most_axes", "seen in 1.19", "refuses more", value=4),
    Quirk("warp", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("warp", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("warp", "READ_ONLY", "seen in 1.19", "asks for a capsule without flags, and writes"),
    Quirk("warp", "PACKED", "dlpack 1.3", "few libraries have such types"),
    Quirk("warp", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("warp", "PINNED", "seen in 1.19", "asks for a GPU's stream, which a build for the CPU has not"),
    Quirk("warp", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("tvm_ffi", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("tvm_ffi", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("tvm_ffi", "READ_ONLY", "seen in 0.1.15", "ignores the flag"),
    Quirk("tvm_ffi", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("onnxruntime", "NEGATIVE_STRIDES", "seen in 1.32", "takes compact arrays only"),
    Quirk("onnxruntime", "ZERO_STRIDES", "seen in 1.32", "takes compact arrays only"),
    Quirk("onnxruntime", "ANY_STRIDES", "seen in 1.32", "takes compact arrays only"),
    Quirk("onnxruntime", "ANY_ORDER", "seen in 1.32", "takes compact arrays only"),
    Quirk("onnxruntime", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("onnxruntime", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("onnxruntime", "READ_ONLY", "seen in 1.32", "has no read-only values"),
    Quirk("onnxruntime", "BOOLS", "seen in 1.31", "takes bytes, and is told that they are bools", below="1.32.0"),
    Quirk("onnxruntime", "PINNED", "pytorch#96318", "few libraries know the device type"),
    Quirk("onnxruntime", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("onnxruntime", "PACKED", "seen in 1.31", "has no elements below a byte", below="1.32.0"),
    Quirk("onnxruntime", "PADDED", "dlpack 1.3", "few libraries have such types"),
    Quirk("pyarrow", "fewest_axes", "seen in 26.0.1", "has neither an array nor a tensor without axes", value=1),
    Quirk("pyarrow", "NEGATIVE_STRIDES", "seen in 26.0.1", "refuses them"),
    Quirk("pyarrow", "ZERO_STRIDES", "seen in 26.0.1", "has compact arrays; of tensors alone it takes others"),
    Quirk("pyarrow", "ANY_STRIDES", "seen in 26.0.1", "has compact arrays; of tensors alone it takes others"),
    Quirk("pyarrow", "ODD_STRIDES", "seen in 26.0.1", "has compact arrays; of tensors alone it takes others"),
    Quirk("pyarrow", "SWAPPED_BYTES", "seen in 26.0.1", "has native byte order only"),
    Quirk("pyarrow", "OTHER_DEVICES", "seen in 26.0.1", "has buffers of the host's memory, unless built for CUDA"),
    Quirk("pyarrow", "PACKED", "seen in 26.0.1", "has no such types"),
    Quirk("pyarrow", "PADDED", "seen in 26.0.1", "has no such types"),
    # A namespace that nobody has looked at is given only what every library can hold.
    Quirk("*", "NEGATIVE_STRIDES", "pytorch#188023", "aborted the process in one library"),
    Quirk("*", "ODD_STRIDES", "dlpack 1.3", "counts strides in elements"),
    Quirk("*", "SWAPPED_BYTES", "dlpack 1.3", "has native byte order only"),
    Quirk("*", "PINNED", "pytorch#96318", "few libraries know the device type"),
    Quirk("*", "UNIFIED", "pytorch#96318", "few libraries know the device type"),
    Quirk("*", "READ_ONLY", "seen in 2.13.0", "may ignore the flag, as torch does"),
    Quirk("*", "PACKED", "dlpack 1.3", "few libraries have such types"),
    Quirk("*", "PADDED", "dlpack 1.3", "few libraries have such types"),
)

# The types that a library's importer takes; one that is not named takes all that dlbridge knows, or says why not.
DTYPES = {
    "torch": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex32", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
    ),
    "paddle": (     # not uint16, which it takes for bfloat16 (seen in 3.3.1)
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float16", "float32", "float64",
        "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    ),
    "jax": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex64", "complex128", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
        "int4", "uint4",
    ),
    "tensorflow": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex64", "complex128", "bfloat16",
    ),
    "mlx": (        # not float64 and complex128, which it narrows silently (seen in 0.32.4)
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "complex64", "bfloat16",
    ),
    "warp": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "bfloat16",
    ),
    "tvm_ffi": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
        "float8_e8m0fnu", "float4_e2m1fn_x2",
    ),
    "onnxruntime": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "bfloat16",
    ),
    "dpnp": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex64", "complex128",
    ),
    "mindspore": (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
        "bfloat16",
    ),
    "pyarrow": (    # not bool, of which it has eight in a byte
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    ),
    "cupy": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex64", "complex128", "bfloat16",
    ),
    "numba": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex64", "complex128",
    ),
    "array_api_strict": (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
        "complex64", "complex128",
    ),
}
# Of those, what it takes only by a copy of its own: JAX packs these and imports none of them (seen in 0.10.2).
COPIED_DTYPES = {"jax": ("float4_e2m1fn", "int4", "uint4")}


class LaterDtypes(NamedTuple):
    """Types that a library takes besides, from a version on."""

    library: str
    dtypes: tuple[str, ...]
    issue: str
    since: str


LATER_DTYPES = (
    LaterDtypes("onnxruntime", (
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
        "int4", "uint4", "int2", "uint2",
    ), "seen in 1.31", since="1.32.0"),
)


class ImportOrder(NamedTuple):
    """A library that must not be imported while another one is."""

    library: str
    after: str
    issue: str
    words: str


IMPORT_ORDER = (
    ImportOrder("paddle", "tensorflow", "seen in 3.3.1 with TensorFlow 2.21", "ends the process"),
)


def quirks_of(library: str, version: str) -> list[Quirk]:
    """The rows that hold for a library at a version; those of ``*`` where the table does not know it."""
    rows = [quirk for quirk in QUIRKS if quirk.library == library] or quirks_of("*", "")
    return [quirk for quirk in rows if not quirk.below or _release(version) < _release(quirk.below)]


def dtypes_of(library: str, version: str) -> tuple[str, ...]:
    """The names of the types that a library takes at a version."""
    names = DTYPES.get(library, NAMES)
    for later in LATER_DTYPES:
        if later.library == library and _release(version) >= _release(later.since):
            names += later.dtypes
    return names


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.13.0+cpu`` is (2, 13, 0)."""
    numbers = []
    for part in version.split("+")[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
