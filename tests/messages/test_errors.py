"""The exception tree, and the one shape of every message: ``stage: field value: what is wrong (what to do)``."""

import re

import array_api_strict
import ml_dtypes
import numpy as np
import pytest
import torch
from support.exporters import enable_x64, numbered, versioned
from support.importers import CapsuleProducer, capsule_struct
from support.optional import of, params

import dlbridge

TREE = (
    (dlbridge.DLBridgeError, (Exception,)),
    (dlbridge.UnsupportedError, (dlbridge.DLBridgeError, TypeError)),
    (dlbridge.ConversionError, (dlbridge.DLBridgeError, BufferError)),
    (dlbridge.CopyRequiredError, (dlbridge.ConversionError, ValueError)),
    (dlbridge.DeviceError, (dlbridge.DLBridgeError, BufferError)),
    (dlbridge.MissingLibraryError, (dlbridge.DLBridgeError, ImportError)),
)
SHAPE = re.compile(r"""
    (?P<stage>[a-z_][\w\ ()]*):\        # the protocol, the target or the step
    (?P<field>'?[\w_.\ ]+'?)\           # the field by its name
    (?P<value>.+):\                     # as it was found
    (?P<wrong>[^(]+.*)\                 # what is wrong with it
    \((?P<hint>.+)\)                 # what to do
""", re.VERBOSE | re.DOTALL)


@pytest.mark.parametrize(("kind", "bases"), TREE, ids=lambda value: getattr(value, "__name__", ""))
def test_the_tree(kind, bases):
    assert kind.__bases__ == bases
    assert kind.__module__ == "dlbridge.errors"
    assert kind.__doc__


class Interface:
    def __init__(self, **changes):
        self.base = numbered((3,))
        self.__array_interface__ = dict(self.base.__array_interface__, **changes)


class NotACapsule:
    def __dlpack__(self):
        return 7


def capsule(**changes):
    made = versioned(numbered((3, 4))).__dlpack__(max_version=(1, 0))
    struct = capsule_struct(made)
    for path, value in changes.items():
        *parents, field = path.split("__")
        owner = struct
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, field, value)
    return made


def used():
    made = numbered((3,)).__dlpack__()
    np.from_dlpack(CapsuleProducer(made))
    return made


def read_only():
    array = numbered((3,))
    array.flags.writeable = False
    return array


