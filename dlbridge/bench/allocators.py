"""What the allocators of this process have given out."""

import ctypes
import os
import re
import sys
import tempfile

from dlbridge.bench.rows import Missing

MALLINFO2 = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
PYMALLOC = re.compile(r"bytes in allocated blocks\s*=\s*([\d,]+)")


def bytes_in_use() -> int:
    """Bytes that malloc and pymalloc have given out and not got back; Missing where they do not say."""
    return malloc_bytes() + pymalloc_bytes()


def malloc_bytes() -> int:
    """By glibc's word: in its arenas, and mapped for one block each."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError) as error:
        raise Missing("malloc's figures need glibc 2.33 or newer") from error
    fields = [(name, ctypes.c_size_t) for name in MALLINFO2]
    mallinfo.restype = type("mallinfo2", (ctypes.Structure,), {"_fields_": fields})
    info = mallinfo()
    return int(info.uordblks) + int(info.hblkhd)


def pymalloc_bytes() -> int:
    """By CPython's word, which it gives to the C library's stderr only."""
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
        raise Missing("pymalloc is not in use")
    return int(found[1].replace(",", ""))
