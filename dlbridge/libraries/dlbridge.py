"""dlbridge's own Tensor."""

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import DLPACK

LIBRARY = Library(
    name="dlbridge",
    arrays=(Arrays("Tensor", exchange=Fact("dlbridge.tensor.Tensor", "dlpack 1.3")),),
    delivery="tensor",
    array_types=("Tensor",),
    exact=True,         # asdlpack() gives a Tensor, and not a proxy of one
    lacks=DLPACK,
    uploads=("cuda", "rocm"),
)
