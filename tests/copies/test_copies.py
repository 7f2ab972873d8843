"""Copies: every element arrives, whatever the layout, the word, the threads; and the GIL is free meanwhile."""

import ctypes
import gc
import sys
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import optional
from support.child import run_in_child
from support.children import in_child
from support.hints import code_in
from support.optional import of, params, product
from support.strided import DTYPES, LAYOUTS, check, random_bits, records

import dlbridge
from dlbridge._core import copying

pytestmark = pytest.mark.quick

NEVER_SPLIT = 1 << 62


@pytest.fixture(params=["one thread", "threads"])
def threads(request):
    """Every copy by one thread, or every copy by several, however small."""
    before = copying._set_split(NEVER_SPLIT, 1) if request.param == "one thread" else copying._set_split(0, 1)
    yield
    copying._set_split(*before)


# ---- layouts ---------------------------------------------------------------------------------------------------------

# The kernels know words and not types, so a type of each size is all there is.
WORDS = DTYPES if optional.FULL else ("bool", "int8", "uint16", "float32", "float64", "complex64", "complex128")


def in_both_orders(dtype):
    return [np.dtype(dtype)] + [np.dtype(dtype).newbyteorder(">")] * (np.dtype(dtype).itemsize > 1)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    for dtype in (order for word in WORDS for order in in_both_orders(word)):
        check(LAYOUTS[layout](dtype))


@pytest.mark.parametrize(("layout", "target"), params(product(LAYOUTS, ["torch", "jax", "memoryview"])))
def test_layouts_for_other_libraries(layout, target):
    array = LAYOUTS[layout]("float32")
    copied = np.asarray(dlbridge.convert(array, target, copy=True))
    assert copied.squeeze().tobytes() == array.squeeze().tobytes()
    assert not np.shares_memory(copied, array)


@pytest.mark.parametrize(("target", "copy"), params([("numpy", True), ("torch", None), ("torch", True), ("jax", True)]))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_of_bools_has_only_the_bytes_0_and_1(layout, target, copy):
    """Libraries compute with others: JAX's sum of a 255 is 255."""
    source = LAYOUTS[layout]("uint8").view(bool)
    expected = source.view("uint8") != 0
    source.flags.writeable = False
    copied = np.asarray(dlbridge.convert(source, target, copy=copy))
    assert np.array_equal(copied.view("uint8"), expected)


@pytest.mark.needs("torch")
def test_bools_that_are_shared_are_as_they_are():
    source = np.array([0, 1, 2, 255], "u1").view(bool)
    assert np.asarray(dlbridge.convert(source, "torch", copy=False)).view("uint8").tolist() == [0, 1, 2, 255]


@pytest.mark.needs("PIL")
@pytest.mark.needs("jax")
def test_jax_adds_bools_of_an_image():
    import jax
    from PIL import Image

    image = Image.fromarray(np.array([[0, 255], [255, 255]], "u1")).convert("1")
    for source in dlbridge.convert(image, "torch"), np.array([0, 2, 2, 2], "u1").view(bool):
        assert int(jax.numpy.sum(dlbridge.convert(source, "jax"))) == 3


# ---- what an error says that one can do instead ----------------------------------------------------------------------

