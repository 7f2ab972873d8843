"""Strides and offsets of every kind: shared where the target supports them, else copied, or refused with the reason."""

import ctypes
import itertools
import random
import subprocess
import sys

import jax
import numpy as np
import pytest
import torch
from support.exporters import ArrayInterface, ArrayStruct, aligned, numbered, versioned
from support.importers import IMPORTERS, CapsuleProducer, capsule_struct, deliver, look_capsule
from support.lacking import LACKS, dtypes_of, lacks_of
from support.optional import marked, needed_by, of, params, product
from support.producers import LegacyProducer, VersionedProducer
from support.quirk_rows import HEAVY, OF_ALL

import dlbridge
from dlbridge.libraries.library import library_named

pytestmark = pytest.mark.quick

BY_NAME = {importer.name: importer for importer in IMPORTERS}


def odd_strides(shape=(4,)):
    """Float32 fields of 6-byte records: strides that are no multiple of the item size."""
    return numbered((*shape, 6), "uint8").reshape(-1).view([("value", "f4"), ("rest", "u1", 2)])["value"].reshape(shape)


def with_axis_of(extent):
    """A length-1 axis with a stride that means nothing."""
    base = numbered((3, 4))
    return np.lib.stride_tricks.as_strided(base, (extent, 3, 4), (-999, 16, 4))


# name, the array, what a target must hold to share it
LAYOUTS = (
    ("contiguous", lambda: numbered((3, 4)), None),
    ("Fortran", lambda: numbered((3, 4)).T, "ANY_ORDER"),
    ("three axes permuted", lambda: numbered((2, 3, 4)).transpose(1, 2, 0), "ANY_ORDER"),
    ("0-d", lambda: numbered(()), None),
    ("one element", lambda: numbered((1, 1)), None),
    ("length-1 axis", lambda: with_axis_of(1), None),
    ("length-1 axis reversed", lambda: numbered((1, 4))[::-1], None),
    ("length-1 axis of a slice", lambda: numbered((6, 4))[:1], None),
    ("holes", lambda: numbered((4, 6))[:, :3], "ANY_STRIDES"),
    ("steps", lambda: numbered((4, 6))[::2, ::3], "ANY_STRIDES"),
    ("diagonal", lambda: np.lib.stride_tricks.as_strided(numbered((4, 4)), (4,), (20,)), "ANY_STRIDES"),
    ("overlapping", lambda: np.lib.stride_tricks.as_strided(numbered((8,)), (5, 4), (4, 4)), "ANY_STRIDES"),
    ("backwards", lambda: numbered((3, 4))[::-1], "NEGATIVE_STRIDES"),
    ("both backwards", lambda: numbered((3, 4))[::-1, ::-1], "NEGATIVE_STRIDES"),
    ("broadcast", lambda: np.lib.stride_tricks.as_strided(numbered((4,)), (3, 4), (0, 4)), "ZERO_STRIDES"),
    ("odd", odd_strides, "ODD_STRIDES"),
    ("odd backwards", lambda: odd_strides()[::-1], "ODD_STRIDES"),
    ("odd of two axes", lambda: odd_strides((2, 3)), "ODD_STRIDES"),
)
JAX_VERSION = getattr(jax, "__version_info__", ())
HOLDS = {
    "numpy": {"ANY_ORDER", "ANY_STRIDES", "NEGATIVE_STRIDES", "ZERO_STRIDES", "ODD_STRIDES"},
    "torch": {"ANY_ORDER", "ANY_STRIDES", "ZERO_STRIDES"},
    "jax": {"ANY_ORDER"} if JAX_VERSION >= (0, 8) else set(),
    "memoryview": {"ANY_ORDER", "ANY_STRIDES", "NEGATIVE_STRIDES", "ZERO_STRIDES"},
    "dlpack": {"ANY_ORDER", "ANY_STRIDES", "NEGATIVE_STRIDES", "ZERO_STRIDES"},
    "dlpack versioned": {"ANY_ORDER", "ANY_STRIDES", "NEGATIVE_STRIDES", "ZERO_STRIDES"},
    "dlbridge": {"ANY_ORDER", "ANY_STRIDES", "NEGATIVE_STRIDES", "ZERO_STRIDES"},
    "array_api_strict": {"ANY_ORDER", "ANY_STRIDES", "NEGATIVE_STRIDES", "ZERO_STRIDES"},
}
REASONS = {
    "ANY_ORDER": "not in C order", "ANY_STRIDES": "leave holes", "NEGATIVE_STRIDES": "go backwards",
    "ZERO_STRIDES": "repeat elements", "ODD_STRIDES": "no multiples of the item size",
}


