"""Private parts of libraries are used up to the newest tested version, and done without.

These are libtorch's functions, jaxlib's importer and pandas' blocks. Numba's class is in fake_driver/test_targets.py.
"""

import mmap
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from support.children import in_child

import dlbridge
from dlbridge.libraries.library import libraries
from dlbridge.matrix import info

TOOLS = Path(__file__).parents[2] / "tools"


def newest_tested(name):
    """The newest version of a library that all the tests are run with (tools/versions.sh)."""
    cells = [line for line in (TOOLS / "versions.sh").read_text().splitlines() if line.startswith("full=")]
    versions = [cell.split(":")[{"torch": 1, "jax": 2}[name]] for cell in cells[0].split('"')[1].split()]
    return max(tuple(map(int, version.split("."))) for version in versions)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_the_bound_is_the_first_version_that_was_not_tested(name):
    major, minor, *_ = newest_tested(name)
    assert libraries()[name].private.below == f"{major}.{minor + 1}"


def test_libraries_with_internals_have_a_file_for_them():
    files = {library.private.value for library in libraries().values() if library.private}
    assert files == {
        "_core.native.libtorch", "_core.targets.jaxlib", "libraries.numba_arrays", "libraries.pandas_blocks",
        "libraries.scipy_flags"}


@pytest.mark.parametrize("name", [pytest.param("torch", marks=pytest.mark.needs("torch 2.10")), "jax"])
@pytest.mark.needs("torch", "jax")
def test_those_of_a_tested_version_are_used(name):
    dlbridge.convert(torch.zeros(1), name)
    assert info.internals_in_use(name) == "used"


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_info_goes_by_the_version_where_it_imports_nothing(name):
    private = libraries()[name].private
    newest = "{}.{}.3+cpu".format(*newest_tested(name))
    assert [info.internals(name, version) for version in (private.since, newest)] == ["allowed"] * 2
    assert [info.internals(name, version) for version in (private.below, "99.0rc1", "0.1")] == ["not allowed"] * 3


# ---- done without ----------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
@in_child(warnings="default")
def test_streams_of_torch_are_known_before_any_tensor_was_a_source():
    """Else memory of others goes back before torch has read it."""
    import ctypes

    import torch

    import dlbridge  # noqa: F401
    from dlbridge._core.native import libtorch

    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetPointer.restype = ctypes.c_char_p, ctypes.c_void_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    capsule = libtorch.__pyx_capi__["is_own_stream"]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    is_own_stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int64)(address)
    stream = 0x1000
    for number in 5, 6, 9:          # odd: of torch's pools
        torch._C._cuda_getCurrentStream = lambda device, number=number: (number, 0, 1)
        stream += 64
        assert is_own_stream(0, stream) == number % 2, number


def jax_takes_arrays():
    """What is made shares memory, keeps it, and gives it back; what JAX would misread is refused or copied as ever."""
    for dtype in ("float32", "int8", "bool", "complex64"):
        array = np.frombuffer(mmap.mmap(-1, 96), dtype, 12).reshape(3, 4)       # aligned as JAX needs it
        array[1, 2] = 1
        given = dlbridge.convert(array, "jax", readonly="share")
        assert given.unsafe_buffer_pointer() == array.ctypes.data
        assert np.array_equal(given, array)
    kept, given = weakref.ref(array), dlbridge.convert(array, "jax", readonly="share")
    turned = array[::-1].copy()
    del array
    assert kept() is not None
    del given
    ends = time.monotonic() + 10
    while kept() is not None and time.monotonic() < ends:      # JAX 0.12 may let go a little later
        time.sleep(0.01)
    assert kept() is None
    array = turned
    assert np.array_equal(dlbridge.convert(array[::-1], "jax"), array[::-1])


@pytest.mark.needs("jax")
def test_jax_takes_arrays():
    jax_takes_arrays()


@pytest.mark.needs("torch", "jax")
@in_child(says="", warnings="default")
def test_the_same_answers_without_internals_of_torch():
    import ctypes
    import os

    import hypothesis  # noqa: F401 (its own imports, and pytest's, need ctypes.CDLL)
    import jax  # noqa: F401
    import pytest  # noqa: F401
    import torch
    from support.child import run_in_child

    import dlbridge.testing.producers  # noqa: F401

    def version():
        torch.__version__ = "99.0"

    def macos():                # where torch's libraries have other names
        def no_library(*arguments):
            raise OSError

        ctypes.CDLL = no_library

    def windows():
        del os.RTLD_NOLOAD

    def answers(without):
        without()
        from targets import test_fast_path

        from dlbridge.matrix.info import internals_in_use

        test_fast_path.test_lazy_bits_however_they_came()
        test_fast_path.test_gradients_however_they_came()
        test_fast_path.test_a_shared_storage_keeps_its_size()
        test_fast_path.test_a_plain_tensor_leaves_no_trace_in_what_the_caller_has_begun()
        test_fast_path.test_a_function_mode_is_not_asked_what_a_tensor_holds()
        test_fast_path.test_under_a_mode_a_tensor_is_what_torch_makes_there()
        return internals_in_use("torch")

    for without in version, macos, windows:
        assert run_in_child(answers, without).result() == "not used", without


@pytest.mark.needs("torch", "jax")
@in_child(says="", warnings="default")
def test_the_same_answers_without_internals_of_jax():
    import jax

    jax.__version__ = "99.0"
    from targets import test_internals

    from dlbridge.matrix.info import internals_in_use

    test_internals.jax_takes_arrays()
    assert internals_in_use("jax") == "not used"
