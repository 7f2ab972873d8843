"""Every path leaves nothing behind, and what goes wrong on it is an error of dlbridge's.

``pytest -m memcheck`` goes the paths under valgrind, which looks for what is lost by itself: see tools/valgrind.sh.
"""

import ctypes
import gc
import sys

import pytest
from support.malloc import C, bytes_in_use
from support.optional import CONDITIONS
from support.paths import PATHS, SOURCES, USES

LOOPS = 40
clear_caches = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache     # from 3.13 on; before
COUNTED = sys.getallocatedblocks() > 0      # with PYTHONMALLOC=malloc Python counts no blocks


def counts():
    gc.collect()            # lets go of the lists of free objects too, from which what is lost could come
    clear_caches()          # of attributes: they hold names, of types too that are gone
    return sys.getallocatedblocks(), bytes_in_use()


def left_behind(paths):
    """Whether each of several rounds left a block, or the bytes of one, for each time: caches grow in one alone."""
    for _ in range(4):
        before = counts()
        for path in paths * LOOPS:
            path()
        blocks, size = (now - then for now, then in zip(counts(), before, strict=True))
        if blocks < LOOPS and size < LOOPS * 16:
            return False
    return True


@pytest.mark.memcheck
@pytest.mark.parametrize("source", SOURCES)
def test_paths_leave_nothing(source):
    paths = {name: PATHS[name] for name in (f"{source} {use}" for use in USES)}
    for path in paths.values():
        path()
        path()      # by what was learnt
    # Without a GIL, ctypes in CPython 3.13 loses a few blocks with each struct of a fake producer.
    counted = COUNTED and (CONDITIONS["a GIL"]() or "producer" not in source)
    if counted and left_behind(list(paths.values())):
        assert [name for name, path in paths.items() if left_behind([path])] == []


@pytest.mark.skipif(not COUNTED, reason="PYTHONMALLOC=malloc: Python counts no blocks")
def test_what_is_left_is_seen():
    kept = []
    assert left_behind([lambda: kept.append([])])
    assert left_behind([lambda: kept.append(C.malloc(4096))])
    for address in filter(None, kept):
        C.free(ctypes.c_void_p(address))
    assert not left_behind([list])