OF_THEIR_OWN = [BY_NAME[name] for name in ("numpy", "torch", "jax", "jax, shared")]
ALIKE = [importer for importer in IMPORTERS if importer not in OF_THEIR_OWN]        # they hold the same layouts


@pytest.mark.parametrize(("layout", "importer"), [
    marked((layout, importer), id=f"{layout[0]}-{importer.name}") for layout, importer in (
        *itertools.product(LAYOUTS, OF_THEIR_OWN), *product(LAYOUTS, ALIKE))])
def test_every_layout(layout, importer):
    _, make, needs = layout
    source = memoryview(make()) if importer.name == "numpy" else make()
    array = np.asarray(source)
    shared = needs is None or needs in HOLDS[importer.library]
    if shared and importer.alignment > 1 and array.ctypes.data % importer.alignment:
        pytest.fail("the test's own array is not aligned")
    view = importer.look(deliver(importer, source, readonly="share"))
    assert (view.bits, view.shape) == (array.tobytes(), array.shape)
    assert (view.address == array.ctypes.data) is shared
    if shared and view.strides is not None:
        for mine, theirs, extent in zip(array.strides, view.strides, array.shape, strict=True):
            assert extent == 1 or mine == theirs
    if not shared:
        with pytest.raises(dlbridge.CopyRequiredError, match=REASONS[needs]) as caught:
            deliver(importer, source, copy=False, readonly="share")
        assert "copy=None" in str(caught.value)


# One wrapper of an ndarray for each protocol. NumPy exports odd strides by its own interfaces alone.
PROTOCOLS = {
    "exchange_api": dlbridge.asdlpack, "dlpack": lambda array: VersionedProducer(versioned(array)),
    "dlpack (legacy)": LegacyProducer, "array_struct": ArrayStruct, "array_interface": ArrayInterface,
    "buffer": memoryview,
}


@pytest.mark.needs("torch", "jax", "array_api_strict")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_layout_by_every_protocol(protocol):
    """Into each kind of target, shared where it can be, and copied."""
    for name, make, needs in (*LAYOUTS, ("misaligned", lambda: numbered((13,))[1:], "alignment")):
        array = make()
        if needs == "ODD_STRIDES" and protocol.startswith("dlpack"):
            continue
        source = PROTOCOLS[protocol](array)
        for target in ("numpy", "torch", "jax", "array_api_strict", "dlpack versioned"):
            importer = BY_NAME[target]
            can_share = needs is None or needs in HOLDS[target] or (needs == "alignment" and importer.alignment == 1)
            for keywords, shared in (({"readonly": "share"}, can_share), ({"copy": True}, False)):
                view = importer.look(deliver(importer, source, **keywords))
                assert (view.bits, view.shape) == (array.tobytes(), array.shape), (name, target, keywords)
                if protocol != "exchange_api" or needs != "ODD_STRIDES":       # which a Tensor has copied already
                    assert (view.address == array.ctypes.data) is shared, (name, target, keywords)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("importer", params(IMPORTERS), ids=lambda importer: importer.name)
def test_empty(importer):
    for shape in ((0,), (3, 0), (0, 3), (2, 0, 4), (0, 0)):
        for source in (np.zeros(shape, "float32"), np.zeros((*shape, 2), "float32")[..., 0], torch.zeros(shape)):
            view = importer.look(deliver(importer, source))
            assert (view.shape, view.bits, view.dtype) == (shape, b"", "float32")


@pytest.mark.parametrize("importer", params(IMPORTERS), ids=lambda importer: importer.name)
@pytest.mark.parametrize("give", [lambda array: array.__dlpack__(), lambda array: versioned(array).__dlpack__(
    max_version=(1, 0))], ids=["legacy", "versioned"])
