"""copy, readonly, detach, device, stream: what each value does, told by addresses."""

import contextlib
import mmap
import resource
import sys
import tempfile
import types

import array_api_strict
import jax
import numpy as np
import pyarrow
import pytest
import torch
from support.children import in_child
from support.exporters import buffer_address, enable_x64, numbered, versioned
from support.importers import IMPORTERS, capsule_struct, deliver
from support.optional import marked, of, params, product

import dlbridge
from dlbridge.testing.abi import READ_ONLY

pytestmark = pytest.mark.quick

TOLD = [importer for importer in IMPORTERS if importer.told]
UNTOLD = [importer for importer in IMPORTERS if not importer.told]
each_importer = pytest.mark.parametrize("importer", params(IMPORTERS), ids=lambda importer: importer.name)
each_untold = pytest.mark.parametrize("importer", params(UNTOLD), ids=lambda importer: importer.name)


# ---- copy ------------------------------------------------------------------------------------------------------------

@each_importer
def test_copy_by_address(importer):
    source = numbered((5, 7))
    address = source.ctypes.data
    assert importer.look(deliver(importer, memoryview(source), readonly="share")).address == address
    assert importer.look(deliver(importer, memoryview(source), copy=False, readonly="share")).address == address
    copied = importer.look(deliver(importer, memoryview(source), copy=True))
    assert copied.address != address
    assert copied.address % 64 == 0
    assert copied.writable or importer.library == "jax"


# A capsule is consumed, not copied.
@pytest.mark.parametrize("importer", params(each for each in IMPORTERS if not each.name.startswith("dlpack")),
                         ids=lambda importer: importer.name)
def test_copy_true_of_the_targets_own_array(importer):
    source = deliver(importer, numbered((5, 7)))
    address = importer.look(source).address
    assert deliver(importer, source) is source
    assert importer.look(deliver(importer, source, copy=True)).address != address


@each_importer
def test_a_later_write_does_not_reach_a_copy(importer):
    source = numbered((64,))
    before = source.tobytes()
    result = deliver(importer, source, copy=True)
    source[:] = 0
    assert importer.look(result).bits == before


# ---- readonly --------------------------------------------------------------------------------------------------------

def read_only_array():
    array = numbered((24,), "uint8")
    array.base.flags.writeable = array.flags.writeable = False
    return array, array.ctypes.data


def from_bytes():
    source = bytes(range(1, 25))
    return source, buffer_address(source)


@of("jax")
def from_jax():
    source = jax.numpy.arange(1, 25, dtype="uint8")
    return source, source.unsafe_buffer_pointer()


@of("pyarrow")
def from_arrow():
    source = pyarrow.array(range(1, 25), pyarrow.uint8())
    return source, source.buffers()[1].address


def from_capsule():
    array, address = read_only_array()
    return versioned(array).__dlpack__(max_version=(1, 0)), address


def from_mmap():
    with tempfile.TemporaryFile() as file:
        file.write(bytes(range(1, 25)))
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return mapped, buffer_address(mapped)


READ_ONLY_SOURCES = (read_only_array, from_bytes, from_jax, from_arrow, from_capsule, from_mmap)
each_read_only_source = pytest.mark.parametrize("make", params(READ_ONLY_SOURCES), ids=lambda make: make.__name__)


@each_importer
@each_read_only_source
def test_read_only_memory_is_never_writable_unasked(make, importer):
    source, address = make()
    view = importer.look(deliver(importer, source))
    if view.writable:
        assert view.address != address
    elif make is not from_capsule or importer.library != "jax":      # whose flag says nothing of other code
        assert view.address == address or address % importer.alignment


@each_untold
@each_read_only_source
def test_read_only_memory_that_must_not_be_copied_is_refused(make, importer):
    source, _ = make()
    with pytest.raises(dlbridge.CopyRequiredError, match='readonly="share"'):
        deliver(importer, source, copy=False)


@each_untold
@each_read_only_source
def test_readonly_error(make, importer):
    source, _ = make()
    with pytest.raises(dlbridge.ConversionError, match='"share"') as caught:
        deliver(importer, source, readonly="error")
    assert not isinstance(caught.value, dlbridge.CopyRequiredError)


