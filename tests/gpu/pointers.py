"""What the driver says of every kind of memory, and what dlbridge makes of it: python tests/gpu/pointers.py

The exit status is 1 where dlbridge takes memory for another kind.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BYTES = 1 << 20
ATTRIBUTES = {"context": 1, "type": 2, "managed": 8, "ordinal": 9, "bytes": 12}

# By the kind: a statement that leaves an address in `start`, and what dlbridge has to say of it.
KINDS = {
    "cuMemAlloc": ("start = allocated('cuMemAlloc_v2', SIZE)", "cuda:0"),
    "cuMemAllocAsync": ("start = allocated('cuMemAllocAsync', SIZE, ctypes.c_void_p(1))", "cuda:0"),
    "cuMemAllocHost": ("start = allocated('cuMemAllocHost_v2', SIZE)", "cuda_host:0"),
    "malloc": ("kept = ctypes.create_string_buffer(BYTES); start = ctypes.addressof(kept)", "refused"),
    "CuPy's pool": ("import cupy; kept = cupy.zeros(BYTES, 'u1'); start = kept.data.ptr", "cuda:0"),
    "CuPy's asynchronous pool": (
        "import cupy; cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc); kept = cupy.zeros(BYTES, 'u1'); "
        "start = kept.data.ptr", "cuda:0"),
    "torch's allocator": (
        "import torch; kept = torch.zeros(BYTES, dtype=torch.uint8, device='cuda'); start = kept.data_ptr()", "cuda:0"),
    "torch's expandable segments": (
        "import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'; import torch; "
        "kept = torch.zeros(BYTES, dtype=torch.uint8, device='cuda'); start = kept.data_ptr()", "cuda:0"),
    "torch's pinned memory": (
        "import torch; kept = torch.zeros(BYTES, dtype=torch.uint8).pin_memory(); start = kept.data_ptr()",
        "cuda_host:0"),
    "torch's expandable segments, several": (
        "import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'; import torch; "
        "BYTES = 100 << 20; kept = torch.zeros(BYTES, dtype=torch.uint8, device='cuda'); start = kept.data_ptr()",
        "cuda:0"),
    "cuMemAllocManaged": ("start = allocated('cuMemAllocManaged', SIZE, ctypes.c_uint(1))", "cuda_managed:0"),
}
SIZE = ctypes.c_size_t(BYTES)


def allocated(name, *arguments):
    from gpu import driver

    start = ctypes.c_void_p()
    code = getattr(driver.load()[0], name)(ctypes.byref(start), *arguments)
    if code:
        raise RuntimeError(f"{name} gave {code}")
    return start.value


def primary_context():
    """Of the first device, made this thread's current one."""
    from gpu import driver

    library, context = driver.load()[0], ctypes.c_void_p()
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxSetCurrent(context) == 0
    return context.value


def attributes(start):
    from gpu import driver

    found = {}
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_size_t()
        code = driver.load()[0].cuPointerGetAttribute(ctypes.byref(value), number, ctypes.c_void_p(start))
        found[name] = f"error {code}" if code else value.value & (0xFF if name == "managed" else -1)
    return found


def look(kind):
    """In a process of its own, since an allocator is chosen once."""
    from gpu.libraries import Described

    import dlbridge

    statement, expected = KINDS[kind]
    context = primary_context()
    names = {"allocated": allocated, "ctypes": ctypes, "SIZE": SIZE, "BYTES": BYTES}
    try:
        exec(statement, names)
    except Exception as error:
        print(f"not run: {type(error).__name__}: {str(error).splitlines()[0]}")
        return 2
    said = attributes(names["start"])
    said["context"] = {context: "primary", 0: "none"}.get(said["context"], said["context"])
    shape, data = (names["BYTES"],), (names["start"], False)
    interface = {"shape": shape, "typestr": "|u1", "data": data, "version": 3, "stream": 1}
    try:
        found = dlbridge.asdlpack(Described(names, interface)).device
    except dlbridge.DeviceError as error:
        found = "refused" if "is no memory that the driver knows" in str(error) else str(error)
    print(f"{said}: {found}" if found == expected else f"{said}: FAILED: {found}, which is {expected}")
    return int(found != expected)


def main():
    sys.path.insert(0, str(ROOT / "tests"))
    if len(sys.argv) > 1:
        return look(sys.argv[1])
    codes = set()
    for kind in KINDS:
        child = subprocess.run([sys.executable, "-P", __file__, kind], capture_output=True, text=True,
                               env={**os.environ, "PYTHONWARNINGS": "ignore"})
        print(f"{kind}: {(child.stdout or child.stderr).strip().splitlines()[-1]}", flush=True)
        codes.add(child.returncode)
    return 2 if codes == {2} else int(bool(codes - {0, 2}))


if __name__ == "__main__":
    sys.exit(main())