def test_byte_offset(give, importer):
    """A producer may keep data at the start of its memory and count the offset apart."""
    source = numbered((3, 16), "float32")
    capsule = give(source)
    tensor = capsule_struct(capsule).dl_tensor
    tensor.byte_offset = 64
    tensor.shape[0] = 2
    view = importer.look(deliver(importer, CapsuleProducer(capsule), readonly="share"))
    assert view.bits == source[1:].tobytes()
    assert view.address == source.ctypes.data + 64


@pytest.mark.parametrize("importer", params(IMPORTERS), ids=lambda importer: importer.name)
def test_null_strides_are_compact(importer):
    source = numbered((3, 4), "float32")
    capsule = source.__dlpack__()
    tensor = capsule_struct(capsule).dl_tensor
    tensor.strides = ctypes.POINTER(ctypes.c_int64)()
    assert importer.look(deliver(importer, CapsuleProducer(capsule))).bits == source.tobytes()


@pytest.mark.needs("jax")
@pytest.mark.parametrize("offset", [4, 8, 16, 32])
def test_jax_shares_only_aligned_memory(offset):
    source = numbered((64,), "uint8")[offset:].view("float32")
    with pytest.raises(dlbridge.CopyRequiredError, match="not aligned to 64 bytes"):
        dlbridge.convert(source, "jax", copy=False, readonly="share")
    result = dlbridge.convert(source, "jax", readonly="share")
    assert np.asarray(result).tobytes() == source.tobytes()
    source[:] = 0
    assert np.asarray(result).any()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("offset", [1, 4, 8, 24])
def test_torch_shares_only_aligned_complex128(offset):
    """torch's kernels read complex128 by aligned loads: torch.from_numpy(source) + 1 ends the process."""
    source = aligned((80,), "uint8")[offset:offset + 48].view("complex128")
    source[:] = [1, 2j, 3]
    with pytest.raises(dlbridge.CopyRequiredError, match="not aligned to 16 bytes"):
        dlbridge.convert(source, "torch", copy=False)
    assert dlbridge.explain(source, "torch").action == "copy"
    result = dlbridge.convert(source, "torch")
    assert (result + 1).tolist() == [2, 1 + 2j, 4]
    assert result.data_ptr() % 16 == 0
    assert np.shares_memory(dlbridge.convert(source, "numpy"), source)
    assert dlbridge.convert(source[:0], "torch", copy=False).numel() == 0


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("dtype", "offset"), [("complex128", 16), ("complex64", 4), ("float64", 4), ("int16", 1)])
def test_torch_shares_what_its_kernels_read(dtype, offset):
    source = aligned((80,), "uint8")[offset:offset + 48].view(dtype)
    assert dlbridge.convert(source, "torch", copy=False).data_ptr() == source.ctypes.data


@pytest.mark.parametrize("importer", params(IMPORTERS), ids=lambda importer: importer.name)
def test_sixty_four_axes(importer):
    source = numbered((1,) * 62 + (2, 3))
    view = importer.look(deliver(importer, source))
    assert (view.shape, view.bits) == (source.shape, source.tobytes())


# ---- what libraries lack ---------------------------------------------------------------------------------------------

def test_every_lack_is_there_once_and_said_in_words():
    assert all(row.fact.text for row in LACKS)
    assert len({row[:2] for row in LACKS}) == len(LACKS)


@of("ml_dtypes")
def padded():
    import ml_dtypes
    return np.zeros((2, 4), ml_dtypes.float4_e2m1fn)


@of("ml_dtypes")
def packed():
    return dlbridge.to_dlpack(padded())


def read_only():
    array = numbered((3, 4))
    array.flags.writeable = False
    return array


def elsewhere(shape=(3, 4)):
    """Device type 8 on the CPU machine: torch takes any memory under that label and exports it again."""
    capsule = numbered(shape).__dlpack__()
    capsule_struct(capsule).dl_tensor.device.device_type = 8
    return capsule


