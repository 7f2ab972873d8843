"""What a Tensor exports: DLPack capsules ("dltensor", which has no flags, and "dltensor_versioned"), Arrow, pickles."""

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import DLPACK, FLOATS, INTEGERS, NO_LABELS, compact

OF_HOST = (Fact("OTHER_DEVICES", "dlpack 1.3", "has no device"), *NO_LABELS)

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
# What has no name in convert(). A versioned capsule, which to_dlpack() gives for max_version=(1, 0):
VERSIONED = Library(name="dlpack", delivery="tensor:prepare_versioned", lacks=DLPACK)
# An array of Arrow, which __arrow_c_array__ gives:
ARROW = Library(
    name="arrow",
    lacks=(
        Fact("WRITABLE", "arrow 1.0", "has arrays that never change"),
        *compact("arrow 1.0"),
        *DLPACK,
        *OF_HOST,
    ),
    aligned_dtypes=Fact((*INTEGERS, *FLOATS), "arrow 1.0", "recommends addresses that are multiples of 8"),
)
# A pickle, which has the touched bytes and the strides, but never more bytes than the elements have:
PICKLE = Library(name="pickle", lacks=(Fact("GAPS", "seen in 3.14", "would keep what nobody can see"), *OF_HOST))

SHARED = 'make the Tensor with readonly="share" and do not write'
# What a Tensor exports: the row of what it supports, its name in texts, and the hint for memory that is read-only but
# could be written to, or that is writable but must not change.
EXPORTS = {
    "LEGACY": (LIBRARY, "a legacy capsule", f"pass max_version=(1, 0), or {SHARED}"),
    "VERSIONED": (VERSIONED, "a capsule", SHARED),
    "ARROW": (ARROW, "Arrow", SHARED),
    "PICKLE": (PICKLE, "a pickle", SHARED),
}
