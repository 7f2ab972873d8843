"""What is said of a library: how it makes an array, what it supports, and how it tells what an array has in it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
SUBBYTE = ("float4_e2m1fn", "int4", "uint4", "int2", "uint2")
ML_DTYPES = ("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", *FLOAT8, *SUBBYTE)
SHARED = frozenset(("transposed", "every second", "backwards", "broadcast"))


class Row(NamedTuple):
    """What is true of a library, as its documents or a look at it say."""

    name: str                                       # as in convert(x, name)
    array_type: type
    make: Callable[[np.ndarray], Any]               # by the library itself
    values: Callable[[Any], Any]                    # by the library itself, as Python's numbers
    address: Callable[[Any], int] | None            # of the first element, or None where nobody tells
    dtypes: tuple[str, ...]                         # of NumPy's own, those that it has
    layouts: frozenset[str] = SHARED                # of those that it holds as they are
    shares: bool = True                             # memory of others at all
    alignment: int = 1                              # below which it cannot
    told: bool = False                              # it heeds the read-only flag, or never writes
    immutable: bool = False                         # what comes out of it is read-only
    copies: bool = False                            # what comes out of it is a copy
    axes: range = range(0, 6)                       # how many it can have
    ml_dtypes: tuple[str, ...] = ()                 # of ML_DTYPES, those that it has
    unexported: tuple[str, ...] = ()                # of those, what it does not export