IN_THE_WAY = {
    "backwards": (lambda: np.arange(6.0)[::-1], "torch", {}),
    "repeated": (lambda: np.broadcast_to(np.float32(1), (4, 16)), "jax", {"readonly": "share"}),
    "odd strides": (lambda: records("f4", 6), "torch", {}),
    "holes": (lambda: np.zeros((16, 32), "f4")[:, ::2], "jax", {"readonly": "share"}),
    "the other byte order": (lambda: np.arange(6, dtype=">f4"), "torch", {}),
    "the other byte order, by a buffer": (lambda: memoryview(np.arange(6, dtype=">f4")), "torch", {}),
    "the other byte order, by an interface": (lambda: ByOtherOrder(), "torch", {}),
    "the other byte order, by ctypes": (lambda: (ctypes.c_int.__ctype_be__ * 3)(1, 2, 3), "torch", {}),
    "a negative bit": (lambda: torch._neg_view(torch.ones(3)), "numpy", {}),
    "a conjugate bit": (lambda: torch.ones(3, dtype=torch.complex64).conj(), "numpy", {}),
    "holes of torch": (lambda: torch.zeros(16, 32)[:, ::2], "jax", {"readonly": "share"}),
    "holes of a Tensor": (lambda: dlbridge.asdlpack(np.zeros((16, 32), "f4")[:, ::2]), "jax", {"readonly": "share"}),
    "backwards, a Tensor": (lambda: dlbridge.asdlpack(np.arange(6.0)[::-1]), "torch", {}),
    "backwards, by __dlpack__ alone": (lambda: ByDLPack(), "torch", {}),
    "constant, at an odd address": (lambda: np.frombuffer(bytes(range(64)), "f4")[1:], "jax", {}),
    "read-only": (lambda: b"abc", "torch", {}),
    "writable": (lambda: torch.zeros(16), "jax", {}),
}


class ByOtherOrder:
    __array_interface__ = np.arange(6, dtype=">f4").__array_interface__


