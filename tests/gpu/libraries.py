"""The GPU libraries behind one face, so that a test is a table: what it takes to do a thing in each is here, once.

Every class has: ``array`` (from NumPy's), ``make`` (in a layout), ``values`` (back to NumPy), ``pointer``; ``empty``,
``fill`` and ``copied`` in int32 on a stream; ``new_stream``, ``adopt`` (another library's stream), ``legacy_stream``,
``current`` (a context manager), ``current_handle``, ``handle``; ``spin`` (keep a stream busy), ``mark`` (ask later
whether a stream came so far) and ``allocated`` (bytes that its allocator has handed out). JAX has no streams to give.
"""

import contextlib
import functools
import os
import time

import numpy as np
from gpu import driver

# How long a stream is kept busy, for a race to be visible.
MILLISECONDS = float(os.environ.get("DLBRIDGE_GPU_SPIN_MS", "50"))
SHAPE = (6, 8)

# By name: the view of a (6, 8) array, in any library that indexes as NumPy does.
LAYOUTS = {
    "compact": lambda xp, a: a,
    "transposed": lambda xp, a: a.T,
    "every second": lambda xp, a: a[:, ::2],
    "reversed": lambda xp, a: a[::-1],
    "broadcast": lambda xp, a: xp.broadcast_to(a[:1], (5, 8)),
    "offset": lambda xp, a: a[2:, 3:],
    "0-d": lambda xp, a: a[3, 2, ...],
    "empty": lambda xp, a: a[:0],
}
ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", *ML_DTYPES,
)


class Unusable(Exception):
    """The library is not there, or has no GPU: why."""


class Lacks(Exception):
    """The library has no such array."""


def numpy_dtype(name):
    if name not in ML_DTYPES:
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def sample(dtype, shape=SHAPE):
    """Values that every dtype holds exactly, no two neighbours alike."""
    numbers = np.arange(np.prod(shape)) * 7 % 16
    if dtype == "bool":
        numbers %= 2
    if dtype.startswith("complex"):
        numbers = numbers + 1j * (numbers + 1)
    return numbers.astype(numpy_dtype(dtype)).reshape(shape)


def viewed(values, layout):
    return LAYOUTS[layout](np, values)


def calibrated(spin, synchronize, units):
    """How many units keep the device busy for MILLISECONDS; three rounds, since its clocks rise under load."""
    spin(units)
    synchronize()
    for _ in range(3):
        start = time.perf_counter()
        spin(units)
        synchronize()
        units = max(1, round(units * MILLISECONDS / 1000 / (time.perf_counter() - start)))
    return units


class Described:
    """Memory that is described by ``__cuda_array_interface__`` alone."""

    def __init__(self, owner, interface):
        self.owner = owner
        self.__cuda_array_interface__ = interface


class Torch:
    name = "torch"
    layouts = tuple(name for name in LAYOUTS if name != "reversed")     # torch has no negative strides

    def __init__(self, device="cuda"):
        import torch

        self.module = torch
        self.device = device
        if device != "cuda":
            return
        if not torch.version.cuda:
            raise Unusable(f"{torch.__version__} is built without CUDA")
        if not torch.cuda.is_available():
            raise Unusable(f"{torch.__version__} finds no GPU")
        torch.zeros(1, device=device)
        self.cycles = calibrated(torch.cuda._sleep, torch.cuda.synchronize, 10_000_000)

    def dtype(self, name):
        try:
            return getattr(self.module, name)
        except AttributeError:
            raise Lacks(name) from None

    def array(self, values, device=None):
        dtype = self.dtype(str(values.dtype))
        device = self.device if device is None else f"cuda:{device}"
        if not values.size:
            return self.module.empty(values.shape, dtype=dtype, device=device)
        flat = self.module.frombuffer(bytearray(values.tobytes()), dtype=self.module.uint8)
        return flat.to(device).view(dtype).reshape(values.shape)

    def make(self, values, layout):
        return LAYOUTS[layout](self.module, self.array(values))

    def values(self, tensor):
        dtype = numpy_dtype(str(tensor.dtype).removeprefix("torch."))
        if not tensor.numel():
            return np.empty(tuple(tensor.shape), dtype)
        flat = tensor.contiguous().reshape(-1).view(self.module.uint8).cpu()
        return flat.numpy().view(dtype).reshape(tuple(tensor.shape))

    def pointer(self, tensor):
        return tensor.data_ptr()

    def device_index(self, tensor):
        return tensor.device.index

    def empty(self, count, stream):
        with self.current(stream):
            return self.module.empty(count, dtype=self.module.int32, device=self.device)

    def fill(self, tensor, value, stream):
        with self.current(stream):
            tensor.fill_(value)

    def copied(self, tensor, stream):
        with self.current(stream):
            return tensor.clone()

    def new_stream(self):
        return self.module.cuda.Stream()

    def adopt(self, stream, handle):
        return self.module.cuda.ExternalStream(handle)

    def legacy_stream(self):
        return self.module.cuda.default_stream()

    def current(self, stream):
        return self.module.cuda.stream(stream)

    def handle(self, stream):
        return stream.cuda_stream

    def current_handle(self):
        return self.module.cuda.current_stream().cuda_stream

    def current_device(self):
        return self.module.cuda.current_device()

    def spin(self, stream):
        with self.current(stream):
            self.module.cuda._sleep(self.cycles)

    def mark(self, stream):
        event = self.module.cuda.Event()
        event.record(stream)
        return event.query

    def allocated(self):
        return self.module.cuda.memory_allocated()


