"""DLPack capsules: "dltensor", which has no flags, and "dltensor_versioned"."""

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import DLPACK

LIBRARY = Library(
    name="dlpack",
    # The types of pydlpack, whose module has this name too.
    arrays=(Arrays("*", unflagged=Fact(True, "seen in 0.2.1", "exports the memory of any library without a flag")),),
    delivery="tensor:prepare_legacy",
    lacks=(
        Fact("READ_ONLY", "dlpack 1.3", "has no flags"),
        Fact("PADDED", "dlpack 1.3", "has no flags"),
        *DLPACK,
    ),
)
# What to_dlpack() gives for max_version=(1, 0); it has no name in convert().
VERSIONED = Library(name="dlpack_versioned", delivery="tensor:prepare_versioned", lacks=DLPACK)
