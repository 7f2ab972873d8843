"""JAX: immutable arrays, read by the buffer protocol or DLPack, made by jaxlib's own importer."""

import numpy as np

from dlbridge.libraries.library import Arrays, Fact, Library, Sample
from dlbridge.libraries.profiles import COMPLEX, FLOATS, IDLE_STRIDES, INTEGERS, NATIVE_BYTES

LIBRARY = Library(
    name="jax",
    roots=("jax", "jaxlib"),
    walker="jax.tree_util",
    arrays=(
        Arrays(
            "ArrayImpl",
            preferred=Fact("buffer", "seen in 0.10.2", "takes a tenth of the time of __dlpack__ on the CPU, and flags "
                           "read-only memory; it declines elsewhere, and for bfloat16"),
            immutable=Fact(True, "jax#40789", "gives a legacy capsule, which has no flags"),
            none_is_unordered=Fact(True, "seen in jaxlib 0.10.2", "takes -1 for the handle of a stream"),
        ),
    ),
    delivery="jax",
    importer="dlpack.from_dlpack",
    array_types=("Array",),
    lacks=(
        Fact("NEGATIVE_STRIDES", "jax#8082", "refuses them, even with copy=True"),
        Fact("ZERO_STRIDES", "jax#8082", "refuses them, even with copy=True"),
        Fact("ANY_STRIDES", "jax#8082", "takes only arrays without holes, in any order of the axes"),
        Fact("ANY_ORDER", "jax#17784", "takes the elements in another order", below="0.8.0"),
        Fact("ODD_STRIDES", "jax#8082", "refuses them, even with copy=True"),
        IDLE_STRIDES,
        NATIVE_BYTES,
        Fact("PINNED", "seen in 0.10.2", "refuses the device type"),
        Fact("UNIFIED", "jax#22346", "refused the device type for long"),
        Fact("PACKED", "seen in 0.10.2", "exports packed float4, and refuses its own export"),
    ),
    alignment=Fact(64, "seen in 0.10.2", "copies what is not aligned to 64 bytes, silently"),
    dtypes=(
        Fact((
            "bool", *INTEGERS, *FLOATS, *COMPLEX, "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
            "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
            "int4", "uint4",
        ), "seen in 0.10.2"),
    ),
    copied_dtypes=Fact(("float4_e2m1fn", "int4", "uint4"), "seen in 0.10.2", "packs these, and imports none of them"),
    wide_dtypes=Fact(
        {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}, "jax#18385",
        "narrows them silently unless jax_enable_x64 is on"),
    dtype_namespace="numpy",
    upload="cuda",
    sample=Sample(lambda jax, array: jax.numpy.array(array), lambda jax, array: np.asarray(array)),
)