EXERCISES = {
    "NEGATIVE_STRIDES": lambda: numbered((3, 4))[::-1],
    "ZERO_STRIDES": lambda: np.lib.stride_tricks.as_strided(numbered((4,)), (3, 4), (0, 4)),
    "ANY_ORDER": lambda: numbered((3, 4)).T,
    "ANY_STRIDES": lambda: numbered((4, 6))[:, :3],
    "ODD_STRIDES": odd_strides,
    "SWAPPED_BYTES": lambda: numbered((3, 4), ">f4"),
    "READ_ONLY": read_only,
    "WRITABLE": lambda: numbered((3, 4)),
    "PACKED": packed,
    "PADDED": padded,
    "OTHER_DEVICES": elsewhere,
    "alignment": lambda: numbered((65,), "uint8")[1:],
    "fewest_axes": lambda: numbered(()),
    "most_axes": lambda: numbered((1,) * 63 + (2,)),
}


class Unknown:
    """A namespace that the table does not know."""

    from_dlpack = staticmethod(np.from_dlpack)


def target_of(library):
    if library == "*":
        return Unknown()
    return BY_NAME["array_api_strict"].to if library == "array_api_strict" else library


# These two do not end in an error: a versioned capsule has no copy=False, and torch has packed float4 as pairs. What
# needs a driver is in tests/fake_driver/test_device_facts.py, and CuPy's rows, which need a GPU, are in
# tests/gpu/test_pairs.py.
# Strides of axes of one element are replaced, without a copy.
ELSEWHERE = {"HOST", "PINNED", "UNIFIED", "LENGTH_1_STRIDES"}
REFUSING = [quirk for quirk in LACKS
            if not quirk.fact.below and quirk.library not in OF_ALL | HEAVY | {"dlpack_versioned", "cupy", "numba"}
            and quirk.lacks not in ELSEWHERE and (quirk.library, quirk.lacks) != ("torch", "PACKED")]


@pytest.mark.parametrize("quirk", [
    marked(quirk, *needed_by((quirk.library, EXERCISES[quirk.lacks])), id=f"{quirk.library}-{quirk.lacks}")
    for quirk in REFUSING])
def test_every_quirk_stops_a_conversion(quirk):
    expected = dlbridge.DeviceError if quirk.lacks == "OTHER_DEVICES" else dlbridge.ConversionError
    with pytest.raises(expected, match=r"\(.+\)$"):
        dlbridge.convert(EXERCISES[quirk.lacks](), target_of(quirk.library), copy=False)


@pytest.mark.parametrize("quirk", [row for row in LACKS if row.library == "dlpack_versioned"],
                         ids=lambda quirk: quirk.lacks)
def test_every_quirk_of_a_versioned_capsule_makes_a_copy(quirk):
    array = EXERCISES[quirk.lacks]()
    capsule = dlbridge.to_dlpack(array, max_version=(1, 3))
    view = look_capsule(capsule)
    assert view.address != array.ctypes.data
    assert view.bits == array.astype(array.dtype.newbyteorder("=")).tobytes()


@pytest.mark.needs("torch", "ml_dtypes")
def test_torch_has_packed_float4_as_pairs():
    tensor = dlbridge.convert(packed(), "torch", copy=False)
    assert (tensor.dtype, tensor.shape) == (torch.float4_e2m1fn_x2, (2, 2))


def test_a_lack_ends_with_its_version():
    library = library_named("onnxruntime")
    before, after = lacks_of(library, "1.31.1"), lacks_of(library, "1.32.0")
    assert {row.lacks for row in before} - {row.lacks for row in after} == {"BOOLS", "PACKED"}


def test_a_library_has_later_types_since_their_version():
    library = library_named("onnxruntime")
    assert "float8_e5m2" not in dtypes_of(library, "1.31.1")
    assert dtypes_of(library, "1.31.1") | {"float8_e5m2", "int4"} < dtypes_of(library, "1.32.0")


@pytest.mark.needs("torch")
def test_torch_takes_back_what_it_exported_elsewhere():
    tensor = dlbridge.convert(elsewhere(), "torch")
    assert tensor.device.type == "mps"
    with pytest.raises(dlbridge.DeviceError):
        dlbridge.convert(tensor, "numpy")