@each_untold
@each_read_only_source
def test_readonly_share(make, importer):
    source, address = make()
    assert importer.look(deliver(importer, source, readonly="share")).address == address


def test_a_legacy_export_of_a_tensor_follows_its_policy():
    data = b"abc"
    shared = dlbridge.asdlpack(data, readonly="share").__dlpack__()
    assert capsule_struct(shared).dl_tensor.data == buffer_address(data)
    assert capsule_struct(dlbridge.asdlpack(data).__dlpack__()).dl_tensor.data != buffer_address(data)
    with pytest.raises(dlbridge.ConversionError, match="max_version"):
        dlbridge.asdlpack(data, readonly="error").__dlpack__()
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.asdlpack(data).__dlpack__(copy=False)
    versioned = capsule_struct(dlbridge.asdlpack(data, readonly="error").__dlpack__(max_version=(1, 0)))
    assert (versioned.flags, versioned.dl_tensor.data) == (READ_ONLY, buffer_address(data))


@pytest.mark.needs("torch")
def test_zero_strides_alone_do_not_make_memory_read_only():
    source = np.lib.stride_tricks.as_strided(numbered((4,)), (3, 4), (0, 4))
    assert dlbridge.convert(source, "torch", copy=False).data_ptr() == source.ctypes.data


@pytest.mark.needs("torch")
def test_a_read_only_broadcast_copies_its_span_alone():
    row = numbered((1000,))
    source = np.broadcast_to(row, (1 << 20, 1000))       # 4 GB of elements over 4000 bytes
    tensor = dlbridge.convert(source, "torch")
    assert tensor.stride() == (0, 1)
    assert tensor.untyped_storage().nbytes() < 1 << 20
    assert tensor.data_ptr() != row.ctypes.data
    assert tensor[12345].numpy().tobytes() == row.tobytes()


def test_a_read_only_broadcast_backwards_copies_its_span_alone():
    row = numbered((10,))
    source = np.broadcast_to(row[::-1], (1 << 30, 10))
    capsule = dlbridge.to_dlpack(source)
    array = dlbridge.convert(capsule, "numpy")
    assert array.strides == source.strides
    assert array[77].tobytes() == row[::-1].tobytes()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("windows", [
    lambda row: np.lib.stride_tricks.sliding_window_view(row, 10),
    lambda row: np.lib.stride_tricks.sliding_window_view(row, 3)[::2],
    lambda row: np.lib.stride_tricks.sliding_window_view(row, 10)[::-1, ::-1],
    lambda row: np.lib.stride_tricks.sliding_window_view(row, 10)[:, None].transpose(2, 0, 1),
    lambda row: np.lib.stride_tricks.sliding_window_view(row.reshape(10, 100), (3, 5)),
    lambda row: np.broadcast_to(np.lib.stride_tricks.sliding_window_view(row, 10), (3, 991, 10)),
    lambda row: np.lib.stride_tricks.as_strided(row.view("u1")[1:], (300, 5), (9, 3)),
], ids=["windows", "every second", "backwards", "transposed", "two axes", "broadcast", "interlaced"])
@pytest.mark.parametrize("deliver", [
    lambda source: dlbridge.convert(source, "torch"),
    lambda source: dlbridge.convert(dlbridge.asdlpack(source), "torch"),
    lambda source: dlbridge.convert_tree([source], "torch")[0],
    lambda source: dlbridge.convert(dlbridge.to_dlpack(source), "torch"),
    lambda source: dlbridge.accepts("torch")(lambda tensor: tensor)(source),
], ids=["convert", "Tensor", "tree", "capsule", "accepts"])
def test_a_copy_of_read_only_windows_has_no_overlap(windows, deliver):
    source = windows(numbered((1000,)))
    source.flags.writeable = False
    tensor = deliver(source)
    assert np.array_equal(tensor, source)
    values = np.random.default_rng(1).random(source.shape).astype(source.dtype)
    tensor.copy_(torch.from_numpy(values))
    assert np.array_equal(tensor, values)


