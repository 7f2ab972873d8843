"""What malloc() gave and free() did not get back; dlbridge takes its blocks and copies from there."""

import ctypes


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


C = ctypes.CDLL(None)
C.malloc.restype = ctypes.c_void_p
if hasattr(C, "mallinfo2"):             # glibc from 2.33 on
    C.mallinfo2.restype = Mallinfo2


def bytes_in_use():
    """What malloc() gave and free() did not get back, in the main arena and in mappings."""
    info = C.mallinfo2() if hasattr(C, "mallinfo2") else Mallinfo2()
    return info.uordblks + info.hblkhd