@pytest.mark.needs("jax")
def test_jax_before_0_8_is_given_c_order():
    """It would take the elements in another order, and say nothing (jax#17784)."""
    program = """if True:
        import jax, numpy
        import dlbridge
        jax.__version__ = "0.7.1"
        source = numpy.arange(64.0, dtype="float32").reshape(8, 8).T
        result = dlbridge.convert(source, "jax")
        assert result.tolist() == source.tolist()
        assert numpy.asarray(result).flags.c_contiguous
        for other in (source.astype(">f4"), source[::-1], numpy.frombuffer(source.T.tobytes(), "f4").reshape(8, 8).T):
            assert numpy.asarray(dlbridge.convert(other, "jax", copy=True)).flags.c_contiguous
        assert result.unsafe_buffer_pointer() != source.ctypes.data
        try:
            dlbridge.convert(source, "jax", copy=False, readonly="share")
        except dlbridge.CopyRequiredError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("jax: strides (1, 8) of shape (8, 8) are not in C order, "), done.stderr


@pytest.mark.needs("jax")
@pytest.mark.skipif(bool({"ANY_ORDER"} - HOLDS["jax"]), reason="JAX before 0.8 takes C order only")
def test_jax_takes_any_order_of_the_axes():
    source = numbered((3, 4, 5)).transpose(2, 0, 1)
    result = dlbridge.convert(source, "jax", copy=False, readonly="share")
    assert isinstance(result, jax.Array)
    assert np.asarray(result).tobytes() == source.tobytes()


# ---- axes of one element ---------------------------------------------------------------------------------------------

def layouts_with_ones(count):
    """Tensors in every order of the axes, many of whose axes have one element."""
    chance = random.Random(5)
    for _ in range(count):
        extents = [chance.choice([1, 1, 1, 2, 3, 5]) for _ in range(chance.choice([3, 4, 5]))]
        order = chance.sample(range(len(extents)), len(extents))
        tensor = torch.zeros([extents[axis] for axis in order]).permute(np.argsort(order).tolist())
        yield tensor[:1] if chance.random() < 0.3 else tensor


@pytest.mark.needs("torch")
def test_axes_of_one_element_keep_their_strides():
    for tensor in layouts_with_ones(4000):
        for way in (dlbridge.convert(tensor, "numpy"), dlbridge.asdlpack(tensor), tensor.numpy()):
            assert dlbridge.convert(way, "torch").stride() == tensor.stride()


@pytest.mark.needs("torch")
def test_a_batch_of_one_image_stays_in_channels_last():
    images = torch.rand(1, 3, 8, 8).to(memory_format=torch.channels_last)
    for way in (dlbridge.convert(images, "numpy"), dlbridge.convert(images, "numpy", copy=True),
                dlbridge.convert(images, "memoryview"), dlbridge.to_dlpack(images), dlbridge.asdlpack(images)):
        assert dlbridge.convert(way, "torch").stride() == images.stride()
    assert torch.from_dlpack(dlbridge.asdlpack(images)).stride() == images.stride()
    assert dlbridge.convert(images, "numpy").strides == images.numpy().strides


@pytest.mark.parametrize("stride", [0, 7, 1 << 40, -8, -(1 << 63)])
@pytest.mark.parametrize("target", params(["numpy", "memoryview", "dlbridge", "torch", "jax"]))
def test_any_stride_of_one_element_reaches_every_target(target, stride):
    array = np.lib.stride_tricks.as_strided(np.arange(3, dtype="float32"), (1, 3), (stride, 4))
    np.testing.assert_array_equal(dlbridge.convert(dlbridge.convert(array, target), "numpy"), [[0, 1, 2]])


def test_a_target_that_may_refuse_such_strides_is_given_plain_ones():
    """They reach no memory, so no copy is needed."""
    array = np.lib.stride_tricks.as_strided(np.arange(3, dtype="float32"), (1, 3), (28, 4))
    dlbridge.register_target("plain", lambda tensor: (tensor.strides, tensor.data_ptr))
    assert dlbridge.asdlpack(array).strides == (7, 1)
    assert dlbridge.convert(array, "plain", copy=False) == ((3, 1), array.ctypes.data)


@pytest.mark.needs("jax")
def test_such_strides_are_no_reason_to_copy_for_jax():
    array = np.lib.stride_tricks.as_strided(aligned((3,), "float32"), (1, 3), (28, 4))
    result = dlbridge.convert(array, "jax", copy=False, readonly="share")
    assert result.unsafe_buffer_pointer() == array.ctypes.data