@pytest.mark.needs("torch")
def test_a_copy_that_cannot_fit_is_refused_before_memory_is_taken():
    """A read-only map of a file that is all hole, larger than any memory."""
    nbytes = 1 << 40
    with tempfile.TemporaryFile() as file:
        file.truncate(nbytes)
        mapped = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MemoryError, match='readonly="share"'):
        dlbridge.convert(mapped, "torch")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18      # kilobytes
    assert dlbridge.convert(mapped, "torch", readonly="share").numel() == nbytes
    assert dlbridge.convert(mapped, "numpy").size == nbytes


# ---- detach and lazy bits --------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
@each_importer
@pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter, "subclass"])
def test_gradients(kind, importer):
    tensor = torch.from_numpy(numbered((3, 4)))
    if kind == "subclass":
        from support.exporters import TensorSubclass
        tensor = tensor.as_subclass(TensorSubclass).requires_grad_()
    else:
        tensor = torch.nn.Parameter(tensor) if kind is torch.nn.Parameter else tensor.requires_grad_()
    if importer.name == "torch":
        assert deliver(importer, tensor) is tensor
        return
    with pytest.raises(dlbridge.ConversionError, match="detach=True"):
        deliver(importer, tensor)
    view = importer.look(deliver(importer, tensor, detach=True, readonly="share"))
    assert view.address == tensor.data_ptr()


LAZY = {
    "conj": lambda t: t.conj(),
    "neg": lambda t: t.conj().imag,
    "conj of neg": lambda t: torch._neg_view(t).conj(),
    "neg of complex": lambda t: torch._neg_view(t),
    "physical": lambda t: t.conj().resolve_conj(),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("change", LAZY.values(), ids=LAZY)
@each_importer
def test_lazy_bits_are_resolved_or_refused(change, importer):
    base = torch.tensor([[1 + 2j, 3 - 4j], [0 - 0j, -5 + 6j]], dtype=torch.complex64)
    lazy = change(base)
    if importer.name == "torch":
        assert deliver(importer, lazy) is lazy
        return
    expected = lazy.resolve_conj().resolve_neg().contiguous().numpy().tobytes()
    assert importer.look(deliver(importer, lazy)).bits == expected
    if lazy.is_conj() or lazy.is_neg():
        with pytest.raises(dlbridge.CopyRequiredError, match="resolve_conj"):
            deliver(importer, lazy, copy=False)
    # The source keeps its bits and its memory.
    assert base.tolist() == [[1 + 2j, 3 - 4j], [0 - 0j, -5 + 6j]]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_negation_of_each_floating_type(dtype):
    lazy = torch._neg_view(torch.tensor([0.0, -1.5, 2.0, float("inf")], dtype=dtype))
    result = torch.from_dlpack(dlbridge.asdlpack(lazy))
    assert not result.is_neg()
    assert result.tolist() == [-0.0, 1.5, -2.0, -float("inf")]
    assert torch.signbit(result).tolist() == [True, False, True, True]


# ---- device and stream -----------------------------------------------------------------------------------------------

CPUS = [(device,) for device in (
    "cpu", "cpu:0", "CPU:0", "PYTHON", (1, 0), (1, None),
    "/job:localhost/replica:0/task:0/device:CPU:0", "/device:CPU:0", "/CPU:0")]      # of tensorflow.Tensor.device
CPUS += [
    (torch.device("cpu"), "torch"), (jax.devices("cpu")[0], "jax"),
    (jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0]), "jax"),
    (array_api_strict.asarray([1]).device, "array_api_strict")]


@pytest.mark.parametrize(("importer", "device"), [
    marked((importer, device), *needs) for importer, (device, *needs) in product(IMPORTERS, CPUS)])
def test_the_cpu_by_every_name(importer, device):
    source = numbered((3,))
    assert importer.look(deliver(importer, source, device=device, readonly="share")).address == source.ctypes.data


@pytest.mark.needs("torch")
@pytest.mark.parametrize("device", [
    "cuda", "cuda:1", (2, 0), (10, 0), torch.device("cuda:0"), "rocm", "mps",
    "/job:localhost/replica:0/task:0/device:GPU:1"])
