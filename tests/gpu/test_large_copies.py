"""Large transfers between the host and the device: every byte, and who waits for whom."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gpu.libraries import cases, races

import dlbridge

pytestmark = pytest.mark.gpu

MIB = 1 << 20
# The pool of the fake driver takes no memory of the host.
LIBRARIES = [name for name, in cases(("torch",), ("cupy",), ("numba",), ("jax",)) if name != "pool"]
WITH_ALLOCATORS = [name for name, in cases(("torch",), ("cupy",)) if name != "pool"]
# Around where transfers begin to be staged, and where a buffer ends.
SIZES = sorted({size + more for size in (MIB, 4 * MIB, 8 * MIB, 33 * MIB) for more in (-1, 0, 1)})
VIEWS = {
    "compact": lambda array: array,
    "transposed": lambda array: array.T,
    "every second": lambda array: array[:, ::2],
    "reversed": lambda array: array[::-1, ::-1],
    "a part": lambda array: array[3:, 5:],
    "three axes": lambda array: array[:2048, :1024].reshape(16, 128, 1024).transpose(2, 0, 1),
    "long rows": lambda array: array.reshape(-1)[: 2 * (array.size // 2)].reshape(2, -1).T,
}


def uploaded(source, library):
    return dlbridge.convert(source, library.name, device="cuda")


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_byte_there_and_back(library, name):
    library = library(name)
    random = np.random.default_rng(0)
    for nbytes in SIZES:
        source = random.integers(0, 255, nbytes, "u1")
        there = uploaded(source, library)
        assert np.array_equal(library.values(there), source)
        assert np.array_equal(dlbridge.convert(there, "numpy", device="cpu"), source)
        into = np.zeros_like(source)
        assert dlbridge.convert(there, "numpy", device="cpu", out=into) is into
        assert np.array_equal(into, source)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", LIBRARIES)
def test_layouts_are_gathered(library, name, view):
    library = library(name)
    for dtype in "float32", ">f4", "uint8", "bool", "complex64":
        base = np.random.default_rng(0).integers(0, 2, (4096, 2049)).astype(dtype)
        source = VIEWS[view](base)
        assert np.array_equal(library.values(uploaded(source, library)), source)


@pytest.mark.parametrize("view", VIEWS)
def test_wide_types_are_narrowed_on_the_way(library, view):
    jax = library("jax")
    base = np.random.default_rng(0).integers(-1000, 1000, (4096, 2049))
    with jax.module.enable_x64(False):
        for dtype, near in ("int64", "int32"), (">f8", "float32"), ("complex128", "complex64"):
            source = VIEWS[view](base.astype(dtype))
            received = dlbridge.convert(source, "jax", device="cuda", narrow=True)
            assert received.dtype == near
            assert np.array_equal(jax.values(received), source)
        with pytest.raises(dlbridge.ConversionError, match="does not fit"):
            dlbridge.convert(VIEWS[view](base) + 2**40, "jax", device="cuda", narrow=True)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_download_waits_for_its_producer(library, name):
    library = library(name)
    if name == "jax":
        pytest.skip("jax: has no streams to give")
    stream = library.new_stream()
    source = library.empty(4 * MIB, stream)
    for value in range(1, 8):
        library.spin(stream)
        library.fill(source, value, stream)
        with library.current(stream):
            found = dlbridge.convert(source, "numpy", device="cpu")
        assert (found == value).all()


@pytest.mark.parametrize("name", WITH_ALLOCATORS)
def test_an_upload_waits_for_what_had_its_memory_before(library, name):
    """The library's allocator gives memory out again that a kernel in the queue still reads."""
    library = library(name)
    stream = library.new_stream()
    wrong = 0
    for value in range(8):
        with library.current(stream):
            before = library.empty(4 * MIB, stream)
            library.fill(before, value, stream)
            library.spin(stream)
            copy = library.copied(before, stream)
            del before
            uploaded(np.full(4 * MIB, -1, "i4"), library)
        wrong += not (library.values(copy) == value).all()
    assert not wrong
    assert not races()


def test_many_threads_at_a_time(library):
    torch = library("torch")
    sources = [np.random.default_rng(seed).integers(0, 255, 20 * MIB + seed, "u1") for seed in range(12)]

    def there_and_back(source):
        return np.array_equal(dlbridge.convert(uploaded(source, torch), "numpy", device="cpu"), source)

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(there_and_back, sources * 3))


def test_pinned_memory_goes_as_it_is(library):
    torch = library("torch").module
    source = torch.arange(8 * MIB, dtype=torch.int32).pin_memory()
    assert torch.equal(dlbridge.convert(source.numpy(), "torch", device="cuda").cpu(), source)
    into = torch.empty_like(source).pin_memory()
    dlbridge.convert(source.cuda(), "torch", device="cpu", out=into)
    assert torch.equal(into, source)
