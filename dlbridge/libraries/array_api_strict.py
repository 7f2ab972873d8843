"""array-api-strict: the standard's arrays, over NumPy's."""

import numpy as np

from dlbridge.libraries.library import Fact, Library, Sample
from dlbridge.libraries.profiles import COMPLEX, DLPACK, INTEGERS

LIBRARY = Library(
    name="array_api_strict",
    install="array-api-strict",
    delivery="importer",
    importer="from_dlpack",
    array_types=("_array_object.Array",),
    lacks=(
        Fact("OTHER_DEVICES", "seen in 2.6.1", "wraps NumPy arrays"),
        *DLPACK,
    ),
    dtypes=(Fact(("bool", *INTEGERS, "float32", "float64", *COMPLEX), "seen in 2.6.1"),),
    sample=Sample(
        lambda namespace, array: namespace.asarray(array),
        lambda namespace, array: np.from_dlpack(array),
        devices=("cpu",),
        distributions=("array-api-strict",),
    ),
)