def test_another_device_is_refused(device):
    for to in ("torch", "numpy", "dlbridge"):
        with pytest.raises(dlbridge.DeviceError, match=r"\(.+\)$"):
            dlbridge.convert(numbered((3,)), to, device=device)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("device", [
    "tpu9", "cuda:", "cuda:x", ":0", "", (99, 0), (0, 0), (5, 0), (1,), 3, object(), b"cpu", "x/cpu", "/",
    numbered((3,))])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(dlbridge.DeviceError, match="no device that dlbridge knows"):
        dlbridge.convert(numbered((3,)), "torch", device=device)


@pytest.mark.needs("array_api_strict")
@pytest.mark.parametrize("name", ["CPU_DEVICE", "device1", "device2"])
def test_the_devices_of_the_strict_namespace(name):
    source, device = numbered((3,)), array_api_strict.Device(name)
    like = array_api_strict.asarray([1], device=device)
    for made in (
        dlbridge.convert(source, array_api_strict, device=device),
        dlbridge.convert(source, like),
        dlbridge.convert(like, array_api_strict),
        dlbridge.accepts("numpy", returns="like")(lambda x: source)(like),
    ):
        assert made.device == device
    assert np.from_dlpack(dlbridge.convert(source, like)).tolist() == source.tolist()
    assert dlbridge.convert(like, "numpy", copy=False).tolist() == [1]
    shared = name == "CPU_DEVICE"
    assert dlbridge.explain(source, array_api_strict, device=device).action == ("share" if shared else "copy")
    with contextlib.nullcontext() if shared else pytest.raises(dlbridge.CopyRequiredError, match="not the first"):
        dlbridge.convert(source, like, copy=False)


@pytest.mark.needs("array_api_strict")
def test_a_device_of_the_strict_namespace_without_a_type():
    with pytest.raises(dlbridge.DeviceError, match="no_float64"):
        dlbridge.convert(np.ones(3), array_api_strict, device=array_api_strict.Device("no_float64"))


@pytest.mark.parametrize(("hip", "name"), [(False, "cuda:1"), (True, "rocm:1")])
def test_cupys_device_by_a_stand_in(hip, name, monkeypatch):
    """CuPy is nowhere where there is no GPU, so its class is here by its name and its attribute."""
    runtime = types.SimpleNamespace(is_hip=hip)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))
    device = type("Device", (), {"__module__": "cupy.cuda.device", "id": 1})()
    with pytest.raises(dlbridge.DeviceError, match=f"is not {name}"):
        dlbridge.convert(numbered((3,)), "numpy", device=device)


@pytest.mark.parametrize("make", [
    marked(lambda: torch.ones(3), "torch"), marked(lambda: torch.ones(3, device="meta"), "torch"),
    marked(lambda: torch.eye(3).to_sparse(), "torch"), marked(lambda: torch.ones(3, requires_grad=True), "torch"),
    lambda: dlbridge.asdlpack(b"abc"),
], ids=["tensor", "meta", "sparse", "gradient", "Tensor"])
def test_what_is_the_targets_own_is_returned_whatever_the_stream(make):
    source = make()
    assert dlbridge.convert(source, type(source), stream=1) is source


@pytest.mark.parametrize("stream", [0, -2])
def test_forbidden_streams(stream):
    with pytest.raises(dlbridge.DeviceError, match="forbidden"):
        dlbridge.convert(b"abc", "numpy", stream=stream)


@pytest.mark.parametrize("stream", ["1", True, 1.0, object()])
def test_what_is_no_stream(stream):
    with pytest.raises(TypeError, match="convert: stream"):
        dlbridge.convert(b"abc", "numpy", stream=stream)


# ---- JAX without 64-bit types ----------------------------------------------------------------------------------------

@pytest.mark.needs("jax")
@pytest.mark.parametrize(("name", "value"), [
    ("int64", 2**40 + 1), ("uint64", 2**63 + 1), ("float64", 1e300), ("complex128", 1e300 + 1j)])
def test_jax_never_narrows(name, value):
    source = numbered((8,), name)
    source[:] = value
    with enable_x64(False), pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert(source, "jax")
    assert "jax_enable_x64" in str(caught.value)
    assert ("narrow=True" in str(caught.value)) is (name != "uint64")       # narrow=True does not narrow that
    with enable_x64(True):
        result = dlbridge.convert(source, "jax")
        assert result.dtype == name
        assert np.asarray(result).tolist() == source.tolist()


