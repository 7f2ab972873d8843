"""dlbridge's own Tensor."""

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import DLPACK

LIBRARY = Library(
    name="dlbridge",
    arrays=(
        Arrays("Tensor", exchange=Fact("dlbridge.tensor.Tensor", "dlpack 1.3")),
        Arrays("Segment", constant=Fact(lambda segment, address: segment.is_constant, "seen in Linux 6.18",
                                        "is sealed against all writing")),
    ),
    delivery="tensor",
    array_types=("Tensor",),
    exact=True,         # asdlpack() gives a Tensor, and not a proxy of one
    lacks=DLPACK,
    uploads=("cuda", "rocm"),
)
