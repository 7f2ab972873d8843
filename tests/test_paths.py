"""Every path leaves nothing behind, and what goes wrong on it is an error of dlbridge's.

``pytest -m memcheck`` goes the same paths under valgrind: see tools/valgrind.sh.
"""

import ctypes
import gc
import sys

import pytest
from paths import PATHS

WARM_UP = 5
LOOPS = 40
clear_caches = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache     # from 3.13 on; before


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def bytes_in_use():
    """What malloc() gave and free() did not get back, in the main arena and in mappings; 0 without glibc 2.33."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = Mallinfo2
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def counts():
    # The cache of attributes holds names, of types too that are gone.
    clear_caches()
    return sys.getallocatedblocks(), bytes_in_use()


def left_behind(path):
    """The fewest of Python's blocks, and of malloc()'s bytes, that a round left: caches and pools grow in one alone."""
    for _ in range(WARM_UP):
        path()
    fewest = sys.maxsize, sys.maxsize
    for collect in (int, gc.collect, gc.collect, gc.collect):       # most paths make no cycles
        collect()
        before = counts()
        for _ in range(LOOPS):
            path()
        collect()
        fewest = tuple(min(least, now - then) for least, now, then in zip(fewest, counts(), before, strict=True))
        if fewest[0] < LOOPS and fewest[1] < LOOPS * 16:
            break
    return fewest


@pytest.mark.memcheck
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_path_leaves_nothing(path):
    blocks, size = left_behind(path)
    assert blocks < LOOPS, "less than one object for each time"
    assert size < LOOPS * 16, "less than the smallest block for each time"


def test_what_is_left_is_seen():
    kept = []
    blocks, _ = left_behind(lambda: kept.append([]))
    assert blocks >= LOOPS
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    lost = []
    _, size = left_behind(lambda: lost.append(malloc(4096)))
    for address in lost:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))
    assert size >= LOOPS * 4096