class ByDLPack:
    array = np.arange(6.0)[::-1]

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.needs("jax")
@pytest.mark.parametrize("x", [
    np.arange(6, dtype="f4")[::2], np.arange(4, dtype="f4")[::-1], np.arange(4, dtype=">i4"),
], ids=["strided", "reversed", "swapped"])
def test_another_array_is_no_hint_where_it_would_be_copied_too(x):
    """JAX's arrays never change, and whatever NumPy makes of this one can be written to."""
    with pytest.raises(dlbridge.CopyRequiredError) as caught:
        dlbridge.convert(x, "jax", copy=False)
    assert caught.value.hint == "pass copy=None"
    assert np.array_equal(dlbridge.convert(x, "jax", copy=None), x)
    with pytest.raises(dlbridge.CopyRequiredError, match=r"pass .*\(x.*\), or pass copy=None"):
        dlbridge.convert(x, "jax", copy=False, readonly="share")


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize(("make", "to", "keywords"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_said_with_copy_false_works(make, to, keywords):
    x = make()
    with pytest.raises(dlbridge.CopyRequiredError) as caught:
        dlbridge.convert(x, to, copy=False, **keywords)
    assert caught.value.hint.endswith(", or pass copy=None")
    expected = np.asarray(dlbridge.convert(x, to, **keywords)).tolist()
    if 'readonly="share"' in caught.value.hint:
        assert np.asarray(dlbridge.convert(x, to, readonly="share")).tolist() == expected
        return
    codes = list(code_in(caught.value.hint, ("numpy",)))
    assert codes
    for code in codes:
        made = eval(code, {"numpy": np, "dlbridge": dlbridge, "x": x})
        assert np.asarray(dlbridge.convert(made, to, readonly="share")).tolist() == expected


# ---- interfaces that are computed when they are asked for -----------------------------------------------------------

class Anew:
    """Has new bytes each time, as Pillow's images."""

    def __init__(self, kept=False):
        self.array = np.arange(6.0)
        self.kept = kept

    @property
    def __array_interface__(self):
        array = self.array if self.kept else self.array.copy()
        return array.__array_interface__ | {"keeper": array}


class ByBytes(Anew):
    @property
    def __array_interface__(self):
        return {"shape": (6,), "typestr": "<f8", "version": 3, "data": self.array.tobytes()}


@pytest.mark.parametrize("kind", [Anew, ByBytes])
def test_an_interface_that_is_made_anew_is_a_copy(kind):
    source = kind()
    with pytest.raises(dlbridge.CopyRequiredError, match=f"array_interface: copy False: but {kind.__name__} copies"):
        dlbridge.convert(source, "numpy", copy=False)
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.asdlpack(source, copy=False)
    plan = dlbridge.explain(source, "numpy")
    assert (plan.action, plan.hint) == ("copy", "nothing to do: it is copied")
    assert dlbridge.convert(source, "numpy").tolist() == source.array.tolist()


def test_an_interface_that_stays_is_shared():
    source = Anew(kept=True)
    assert dlbridge.explain(source, "numpy").action == "share"
    assert dlbridge.convert(source, "numpy", copy=False).ctypes.data == source.array.ctypes.data


@pytest.mark.needs("jax")
def test_explain_agrees_about_an_interface_that_is_made_anew():
    source = Anew()
    source.array = np.zeros(16, "float32")
    with pytest.raises(dlbridge.ConversionError, match="writable"):
        dlbridge.convert(source, "jax", readonly="error")
    assert dlbridge.explain(source, "jax", readonly="error").action == "refuse"


def test_a_list_with_an_interface_is_asked_too():
    class Numbers(list):
        @property
        def __array_interface__(self):
            self.array = np.array(list(self))
            return self.array.__array_interface__ | {"keeper": self.array}

    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(Numbers([1, 2]), "numpy", copy=False)
    assert dlbridge.explain(Numbers([1, 2]), "numpy").action == "copy"


def test_an_interface_of_no_elements_is_no_copy():
    source = Anew()
    source.array = np.zeros((0, 3))
    assert dlbridge.convert(source, "numpy", copy=False).shape == (0, 3)


@pytest.mark.parametrize(("error", "raised"), [
    (KeyboardInterrupt, KeyboardInterrupt), (MemoryError, MemoryError), (ValueError, dlbridge.CopyRequiredError)])
def test_an_interface_that_fails_the_second_time(error, raised):
    class Failing(Anew):
        asked = 0

        @property
        def __array_interface__(self):
            self.asked += 1
            if self.asked == 2:
                raise error
            return self.array.__array_interface__

    source = Failing(kept=True)
    before = sys.getrefcount(source)
    with pytest.raises(raised):
        dlbridge.convert(source, "numpy", copy=False)
    assert sys.getrefcount(source) == before


@st.composite
def views(draw):
    """Slices, permutations and repetitions of random memory."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES))).newbyteorder(draw(st.sampled_from("<>")))
    shape = draw(st.lists(st.one_of(st.integers(1, 9), st.sampled_from([16, 33, 64, 70])), min_size=1, max_size=5))
    while np.prod(shape) > 200_000:
        shape.remove(max(shape))
    array = random_bits(tuple(shape), dtype, seed=draw(st.integers(0, 9)))
    for axis, extent in enumerate(shape):
        step = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 5, -1, -1, -2, -3]))
        start = draw(st.integers(0, extent - 1))
        array = array[(slice(None),) * axis + (slice(start if start < extent // 2 else None, None, step),)]
    if draw(st.booleans()):
        array = np.broadcast_to(array[..., None], (*array.shape, draw(st.integers(1, 20))))
    return array.transpose(draw(st.permutations(range(array.ndim))))


@given(array=views(), split=st.booleans())
def test_any_view(array, split):
    before = copying._set_split(0 if split else NEVER_SPLIT, 1)
    try:
        check(array)
    finally:
        copying._set_split(*before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [order for word in WORDS for order in in_both_orders(word)], ids=str)
def test_rows_that_fall_into_one_place_of_the_cache(dtype):
    """Rows a multiple of 4096 bytes apart, in the source, in the result, and in both."""
    row = 4096 // dtype.itemsize
    wide = random_bits((70, row), dtype)
    high = random_bits((row, 70), dtype)
    for array in (wide[:, :70].T, wide[:, :140:2].T, wide[::-1, 1:67].T, wide.T, high[:, ::2].T, high[:, :-1].T):
        check(array)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("bands", [1, 2, 3, 4, 5, 7])
def test_pixels_of_any_size(dtype, bands):
    """Short runs of bytes are copied as a whole, backwards and across, also by several threads."""
    image = random_bits((33, 70, bands), dtype)
    for source in (image[:, ::-1], image[::-1, ::-1], image[:, ::3], image.transpose(1, 0, 2), image[::2, 5:-5]):
        check(source)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", ["uint8", "uint16", ">u2", "float32", ">f4", "float64"])
@pytest.mark.parametrize("bands", range(2, 17))
def test_bands_in_another_order(dtype, bands):
    """BGR for RGB, with and without the band that is dropped, in images of any width."""
    image = random_bits((5, 150, bands), dtype)
    for width in (*range(30, 52), 150):
        wide = image[:, :width]
        for source in (wide[..., ::-1], wide[:, ::-1, ::-1], wide[..., 1::-1], wide[:, ::-1, :-1], wide[:, ::-2, ::-1],
                       wide[:, ::3, ::2], wide[:, ::-1, ::2], wide[..., ::-1].transpose(1, 0, 2),
                       wide[:, ::-1].transpose(2, 0, 1), wide[:, ::-1].transpose(1, 0, 2)):
            check(source)


@pytest.mark.parametrize("step", [-3, -1, 2, 5])
@pytest.mark.parametrize("dtype", [word for word in WORDS if np.dtype(word).itemsize > 1])
def test_lines_of_any_length_in_the_other_byte_order(dtype, step):
    """Around the lengths from which words are gathered, and at which the room for them is full."""
    source = random_bits((5 * 1025,), np.dtype(dtype).newbyteorder(">"))
    for count in (*range(1, 36), *(words + more for words in (64, 128, 256, 512, 1024) for more in (-1, 0, 1))):
        check(source[::step][:count])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", [">f4", ">c16"])
def test_a_copy_in_the_other_byte_order_keeps_the_order_of_axes(dtype):
    batch = random_bits((2, 8, 7, 3), np.dtype(dtype)).transpose(0, 3, 1, 2)
    assert dlbridge.convert(batch, "torch").is_contiguous(memory_format=torch.channels_last)
    assert dlbridge.convert(batch.T, "torch").stride() == tuple(step // batch.itemsize for step in batch.T.strides)
    check(batch)
    assert dlbridge.convert(batch[:, ::2], "torch").is_contiguous()


# ---- lazy signs ------------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("transposed", [False, True], ids=["compact", "transposed"])
def test_signs_flip_on_the_way(dtype, transposed):
    values = torch.randn(67, 71, dtype=dtype)[::2]
    values = values.T if transposed else values
    for lazy in (values.conj(), torch._neg_view(values), torch._neg_view(values.conj()), values.conj().imag):
        assert lazy.is_conj() or lazy.is_neg()
        for target in ("numpy", "torch"):
            result = torch.as_tensor(dlbridge.convert(lazy, target, copy=True))
            assert not result.is_conj()
            assert not result.is_neg()
            expected = lazy.resolve_conj().resolve_neg().contiguous()
            assert result.contiguous().numpy().tobytes() == expected.numpy().tobytes()


# ---- elements below a byte -------------------------------------------------------------------------------------------

@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float6_e2m3fn"])
def test_packing_there_and_back(name):
    """Element i lies at bit i * bits, the low bits first (DLPack 1.3)."""
    import ml_dtypes
    bits = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4, "float6_e2m3fn": 6}[name]
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000, 100_001):
        values = np.random.default_rng(count).integers(0, 1 << bits, count, "uint8")
        padded = values.view(getattr(ml_dtypes, name))
        tensor = dlbridge.asdlpack(dlbridge.to_dlpack(padded))      # a legacy capsule is packed
        assert tensor.itemsize == 0
        packed = np.packbits(np.unpackbits(values[:, None], axis=1, bitorder="little", count=8)[:, :bits].reshape(-1),
                             bitorder="little")
        assert packed_bytes(tensor) == packed.tobytes()
        back = dlbridge.convert(tensor, "numpy")
        assert back.dtype == padded.dtype
        assert (back.view("uint8") & (1 << bits) - 1).tolist() == values.tolist()


def packed_bytes(tensor):
    import ctypes
    return ctypes.string_at(tensor.data_ptr, tensor.nbytes)


# ---- memory ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("nbytes", [1, 100, 1 << 12, 1 << 16, 1 << 22, 5 << 20])
def test_own_memory_is_aligned(nbytes):
    copied = dlbridge.convert(random_bits((nbytes + 1,), "uint8")[1:], "numpy", copy=True)
    assert copied.ctypes.data % 256 == 0


@pytest.mark.needs("torch")
@pytest.mark.parametrize("nbytes", [1, 1 << 12, 1 << 19])
def test_small_copies_are_in_memory_of_our_own_for_every_library(nbytes):
    """What torch allocates itself has an alignment of 64: sixteen of those are not all at multiples of 256 as well."""
    source = random_bits((nbytes + 1,), "uint8")[1:]
    kept = [dlbridge.convert(source, "torch", copy=True) for _ in range(16)]
    assert {tensor.data_ptr() % 256 for tensor in kept} == {0}
    assert all(np.array_equal(tensor, source) for tensor in kept)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("nbytes", [1 << 19, 1 << 20, 1 << 23])
def test_copies_while_torch_makes_fake_tensors(nbytes):
    """From 1 MiB on torch allocates, and in its FakeTensorMode has no memory to give."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    source = random_bits((nbytes,), "uint8")
    writable = bytearray(source)
    with FakeTensorMode():
        fakes = [
            dlbridge.convert(source[::-1], "torch"),
            dlbridge.convert(source[::-1].data, "torch", copy=True),
            dlbridge.convert(dlbridge.asdlpack(bytes(source[::-1])), "torch"),
            dlbridge.convert_tree({"a": [source[::-1]]}, "torch")["a"][0],
            dlbridge.convert(writable, "torch"),
        ]
        copies = [dlbridge.convert(source[::-1], to, copy=True) for to in ("numpy", "dlbridge", "memoryview")]
        assert dlbridge.explain(source[::-1], "torch").action == "copy"
    assert all(isinstance(tensor, FakeTensor) for tensor in fakes)
    assert {(tensor.shape, tensor.dtype) for tensor in fakes} == {((nbytes,), torch.uint8)}
    assert all(np.array_equal(copied, source[::-1]) for copied in copies)


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
def test_dense_memory_keeps_the_order_of_its_axes(target):
    source = random_bits((30, 40, 50), "float32").transpose(2, 0, 1)
    if target == "jax":
        source = dlbridge.convert(source, "torch")
    copied = dlbridge.convert(source, target, copy=True)
    if target == "torch":
        assert copied.stride() == tuple(step // 4 for step in source.strides)
    elif target == "numpy":
        assert copied.strides == source.strides
    assert np.asarray(copied).tobytes() == np.asarray(source).tobytes()


@in_child
def test_nothing_before_and_behind_the_memory_is_read_or_written():
    """A page that may not be touched lies on either side of the source, and of the result."""
    import ctypes
    import mmap

    import numpy as np

    import dlbridge

    PAGE = mmap.PAGESIZE
    libc = ctypes.CDLL(None)

    def guarded():
        whole = np.frombuffer(mmap.mmap(-1, 6 * PAGE), "uint8")
        whole[:] = np.random.default_rng(0).integers(0, 256, whole.size)
        for page in (0, 5):
            assert not libc.mprotect(ctypes.c_void_p(whole.ctypes.data + page * PAGE), PAGE, 0)
        return whole[PAGE:-PAGE]

    inner, room = guarded(), guarded()
    for dtype in ("u1", "u2", "u4", "u8", "c16", ">u2", ">u4", ">u8", ">c16"):
        line = inner.view(dtype)
        for step in (-1, 1, 2, 3, 4, 5, -2, -3):
            for array in (line[::step], line[::-1][::step], line[:line.size // 7 * 7].reshape(7, -1)[:, ::step].T):
                copied = dlbridge.convert(array, "numpy", copy=True)
                assert copied.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()
        square = line[-(int(line.size ** 0.5) ** 2):].reshape(int(line.size ** 0.5), -1)
        images = [line[begin:][:line.size // bands * bands].reshape(1, -1, bands)[:, ::step, ::order]
                  for bands in (2, 3, 4, 5, 8) for begin in (0, line.size % bands) for step in (1, -1, 2, -2)
                  for order in (1, -1, 2)]
        images += [np.broadcast_to(grey[:, None], (100, bands)) for grey in (line[-100:], line[:100][::-1])
                   for bands in (2, 3, 4, 5, 8)]
        for array in (square[::-1].T, square[:, 1:].T, square[1:, ::-1].T, square[:, :-1].T, *images):
            for end in (room[-array.nbytes:], room[:array.nbytes]):
                out = end.view(array.dtype.newbyteorder("=")).reshape(array.shape)
                dlbridge.convert(array, "numpy", out=out)
                assert out.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()


# ---- the GIL, threads, forks, signals --------------------------------------------------------------------------------

def advances_meanwhile(work):
    """Whether another thread of Python's runs while ``work`` does: it gets the GIL only where that is given up."""
    advanced = 0
    stop = False

    def count():
        nonlocal advanced
        while not stop:
            advanced += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    counter = threading.Thread(target=count)
    sys.setswitchinterval(1000)
    counter.start()
    try:
        while not advanced:
            time.sleep(0)
        before = advanced
        work()
        return advanced > before
    finally:
        sys.setswitchinterval(interval)
        stop = True
        counter.join()


def copied(source):
    return dlbridge.convert(source, "numpy", copy=True)


@of("ml_dtypes")
def int4(nbytes):
    import ml_dtypes

    return random_bits((nbytes,), "uint8").view(ml_dtypes.int4)


# What is copied, how many bytes of it in a row, and by which call: none that lets the GIL go for another reason.
COPIES = {
    "dense": (copied, lambda nbytes: random_bits((nbytes,), "uint8")),
    "transposed": (copied, lambda nbytes: random_bits((nbytes // 128, 64), "uint16")[::-1].T),
    "other byte order": (copied, lambda nbytes: random_bits((nbytes // 4,), ">u4")),
    "fields of records": (copied, lambda nbytes: records("float32", nbytes // 4)),
    "repeated": (dlbridge.to_dlpack, lambda nbytes: np.broadcast_to(random_bits((nbytes,), "uint8"), (3, nbytes))),
    "packing": (dlbridge.to_dlpack, int4),
    "unpacking": (copied, of("ml_dtypes")(lambda nbytes: dlbridge.to_dlpack(int4(nbytes)))),
}


@pytest.mark.parametrize(("convert", "make"), params(COPIES))
def test_the_gil_is_free_during_a_large_copy(convert, make):
    source = dlbridge.asdlpack(make(1 << 23))
    # Which thread runs is the system's to say: it is asked until it lets the other one, on a busy machine for long.
    end = time.monotonic() + 60
    while not advances_meanwhile(lambda: convert(source)):
        assert time.monotonic() < end


@pytest.mark.needs("a GIL")
@pytest.mark.parametrize(("convert", "make"), params(COPIES))
def test_the_gil_is_kept_for_a_small_copy(convert, make):
    source = dlbridge.asdlpack(make(1 << 13))
    # In a child, which has none of the runner's threads: one that waits for the GIL already has it given up soon.
    seen = run_in_child(lambda: [advances_meanwhile(lambda: convert(source)) for _ in range(20)]).result()
    assert seen == [False] * 20


def test_many_threads_at_once():
    """Each of them splits its copies over threads of its own."""
    sources = [LAYOUTS[name]("float64") for name in ("transposed", "heads", "every third", "contiguous")]
    failures = []

    def work():
        try:
            for _ in range(30):
                for source in sources:
                    check(source)
        except BaseException as error:
            failures.append(error)

    before = copying._set_split(0, 1)
    try:
        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        copying._set_split(*before)
    assert not failures


@pytest.mark.needs("glibc", "plain memory")
@in_child(by=("sh", "-c", 'ulimit -S -s 268435456 && exec "$@"', "sh"), OPENBLAS_NUM_THREADS="1")
def test_the_threads_that_are_not_there_are_done_without():
    """No thread can begin whose stack is larger than all the memory that the process may have."""
    import resource
    import threading

    from support.strided import LAYOUTS, check

    from dlbridge._core import copying

    copying._set_split(0, 1)
    check(LAYOUTS["transposed"]("float32"))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 37, 1 << 37))
    try:
        threading.Thread(target=print).start()
    except RuntimeError:
        pass
    else:
        raise SystemExit("a thread began all the same: nothing is tested")
    for make in LAYOUTS.values():
        check(make("float32"))


@in_child
def test_a_fork_copies_too():
    import os

    from support.strided import LAYOUTS, check

    from dlbridge._core import copying

    copying._set_split(0, 1)
    array = LAYOUTS["transposed"]("float32")
    check(array)
    child = os.fork()
    if not child:
        check(array)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check(array)


@in_child(OPENBLAS_NUM_THREADS="1")
def test_threads_end_with_the_copy_and_take_no_signals():
    import os
    import signal
    import threading

    from support.strided import LAYOUTS, check

    from dlbridge._core import copying

    taken = []
    signal.signal(signal.SIGALRM, lambda *_: taken.append(threading.current_thread() is threading.main_thread()))
    copying._set_split(0, 1)
    array = LAYOUTS["transposed"]("float64")
    check(array)
    before = len(os.listdir("/proc/self/task"))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while len(taken) < 50:
        check(array)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert all(taken)
    assert len(os.listdir("/proc/self/task")) == before


@in_child
def test_an_interrupt_leaves_nothing_behind():
    import signal

    from support.strided import check, random_bits

    import dlbridge

    array = random_bits((4096, 4096), "float32")[::-1].T
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for attempt in range(40):
        try:
            # Once more each second: of what is raised within a callback, such as one of the import system, Python
            # tells nobody.
            signal.setitimer(signal.ITIMER_REAL, 0.005 + attempt / 5000, 1)
            while True:
                dlbridge.convert(array, "numpy", copy=True)
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * 4096
    assert resident < 1 << 30, resident       # forty copies that were lost are more than twice as much
    check(array)


@pytest.mark.needs("torch")
def test_what_does_not_fit_is_refused_before_it_is_taken():
    with open("/proc/meminfo") as meminfo:
        available = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable"))
    repeated = np.broadcast_to(np.zeros(1 << 20, "uint8"), (available // 1024 * 2, 1 << 20))
    for target in ("numpy", "torch"):
        with pytest.raises(MemoryError, match="do not fit"):
            dlbridge.convert(repeated, target, copy=True)


TOO_LARGE = np.broadcast_to(np.float32(1), (1 << 42,))


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize(("target", "keywords"), [("torch", {"copy": True}), ("numpy", {"copy": True}), ("jax", {})])
def test_the_hint_where_sharing_would_not_do(target, keywords):
    with pytest.raises(MemoryError, match=r"\(pass a part of it\)"):
        dlbridge.convert(TOO_LARGE, target, **keywords)


@pytest.mark.needs("torch")
def test_the_hint_where_sharing_would_do(tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 42)
    mapped = np.memmap(tmp_path / "sparse", "u1", "r")
    with pytest.raises(MemoryError, match=r'\(pass readonly="share" and do not write\)'):
        dlbridge.convert(mapped, "torch")
    assert dlbridge.convert(mapped, "torch", readonly="share").shape == (1 << 42,)


@pytest.mark.needs("torch")
def test_a_large_copy_is_split_by_itself():
    """Over the size from which on all cores are used, without the tests' own threshold."""
    rows = 1 << 13
    for source in (random_bits((rows, 1 << 13), "uint8")[::-1], random_bits((rows, rows + 1), "uint8")[:, 1:].T):
        assert np.array_equal(dlbridge.convert(source, "numpy", copy=True), source)
        assert np.array_equal(np.asarray(dlbridge.convert(source, "torch", copy=True)), source)
    gc.collect()
