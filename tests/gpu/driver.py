"""The CUDA driver, asked through ctypes: no framework is imported to learn whether there is a GPU."""

import ctypes
import functools

DRIVER = "libcuda.so.1"


@functools.cache
def load():
    """Return the driver after cuInit, and "", or None and why there is none."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        return None, f"no NVIDIA driver ({error})"
    code = driver.cuInit(0)
    return (driver, "") if code == 0 else (None, f"the NVIDIA driver does not start (cuInit gave {code})")


def device_count():
    driver, _ = load()
    count = ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def why_no_gpu():
    """Why nothing can run here, or "" where a GPU is."""
    _, reason = load()
    return reason or ("" if device_count() else "the NVIDIA driver names no GPU")


def version():
    """Return the CUDA version that the driver speaks, as in "13.0", or "" without one."""
    driver, _ = load()
    number = ctypes.c_int()
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(number)):
        return ""
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _asked(name, value, *more):
    driver, reason = load()
    if driver is None:
        raise RuntimeError(reason)
    code = getattr(driver, name)(ctypes.byref(value), *more)
    if code:
        raise RuntimeError(f"{name} gave {code}")
    return value.value


def free_memory():
    """Bytes free on the device of the current context."""
    free = ctypes.c_size_t()
    return _asked("cuMemGetInfo_v2", free, ctypes.byref(ctypes.c_size_t()))


def current_context():
    """Return the address of the current context, which names the current device too; None without one."""
    return _asked("cuCtxGetCurrent", ctypes.c_void_p())


def is_capturing(stream):
    """Tell whether a stream, by its handle, is being captured into a graph."""
    status = ctypes.c_int()
    driver, _ = load()
    code = driver.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
    if code:
        raise RuntimeError(f"cuStreamIsCapturing gave {code}")
    return status.value != 0


def synchronize():
    """Wait for everything on the device of the current context; nothing without one."""
    driver, _ = load()
    if driver is not None and current_context():
        code = driver.cuCtxSynchronize()
        if code:
            raise RuntimeError(f"cuCtxSynchronize gave {code}")


def read(address, size):
    """Bytes of device memory, after everything that was queued."""
    driver, _ = load()
    synchronize()
    host = ctypes.create_string_buffer(size)
    code = driver.cuMemcpyDtoH_v2(host, ctypes.c_uint64(address), ctypes.c_size_t(size)) if size else 0
    if code:
        raise RuntimeError(f"cuMemcpyDtoH gave {code} for {size} bytes at {address:#x}")
    return host.raw[:size]
