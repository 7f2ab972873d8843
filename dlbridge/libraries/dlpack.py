"""DLPack capsules: "dltensor", which has no flags, and "dltensor_versioned"."""

from dlbridge.libraries.library import Fact, Library
from dlbridge.libraries.profiles import DLPACK

LIBRARY = Library(
    name="dlpack",
    delivery="capsule:prepare_legacy",
    lacks=(
        Fact("READ_ONLY", "dlpack 1.3", "has no flags"),
        Fact("PADDED", "dlpack 1.3", "has no flags"),
        *DLPACK,
    ),
)
# What to_dlpack() gives for max_version=(1, 0); it has no name in convert().
VERSIONED = Library(name="dlpack_versioned", delivery="capsule:prepare_versioned", lacks=DLPACK)
