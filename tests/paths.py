"""One case per path through dlbridge: every source to every target, shared, copied and refused.

``PATHS`` maps a name to a function without arguments that goes the path once and drops all it made. Who looks for what
a path leaves behind (memory, references, errors of a tool) goes through them all; only installed libraries are in it.
"""

import array
import contextlib
import functools
import importlib.util
import pickle

import numpy as np

import dlbridge
from dlbridge.testing.producers import Producer


class Interface:
    """An owner that has one protocol alone."""

    def __init__(self, owner, protocol):
        self.owner = owner
        self.protocol = protocol

    def __getattr__(self, name):
        if name != self.protocol:
            raise AttributeError(name)
        return getattr(self.owner, name)


def is_there(library):
    return importlib.util.find_spec(library) is not None


def numbers():
    return np.arange(12, dtype="float32").reshape(3, 4)


def read_only():
    array = numbers()
    array.flags.writeable = False
    return array


def of_torch(change):
    import torch

    return change(torch.arange(12, dtype=torch.float32).reshape(3, 4))


def of_jax(dtype):
    import jax.numpy

    return jax.numpy.arange(12, dtype=dtype).reshape(3, 4)


def of_pyarrow():
    import pyarrow

    return pyarrow.py_buffer(b"Hello, world")


SOURCES = {
    "ndarray": numbers,
    "ndarray of 0 axes": lambda: np.array(1.0),
    "ndarray without elements": lambda: np.zeros((0, 3), "float32"),
    "reversed ndarray": lambda: numbers()[::-1],
    "transposed ndarray": lambda: numbers().T,
    "swapped ndarray": lambda: numbers().astype(">f4"),
    "read-only ndarray": read_only,
    "field of records": lambda: np.zeros(5, [("a", "i1"), ("b", "f8")])["b"],
    "bytes": lambda: b"Hello, world",
    "bytearray": lambda: bytearray(b"Hello, world"),
    "memoryview": lambda: memoryview(bytearray(24)).cast("d"),
    "array.array": lambda: array.array("f", range(12)),
    "interface": lambda: Interface(numbers(), "__array_interface__"),
    "struct": lambda: Interface(numbers(), "__array_struct__"),
    "DLPack": lambda: Interface(numbers(), "__dlpack__"),
    "producer": lambda: Producer(),
    "legacy producer": lambda: Producer(versioned=False),
    "capsule": lambda: dlbridge.to_dlpack(numbers()),
    "legacy capsule": lambda: dlbridge.to_dlpack(numbers(), max_version=None),
    "Tensor": lambda: dlbridge.asdlpack(numbers()),
    "Tensor of bytes": lambda: dlbridge.asdlpack(b"Hello, world"),
}
if is_there("ml_dtypes"):
    import ml_dtypes  # noqa: F401

    # Since it is imported, NumPy knows its types by name.
    SOURCES["bfloat16 ndarray"] = lambda: numbers().astype("bfloat16")
    SOURCES["int4 ndarray"] = lambda: np.ones((3, 4), "int4")
if is_there("torch"):
    SOURCES |= {
        "tensor": functools.partial(of_torch, lambda tensor: tensor),
        "bfloat16 tensor": functools.partial(of_torch, lambda tensor: tensor.bfloat16()),
        "negative tensor": functools.partial(of_torch, lambda tensor: tensor.cfloat().conj().imag),
        "conjugate tensor": functools.partial(of_torch, lambda tensor: tensor.cfloat().conj()),
        "tensor with a gradient": functools.partial(of_torch, lambda tensor: tensor.requires_grad_()),
    }
if is_there("jax"):
    SOURCES |= {
        "jax": functools.partial(of_jax, "float32"),
        "bfloat16 jax": functools.partial(of_jax, "bfloat16"),
    }
if is_there("pyarrow"):
    SOURCES["pyarrow"] = of_pyarrow

TARGETS = ["numpy", "memoryview", "dlpack", "dlbridge"] + [name for name in ("torch", "jax") if is_there(name)]
OPTIONS = {
    "": {},
    ", copied": {"copy": True},
    ", never copied": {"copy": False},
    ", shared": {"readonly": "share"},
    ", on the CPU, detached": {"device": "cpu", "detach": True},
}


def go(make, use):
    # What cannot be is refused: that is a path too.
    with contextlib.suppress(dlbridge.DLBridgeError, BufferError):
        use(make())


def bridge(target, options, source):
    dlbridge.convert(source, target, **options)


def consume(source):
    tensor = dlbridge.asdlpack(source)
    with contextlib.suppress(RuntimeError):     # NumPy's importer has no type of ml_dtypes'
        np.from_dlpack(tensor)
    tensor.__dlpack__(max_version=None, copy=True)
    for protocol in ("__array_interface__", "__array_struct__", "__cuda_array_interface__"):
        getattr(tensor, protocol, None)
    pickle.loads(pickle.dumps(tensor))
    repr(tensor)
    memoryview(tensor)      # last, for not all types have this form


USES = {
    f"to {target}{suffix}": functools.partial(bridge, target, options)
    for target in TARGETS for suffix, options in OPTIONS.items()
} | {
    "through a Tensor": consume,
    "explained": lambda source: str(dlbridge.explain(source, "memoryview")),
    "from_dlpack": dlbridge.from_dlpack,
    "to_dlpack, legacy": lambda source: dlbridge.to_dlpack(source, max_version=None),
}

PATHS = {
    f"{source} {use}": functools.partial(go, SOURCES[source], USES[use]) for source in SOURCES for use in USES
}