class Cupy:
    name = "cupy"
    layouts = tuple(LAYOUTS)
    # In nanoseconds of the device's own clock, so that nothing needs to be calibrated.
    SPIN = r"""
    extern "C" __global__ void spin(unsigned long long nanoseconds) {
        unsigned long long start, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
        do {
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        } while (now - start < nanoseconds);
    }
    """

    def __init__(self):
        import cupy

        self.module = cupy
        try:
            if not cupy.cuda.runtime.getDeviceCount():
                raise Unusable(f"{cupy.__version__} finds no GPU")
            cupy.zeros(1)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise Unusable(f"{cupy.__version__} finds no GPU ({error})") from error
        self.kernel = cupy.RawKernel(self.SPIN, "spin")

    def array(self, values, device=0):
        with self.module.cuda.Device(device):
            try:
                return self.module.asarray(values)
            except (TypeError, ValueError, NotImplementedError) as error:
                raise Lacks(values.dtype) from error

    def make(self, values, layout):
        return LAYOUTS[layout](self.module, self.array(values))

    def values(self, array):
        return described_values(array.__cuda_array_interface__, array.dtype)

    def pointer(self, array):
        return array.data.ptr

    def device_index(self, array):
        return array.device.id

    def empty(self, count, stream):
        with self.current(stream):
            return self.module.empty(count, np.int32)

    def fill(self, array, value, stream):
        with self.current(stream):
            array.fill(value)

    def copied(self, array, stream):
        with self.current(stream):
            return array.copy()

    def new_stream(self):
        return self.module.cuda.Stream(non_blocking=True)

    def adopt(self, stream, handle):
        streams = self.module.cuda
        if hasattr(streams.Stream, "from_external") and hasattr(stream, "__cuda_stream__"):     # CuPy 14
            return streams.Stream.from_external(stream)
        return streams.ExternalStream(handle)

    def legacy_stream(self):
        return self.module.cuda.Stream.null

    def current(self, stream):
        return stream

    def handle(self, stream):
        return stream.ptr

    def current_handle(self):
        return self.module.cuda.get_current_stream().ptr

    def current_device(self):
        return self.module.cuda.runtime.getDevice()

    def spin(self, stream):
        with stream:
            self.kernel((1,), (1,), (np.uint64(MILLISECONDS * 1_000_000),))

    def mark(self, stream):
        event = stream.record()
        return lambda: event.done

    def allocated(self):
        return self.module.get_default_memory_pool().used_bytes()


