"""MLX: arrays in its own memory."""

import copy

from dlbridge.libraries.library import Fact, Library
from dlbridge.libraries.profiles import INTEGERS, NO_LABELS, NO_SUBBYTE, PLAIN

LIBRARY = Library(
    name="mlx",
    module="mlx.core",
    delivery="importer",
    importer="from_dlpack",
    values=Fact(True, "seen in 0.32.4", "computes an array when it is needed, of what another one has then"),
    array_types=("array",),
    clone=Fact(lambda array, detach: copy.copy(array), "seen in 0.32.4",
               "has memory that is never written again, and computes what is late in the thread that asked for it"),
    lacks=(
        Fact("SHARING", "seen in 0.32.4", "copies on the CPU, whatever it is given"),
        Fact("NEGATIVE_STRIDES", "seen in 0.32.4", "refuses them"),
        *PLAIN,
        *NO_LABELS,
        *NO_SUBBYTE,
    ),
    dtypes=(
        Fact(("bool", *INTEGERS, "float16", "float32", "complex64", "bfloat16"), "seen in 0.32.4",
             "narrows float64 and complex128 silently"),
    ),
)
