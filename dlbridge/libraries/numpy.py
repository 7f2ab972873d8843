"""NumPy: ndarrays, through NumPy's C API on both sides."""

from typing import Any

import numpy as np

from dlbridge.libraries.library import Arrays, Fact, Form, Library, keep_as_dict
from dlbridge.libraries.profiles import COMPLEX, FLOATS, IN_TREE, INTEGERS


def find_getmask() -> Any:
    """The function that gives an array's mask. It is looked up late: NumPy imports numpy.ma where it is first named."""
    return np.ma.getmask


def parts_of_masked(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    return array.shape, [array.data, np.ma.getmask(array)]


def new_masked(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    values, mask = parts
    return kind(values, mask=np.ma.nomask if mask is None else mask, copy=False)


LIBRARY = Library(
    name="numpy",
    arrays=(
        Arrays("MaskedArray", {"mask": "pass x.filled(0), or x.data if the mask does not matter"},
               has_mask=Fact(lambda array: np.ma.getmask(array) is not np.ma.nomask, "numpy 2.0"),
               masked=Fact(find_getmask, "numpy 2.0", "keeps a mask beside the values that it exports")),
        Arrays("NpzFile", {"": IN_TREE},
               container=Fact((dict, keep_as_dict), "numpy 2.0", "reads an array when it is asked")),
    ),
    delivery="numpy",
    array_types=("ndarray",),
    forms={"masked": Form(("MaskedArray",), parts_of_masked, new_masked, dense="x.filled(0)",
                          duplicate=lambda array, detach: array.copy())},
    clone=Fact(lambda array, detach: np.array(array), "numpy 2.0", "has dates, words and objects, and any byte order"),
    exact=True,         # a subclass goes through its source, which refuses a mask and leaves all else behind
    lacks=(
        Fact("PACKED", "dlpack#158", "has sub-byte types from ml_dtypes, which keeps one element in a byte"),
        Fact("OTHER_DEVICES", "seen in 2.4.6", "has no other memory than the host's"),
    ),
    dtypes=(
        Fact(("bool", *INTEGERS, *FLOATS, *COMPLEX), "numpy 2.0"),
        Fact((
            "complex32", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
            "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
            "float4_e2m1fn", "int4", "uint4", "int2", "uint2", "int1", "uint1",
        ), "seen in ml_dtypes 0.6.0", "has them from ml_dtypes, one element in a byte"),
    ),
)
