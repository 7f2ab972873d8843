"""MindSpore: tensors without a protocol, through functions that give and take legacy capsules."""

import sys

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import FLOATS, INTEGERS, NO_LABELS, NO_SUBBYTE, PLAIN

LIBRARY = Library(
    name="mindspore",
    arrays=(
        Arrays("Tensor", gives=Fact(lambda tensor: sys.modules["mindspore"].utils.to_dlpack(tensor), "seen in 2.10",
                                    "has no __dlpack__")),
    ),
    delivery="importer:prepare_for_capsules",
    importer="utils.from_dlpack",
    array_types=("Tensor",),
    lacks=(
        *PLAIN,
        Fact("READ_ONLY", "seen in 2.10", "takes capsules without flags, and writes"),
        *NO_LABELS,
        *NO_SUBBYTE,
    ),
    dtypes=(Fact((*INTEGERS, *FLOATS, "bfloat16"), "seen in 2.10"),),
)