class Numba:
    name = "numba"
    # Of an array that repeats rows its interface says that it is compact (seen in numba-cuda 0.30.4).
    layouts = tuple(name for name in LAYOUTS if name != "broadcast")

    def __init__(self):
        from numba import cuda

        self.module = cuda
        # numba-cuda 0.30.4 looks for it when it compiles a kernel.
        can = hasattr(np, "row_stack")
        self.why_no_kernels = "" if can else f"Numba compiles no kernels with NumPy {np.__version__}"
        if not cuda.is_available():
            raise Unusable(f"numba.cuda finds no GPU ({cuda.cuda_error()})")
        cuda.current_context()

    @functools.cached_property
    def _nap(self):
        cuda = self.module
        if self.why_no_kernels:
            raise Unusable(self.why_no_kernels)

        @cuda.jit
        def nap(times):
            for _ in range(times):
                cuda.nanosleep(1_000_000)

        return nap

    @functools.cached_property
    def _naps(self):
        return calibrated(lambda times: self._nap[1, 1](np.int64(times)), self.module.synchronize, 20)

    @functools.cached_property
    def _fill(self):
        cuda = self.module
        if self.why_no_kernels:
            raise Unusable(self.why_no_kernels)

        @cuda.jit
        def fill(out, value):
            i = cuda.grid(1)
            if i < out.size:
                out[i] = value

        return fill

    def array(self, values, device=0):
        # ml_dtypes' types have no buffers, so their bits are taken instead.
        bits = values.view(f"u{values.itemsize}") if str(values.dtype) in ML_DTYPES else values
        with self.module.gpus[device]:
            return self.module.to_device(bits).view(values.dtype)

    def make(self, values, layout):
        base = self.array(values)
        view = viewed(values, layout)
        interface = base.__cuda_array_interface__ | {"shape": view.shape, "strides": view.strides}
        offset = view.__array_interface__["data"][0] - values.__array_interface__["data"][0]
        interface["data"] = (interface["data"][0] + offset if view.size else 0, False)
        # As bytes first: the typestr of bfloat16 or float8 is understood by nobody.
        interface["typestr"] = f"|V{values.itemsize}"
        array = self.module.as_cuda_array(Described(base, interface))
        array.dtype = base.dtype
        return array

    def values(self, array):
        interface = {"shape": array.shape, "strides": array.strides, "data": (self.pointer(array), False)}
        return described_values(interface, array.dtype)

    def pointer(self, array):
        return array.__cuda_array_interface__["data"][0]

    def device_index(self, array):
        return array.gpu_data.context.device.id

    def empty(self, count, stream):
        return self.module.device_array(count, np.int32, stream=stream)

    def fill(self, array, value, stream):
        self._fill[(array.size + 255) // 256, 256, stream](array, np.int32(value))

    def copied(self, array, stream):
        copy = self.empty(array.size, stream)
        copy.copy_to_device(array, stream=stream)
        return copy

    def new_stream(self):
        return self.module.stream()

    def adopt(self, stream, handle):
        return self.module.external_stream(handle)

    def legacy_stream(self):
        return self.module.legacy_default_stream()

    def current(self, stream):
        return contextlib.nullcontext()         # Numba's arrays name their stream, there is no current one

    def handle(self, stream):
        return int(stream)

    def current_handle(self):
        return None

    def current_device(self):
        return self.module.get_current_device().id

    def spin(self, stream):
        self._nap[1, 1, stream](np.int64(self._naps))

    def mark(self, stream):
        event = self.module.event(timing=False)
        event.record(stream)
        return event.query

    def allocated(self):
        return None                             # Numba's allocator is the driver's: free_memory() tells


class Jax:
    name = "jax"
    layouts = ("compact", "0-d", "empty")       # JAX arrays have no other

    def __init__(self, platform="cuda"):
        import jax

        self.module = jax
        try:
            self.devices = jax.devices(platform)
        except RuntimeError as error:
            raise Unusable(f"{jax.__version__} finds no GPU ({error})") from error
        jax.config.update("jax_enable_x64", True)       # or it would have no 64-bit types

    def array(self, values, device=0):
        return self.module.device_put(values, self.devices[device])

    def make(self, values, layout):
        view = viewed(values, layout)
        return self.array(np.ascontiguousarray(view).reshape(view.shape))

    def values(self, array):
        return np.asarray(array)

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def device_index(self, array):
        (device,) = array.devices()
        return device.local_hardware_id

    def copied(self, array, stream):
        return self.module.numpy.array(array, copy=True)

    @functools.cached_property
    def _slow(self):
        jax = self.module
        matrix = jax.numpy.ones((8192, 8192), jax.numpy.float32) / 8192

        @jax.jit
        def slow(array):
            busy = matrix
            for _ in range(6):          # a loop of JAX's would have the host wait
                busy = busy @ matrix
            return array + (busy[0, 0] * 0).astype(array.dtype)

        return slow

    def used_later(self, array):
        """What an array has once a slow kernel, which is queued now, has run."""
        return self._slow(array)

    def current(self, stream):
        return contextlib.nullcontext()

    def new_stream(self):
        return None

    def current_handle(self):
        return None

    def current_device(self):
        return None

    def allocated(self):
        return (self.devices[0].memory_stats() or {}).get("bytes_in_use")


def described_values(interface, dtype):
    """What ``__cuda_array_interface__`` describes, read by the driver: every library's arrays, in any layout."""
    dtype = np.dtype(dtype)
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or np.empty(shape, dtype).strides
    if 0 in shape:
        return np.empty(shape, dtype)
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    before = -sum(step for step in steps if step < 0)
    size = before + sum(step for step in steps if step > 0) + dtype.itemsize
    block = driver.read(interface["data"][0] - before, size)
    return np.ndarray(shape, dtype, block, before, strides).copy()


CLASSES = {kind.name: kind for kind in (Torch, Cupy, Numba, Jax)}
FAKE = bool(os.environ.get("FAKE_DRIVER"))
_found = {}
if FAKE:
    from gpu import fake

    _found = {name: Unusable("it is not on the fake driver") for name in CLASSES} | {"xla": fake.Xla()}
    CLASSES = {kind.name: kind for kind in (fake.Numba, fake.Pool)}
    del _found["numba"]


def cases(*given):
    """These cases; on the fake driver those of its own libraries in place of CuPy and torch, and none of JAX."""
    if not FAKE:
        return given
    names = {"cupy": "pool", "torch": "numba"}
    of_fakes = (tuple(names.get(part, part) for part in case) for case in given if "jax" not in case)
    return tuple(dict.fromkeys(case for case in of_fakes if len(case) == 1 or case[0] != case[1]))


def races():
    """What the fake driver saw since the last call that did not follow what it has to follow."""
    return fake.driver.races() if FAKE else []


def find(name):
    """Give the library by name, made once; raises Unusable with the reason, each time."""
    if name not in _found:
        try:
            _found[name] = CLASSES[name]()
        except ImportError as error:
            _found[name] = Unusable(f"cannot be imported ({error})")
        except Unusable as error:
            _found[name] = error
    if isinstance(_found[name], Unusable):
        raise _found[name]
    return _found[name]


synchronize = driver.synchronize
