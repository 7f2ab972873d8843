"""The bytes that the allocators of this process have given out."""

import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from bench.rows import Missing

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
PYMALLOC = re.compile(r"bytes in allocated blocks\s*=\s*([\d,]+)")


def find_mallinfo2() -> Callable[[], Any] | None:
    """Find mallinfo2(), which glibc has from 2.33 on."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    fields = [(name, ctypes.c_size_t) for name in FIELDS]
    function.restype = type("mallinfo2", (ctypes.Structure,), {"_fields_": fields})
    return function


MALLINFO2 = find_mallinfo2()


def bytes_in_use() -> int:
    """Count the bytes that malloc and pymalloc have given out and not got back; raise Missing where that is unknown."""
    return malloc_bytes() + pymalloc_bytes()


def malloc_bytes() -> int:
    """Count the bytes in malloc's arenas, and those mapped for one block each."""
    if MALLINFO2 is None:
        raise Missing("malloc does not say what it has given out (glibc 2.33 or newer does)")
    info = MALLINFO2()
    return int(info.uordblks) + int(info.hblkhd)


def pymalloc_bytes() -> int:
    """Count the bytes that CPython's allocator says it has given out; it says so on the C library's stderr alone."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            sys._debugmallocstats()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        file.seek(0)
        found = PYMALLOC.search(file.read().decode(errors="replace"))
    if found is None:
        raise Missing("pymalloc does not say what it has given out (it is not in use)")
    return int(found[1].replace(",", ""))