NEVER = {"copy": False}
FAILURES = (
    ("unknown object", lambda: object(), "numpy", {}, dlbridge.UnsupportedError),
    ("unknown target", lambda: b"", "nobody", {}, dlbridge.UnsupportedError),
    ("sparse", of("torch")(lambda: torch.eye(2).to_sparse()), "numpy", {}, dlbridge.UnsupportedError),
    ("meta", of("torch")(lambda: torch.zeros(2, device="meta")), "numpy", {}, dlbridge.UnsupportedError),
    ("mask", lambda: np.ma.array([1, 2], mask=[0, 1]), "torch", {}, dlbridge.UnsupportedError),
    ("gradient", of("torch")(lambda: torch.zeros(2, requires_grad=True)), "numpy", {}, dlbridge.ConversionError),
    ("conjugate", of("torch")(lambda: torch.zeros(2, dtype=torch.complex64).conj()), "numpy", NEVER,
     dlbridge.CopyRequiredError),
    ("byte order", lambda: np.zeros(2, ">f4"), "torch", NEVER, dlbridge.CopyRequiredError),
    ("odd strides", lambda: np.zeros(4, "f4,u1")["f0"], "torch", NEVER, dlbridge.CopyRequiredError),
    ("backwards", lambda: numbered((3,))[::-1], "torch", NEVER, dlbridge.CopyRequiredError),
    ("holes", lambda: numbered((6,))[::2], "jax", NEVER, dlbridge.CopyRequiredError),
    ("repeated", lambda: np.broadcast_to(numbered((1,)), (3,)), "jax", NEVER, dlbridge.CopyRequiredError),
    ("alignment", lambda: numbered((9,), "uint8")[1:], "jax", NEVER, dlbridge.CopyRequiredError),
    ("read-only", read_only, "torch", NEVER, dlbridge.CopyRequiredError),
    ("read-only error", read_only, "torch", {"readonly": "error"}, dlbridge.ConversionError),
    ("float4 form", of("ml_dtypes")(lambda: np.zeros(4, ml_dtypes.float4_e2m1fn)), "torch", NEVER,
     dlbridge.CopyRequiredError),
    ("float4 odd", of("ml_dtypes")(lambda: np.zeros(3, ml_dtypes.float4_e2m1fn)), "torch", {},
     dlbridge.ConversionError),
    ("float6 in torch", of("ml_dtypes")(lambda: np.zeros(4, ml_dtypes.float6_e2m3fn)), "torch", {},
     dlbridge.ConversionError),
    ("wide in jax", lambda: np.zeros(4), "jax", {}, dlbridge.ConversionError),
    ("datetime", lambda: np.zeros(2, "M8[s]"), "torch", {}, dlbridge.ConversionError),
    ("long double", lambda: np.zeros(2, np.longdouble), "torch", {}, dlbridge.ConversionError),
    ("format", lambda: memoryview(np.zeros(2, "S3")), "torch", {}, dlbridge.ConversionError),
    ("typestr", lambda: Interface(typestr="<M8[s]"), "numpy", {}, dlbridge.ConversionError),
    ("shape", lambda: Interface(shape=[3]), "numpy", {}, dlbridge.ConversionError),
    ("negative extent", lambda: Interface(shape=(-3,)), "numpy", {}, dlbridge.ConversionError),
    ("strides", lambda: Interface(strides=(4, 4)), "numpy", {}, dlbridge.ConversionError),
    ("data", lambda: Interface(data=(None, False)), "numpy", {}, dlbridge.ConversionError),
    ("NULL data", lambda: Interface(data=(0, False)), "numpy", {}, dlbridge.ConversionError),
    ("offset", lambda: Interface(data=bytearray(12), offset=99), "numpy", {}, dlbridge.ConversionError),
    ("short buffer", lambda: Interface(data=bytearray(8)), "numpy", {}, dlbridge.ConversionError),
    ("interface mask", lambda: Interface(mask=numbered((3,))), "numpy", {}, dlbridge.ConversionError),
    ("no capsule", NotACapsule, "numpy", {}, dlbridge.ConversionError),
    ("used capsule", used, "numpy", {}, dlbridge.ConversionError),
    ("major version", lambda: capsule(version__major=2), "numpy", {}, dlbridge.ConversionError),
    ("ndim", lambda: capsule(dl_tensor__ndim=65), "numpy", {}, dlbridge.ConversionError),
    ("negative ndim", lambda: capsule(dl_tensor__ndim=-1), "numpy", {}, dlbridge.ConversionError),
    ("NULL", lambda: capsule(dl_tensor__data=None), "numpy", {}, dlbridge.ConversionError),
    ("unknown code", lambda: capsule(dl_tensor__dtype__code=200), "numpy", {}, dlbridge.ConversionError),
    ("lanes", lambda: capsule(dl_tensor__dtype__lanes=4), "numpy", {}, dlbridge.ConversionError),
    ("unknown device", lambda: capsule(dl_tensor__device__device_type=77), "numpy", {}, dlbridge.DeviceError),
    ("other device", lambda: capsule(dl_tensor__device__device_type=8), "numpy", {}, dlbridge.DeviceError),
    ("wanted device", lambda: b"abc", "numpy", {"device": "cuda"}, dlbridge.DeviceError),
    ("no device", lambda: b"abc", "numpy", {"device": "nowhere"}, dlbridge.DeviceError),
    ("stream", lambda: b"abc", "numpy", {"stream": 0}, dlbridge.DeviceError),
    ("copy", lambda: b"abc", "numpy", {"copy": 1}, TypeError),
    ("readonly", lambda: b"abc", "numpy", {"readonly": "yes"}, ValueError),
    ("memory", lambda: np.lib.stride_tricks.as_strided(numbered((1,)), (1 << 40,), (0,)), "jax", {}, MemoryError),
    ("strict device", lambda: capsule(dl_tensor__device__device_type=8), array_api_strict, {}, dlbridge.DeviceError),
)


@pytest.mark.parametrize(("make", "to", "keywords", "kind"), params(row[1:] for row in FAILURES),
                         ids=[row[0] for row in FAILURES])
def test_every_message_has_one_shape(make, to, keywords, kind):
    src = make()
    with pytest.raises(kind) as caught:
        dlbridge.convert(src, to, **keywords)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert SHAPE.fullmatch(text), text
    assert "\n" not in text


def test_a_producers_own_error_passes_through_untouched():
    class Failing:
        calls = 0

        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            type(self).calls += 1
            raise error

        def __dlpack_device__(self):
            return (1, 0)
    for kind in (TypeError, ValueError, RuntimeError, AttributeError, BufferError, KeyboardInterrupt):
        error, Failing.calls = kind("mine"), 0
        with pytest.raises(kind) as caught:
            dlbridge.convert(Failing(), "numpy")
        assert caught.value is error
        assert Failing.calls == 1


def test_a_targets_own_error_is_the_cause():
    class Refusing:
        @staticmethod
        def from_dlpack(x):
            raise RuntimeError("never")
    with pytest.raises(dlbridge.ConversionError, match="never") as caught:
        dlbridge.convert(numbered((3,)), Refusing())
    assert type(caught.value.__cause__) is RuntimeError


@pytest.mark.needs("torch")
def test_copy_required_is_what_every_library_raises():
    for kind in (BufferError, ValueError, dlbridge.DLBridgeError):
        with pytest.raises(kind):
            dlbridge.convert(numbered((3,))[::-1], torch, copy=False)


@pytest.mark.needs("torch", "jax")
def test_an_error_leaves_the_source_as_it_was():
    source = bytearray(8)
    for to, keywords in (("torch", {"device": "cuda"}), ("jax", {"copy": False}), ("nobody", {})):
        with pytest.raises(dlbridge.DLBridgeError):
            dlbridge.convert(memoryview(source)[1:], to, **keywords)
        source.extend(b"x")     # a BufferError, were the buffer still exported
    made = numbered((3,)).__dlpack__()
    with enable_x64(False), pytest.raises(dlbridge.DeviceError):
        dlbridge.convert(made, "jax", device="cuda")
