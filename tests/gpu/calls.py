"""What each call of the driver takes, in ns above a foreign call that does nothing: python tests/gpu/calls.py"""

import ctypes
import sys
from pathlib import Path
from timeit import repeat

ROOT = Path(__file__).resolve().parents[2]
COUNT = 2000


def main():
    sys.path.insert(0, str(ROOT / "tests"))
    from gpu import driver
    from gpu.pointers import allocated, primary_context

    library, reason = driver.load()
    if reason:
        print(f"nothing was measured: {reason}")
        return 2
    context, event = ctypes.c_void_p(primary_context()), ctypes.c_void_p()
    first, then, legacy = (ctypes.c_void_p() for _ in range(3))
    for stream in first, then:
        assert library.cuStreamCreate(ctypes.byref(stream), 1) == 0
    legacy.value = 1
    assert library.cuEventCreate(ctypes.byref(event), 2) == 0
    start, size = ctypes.c_void_p(allocated("cuMemAlloc_v2", ctypes.c_size_t(64))), ctypes.c_size_t(64)
    numbers = (ctypes.c_int * 4)(2, 8, 9, 1)
    places = [ctypes.c_size_t() for _ in range(4)]
    values = (ctypes.c_void_p * 4)(*(ctypes.addressof(place) for place in places))
    out, status, made = (ctypes.byref(each) for each in (ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()))
    fresh = ctypes.c_void_p()

    def in_pool(stream):
        library.cuMemAllocAsync(ctypes.byref(fresh), size, stream)
        library.cuMemFreeAsync(fresh, stream)

    rows = {
        "cuCtxGetCurrent": lambda: library.cuCtxGetCurrent(out),
        "cuPointerGetAttributes, 4": lambda: library.cuPointerGetAttributes(4, numbers, values, start),
        "cuStreamIsCapturing": lambda: library.cuStreamIsCapturing(first, status),
        "cuStreamIsCapturing, legacy": lambda: library.cuStreamIsCapturing(legacy, status),
        "cuEventRecord": lambda: library.cuEventRecord(event, first),
        "cuStreamWaitEvent": lambda: library.cuStreamWaitEvent(then, event, 0),
        "cuEventCreate": lambda: library.cuEventCreate(made, 2),
        "cuCtxPushCurrent and PopCurrent": lambda: (
            library.cuCtxPushCurrent_v2(context), library.cuCtxPopCurrent_v2(out)),
        "cuMemAllocAsync and FreeAsync": lambda: in_pool(first),
    }
    nothing = ctypes.CDLL(None).abs
    empty = min(repeat(lambda: nothing(1), number=COUNT, repeat=20)) / COUNT * 1e9
    for name, call in rows.items():
        taken = min(repeat(call, number=COUNT, repeat=5)) / COUNT * 1e9
        driver.synchronize()
        print(f"{name:34}{taken - empty:8.0f} ns", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
