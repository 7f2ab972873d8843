"""dpnp: arrays of SYCL's devices."""

from typing import Any

from dlbridge.libraries.library import Fact, Library
from dlbridge.libraries.profiles import COMPLEX, FLOATS, INTEGERS, NO_LABELS, NO_SUBBYTE, PLAIN


def upload(dpnp: Any, array: Any, index: int | None) -> Any:
    """Copy to a device by its number, as dpctl lists them."""
    if index is None:
        return dpnp.asarray(array)
    import dpctl  # type: ignore[import-not-found, unused-ignore]

    return dpnp.asarray(array, device=dpctl.get_devices()[index])


LIBRARY = Library(
    name="dpnp",
    delivery="importer",
    importer="from_dlpack",
    array_types=("ndarray",),
    lacks=(
        Fact("HOST", "seen in 0.20", "copies it to a device unasked"),
        Fact("NEGATIVE_STRIDES", "seen in 0.20", "refuses them"),
        *PLAIN,
        Fact("READ_ONLY", "seen in 0.20", "has no read-only arrays"),
        *NO_LABELS,
        *NO_SUBBYTE,
    ),
    dtypes=(Fact(("bool", *INTEGERS, *FLOATS, *COMPLEX), "seen in 0.20"),),
    uploads=("oneapi",),
    uploader=upload,
)