# ---- masks -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("importer", params(IMPORTERS), ids=lambda importer: importer.name)
def test_masks_are_never_dropped(importer):
    masked = np.ma.array(numbered((4,)), mask=[0, 1, 0, 0])
    with pytest.raises(dlbridge.UnsupportedError, match="filled"):
        deliver(importer, masked)
    unmasked = np.ma.array(numbered((4,)))
    assert importer.look(deliver(importer, unmasked, readonly="share")).address == unmasked.ctypes.data


# ---- bad values ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("keywords", "error", "text"), [
    ({"copy": 1}, TypeError, "convert: copy 1"),
    ({"copy": "no"}, TypeError, "convert: copy 'no'"),
    ({"readonly": "warn"}, ValueError, "convert: readonly 'warn'"),
    ({"readonly": None}, ValueError, "convert: readonly None"),
    ({"readonly": True}, ValueError, "convert: readonly True"),
    ({"shape": 3}, TypeError, "shape"), ({"out": 3}, TypeError, "out"),
    ({"device": "cuda:99999999999"}, dlbridge.DeviceError, "device 'cuda:99999999999'"),
    ({"device": (1, 2**40)}, dlbridge.DeviceError, "device"),
    ({"device": (1, -3)}, dlbridge.DeviceError, "device"),
    ({"stream": 2**70}, dlbridge.DeviceError, "stream"),
])
def test_bad_keywords(keywords, error, text):
    with pytest.raises(error, match=text):
        dlbridge.convert(b"abc", "numpy", **keywords)
    with pytest.raises(error, match=text):
        dlbridge.asdlpack(b"abc", **keywords)


@pytest.mark.parametrize("module", [None, 3])
def test_a_type_may_say_anything_of_its_module(module):
    kind = type("Odd", (), {"__module__": module})
    with pytest.raises(dlbridge.UnsupportedError, match="Odd"):
        dlbridge.convert(kind(), "numpy")
    with pytest.raises(dlbridge.UnsupportedError, match="Odd"):
        dlbridge.convert(b"abc", kind())
    with pytest.raises(dlbridge.UnsupportedError, match="Odd"):
        dlbridge.convert(b"abc", kind)


@pytest.mark.needs("torch", "jax", "ml_dtypes", "pyarrow")
@in_child
def test_importing_dlbridge_imports_no_framework():
    import sys

    import dlbridge  # noqa: F401

    assert {"torch", "jax", "cupy", "pyarrow", "ml_dtypes"} & set(sys.modules) == set()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("target", params(["numpy", "dlbridge", "jax"]))
def test_negative_bit_where_torch_has_no_exchange_api(monkeypatch, target):
    """As before torch 2.10: the tensor goes by its __dlpack__, which forgets the bit."""
    from dlbridge._core.cache import clear_cache
    from dlbridge.libraries.library import Facts

    negated = torch.view_as_complex(torch.tensor([[1.0, 2.0], [3.0, -4.0]])).conj().imag
    assert negated.is_neg()
    monkeypatch.setattr(Facts, "exchange", None, raising=False)
    clear_cache()
    try:
        plan = dlbridge.explain(negated, target)
        assert (plan.protocol, plan.action) == ("dlpack", "copy")
        assert np.asarray(dlbridge.convert(negated, target)).tolist() == [-2.0, 4.0]
        with pytest.raises(dlbridge.CopyRequiredError, match="lazy bits"):
            dlbridge.convert(negated, target, copy=False)
    finally:
        monkeypatch.undo()
        clear_cache()


def test_the_first_wrong_keyword_is_the_same_in_any_order():
    wrong = {"device": "nowhere", "readonly": "perhaps"}
    for keywords in wrong, dict(reversed(wrong.items())):
        with pytest.raises(dlbridge.DeviceError, match="nowhere"):
            dlbridge.convert(np.zeros(3), "numpy", **keywords)
    with pytest.raises(TypeError, match="unknown"):
        dlbridge.convert(np.zeros(3), "numpy", readonly="perhaps", unknown=1)
