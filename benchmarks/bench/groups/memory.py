"""Bytes of malloc and pymalloc: those that a live result holds beside its data, and those that dead results leave."""

import gc
from timeit import Timer

from bench.allocators import bytes_in_use
from bench.rows import Group, Names, Row, Sample, Settings

LIVE = 5000
WARM_UP = 1000
# The statement of dlbridge, and the target library's own way through from_dlpack.
PATHS = {
    "ndarray -> torch": ('dlbridge.convert(ndarray, to="torch")', "torch.from_dlpack(ndarray)"),
    "tensor -> numpy": ('dlbridge.convert(tensor, to="numpy")', "numpy.from_dlpack(tensor)"),
    "bytearray -> torch": ('dlbridge.convert(buffer, to="torch")', "torch.from_dlpack(numpy.frombuffer(buffer, 'u1'))"),
    "jax -> torch": ('dlbridge.convert(jax_array, to="torch", readonly="share")', "torch.from_dlpack(jax_array)"),
    "jax -> numpy": ('dlbridge.convert(jax_array, to="numpy")', "numpy.from_dlpack(jax_array)"),
    "aligned ndarray -> jax": (
        'dlbridge.convert(aligned, to="jax", readonly="share")', "jax.dlpack.from_dlpack(aligned)"),
    "tensor -> jax": (
        'dlbridge.convert(tensor, to="jax", readonly="share")', "jax.dlpack.from_dlpack(tensor)"),
    "bfloat16 ndarray -> torch": (
        'dlbridge.convert(bfloat16_ndarray, to="torch")',
        "torch.from_dlpack(bfloat16_ndarray.view('i2')).view(torch.bfloat16)"),
    "bfloat16 tensor -> numpy": (
        'dlbridge.convert(bfloat16_tensor, to="numpy")',
        "numpy.from_dlpack(bfloat16_tensor.view(torch.int16)).view(ml_dtypes.bfloat16)"),
}
WRAPS = {
    "asdlpack": "dlbridge.asdlpack(ndarray)",
    "asdlpack, __dlpack__": "dlbridge.asdlpack(ndarray).__dlpack__(max_version=(1, 1))",
    "asdlpack, torch.from_dlpack": "torch.from_dlpack(dlbridge.asdlpack(ndarray))",
}


def held(statement: str, names: Names, settings: Settings) -> Sample:
    """Make a sampler of the bytes that one live result holds."""
    make = eval(f"lambda: {statement}", names)
    make()
    bytes_in_use()

    def sample() -> float:
        results = [make() for _ in range(LIVE)]
        results[:] = [None] * LIVE
        before = bytes_in_use()
        for index in range(LIVE):
            results[index] = make()
        return (bytes_in_use() - before) / LIVE

    return sample


def leaked(statement: str, names: Names, settings: Settings) -> Sample:
    """Make a sampler of the bytes that each of many calls leaves in use."""
    timer = Timer(statement, globals=names)
    timer.timeit(WARM_UP)
    bytes_in_use()

    def sample() -> float:
        gc.collect()
        before = bytes_in_use()
        timer.timeit(settings.calls)
        gc.collect()
        return max(0.0, (bytes_in_use() - before) / settings.calls)

    return sample


GROUP = Group("memory", (
    *(Row(f"held, {name}", ours, {"from_dlpack": native}, sampler=held, unit="bytes", share=0)
      for name, (ours, native) in PATHS.items()),
    *(Row(f"left, {name}", statement, sampler=leaked, unit="bytes a call", share=0)
      for name, statement in {**{name: ours for name, (ours, _) in PATHS.items()}, **WRAPS}.items()),
))
