"""What SciPy has found out about the indices of a compressed matrix, without letting it find out more.

``has_sorted_indices`` and ``has_canonical_format`` look at every index when they are first read, and keep the answer in
the matrix: who writes indices afterwards, and lets SciPy sort them, would find them unsorted. The answers are kept in
two private attributes; where they are not, and in other versions than ``Library.private`` names, nothing is known. To
do without, delete this file, its call in ``scipy.py``, and the fact ``private`` there.
"""

import functools
from typing import Any

from dlbridge.libraries.library import uses_internals


@functools.cache
def in_use() -> bool:
    return uses_internals("scipy")


def known(matrix: Any) -> tuple[bool, bool]:
    """Whether its indices are known to be sorted, and each to be there once."""
    answers = vars(matrix) if in_use() else {}
    return answers.get("_has_sorted_indices") is True, answers.get("_has_canonical_format") is True
