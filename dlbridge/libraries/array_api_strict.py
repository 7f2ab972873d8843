"""array-api-strict: the standard's arrays, over NumPy's."""

import sys
from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import COMPLEX, DLPACK, INTEGERS


def devices(namespace: Any) -> Any:
    """All of them are labels of the host's memory, so that programs for several devices can be tested."""
    return namespace.__array_namespace_info__().devices()


def number(device: Any) -> int:
    return list(devices(sys.modules["array_api_strict"])).index(device)


def upload(namespace: Any, array: Any, index: int | None) -> Any:
    return namespace.asarray(array, device=devices(namespace)[index or 0], copy=True)


LIBRARY = Library(
    name="array_api_strict",
    install="array-api-strict",
    delivery="importer",
    importer="from_dlpack",
    array_types=("_array_object.Array",),
    arrays=(
        Arrays("Array", host_number=Fact(
            lambda array: number(array.device), "seen in 2.6.1", "exports every device as the first")),
    ),
    hosts=Fact(lambda namespace: len(devices(namespace)), "seen in 2.6.1"),
    default_host=Fact(lambda namespace: 0, "seen in 2.6.1", "makes arrays on the first device"),
    devices=Fact({"Device": lambda device: f"cpu:{number(device)}"}, "seen in 2.6.1"),
    uploader=upload,
    lacks=(
        Fact("OTHER_DEVICES", "seen in 2.6.1", "wraps NumPy arrays"),
        *DLPACK,
    ),
    dtypes=(Fact(("bool", *INTEGERS, "float32", "float64", *COMPLEX), "seen in 2.6.1"),),
)
