"""dlbridge's C API, by an extension that has only dlbridge.h: what is seen, asked, owned, given, and refused."""

import ctypes
import gc
import itertools
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from support.child import run_in_child
from support.children import in_child
from support.compiling import HERE, compile_flags, compiled, compiled_extension
from support.exporters import numbered
from support.face import load_face
from support.optional import params

import dlbridge
from dlbridge.testing.producers import Producer

WRITABLE, C_ORDER, ANY_DEVICE, DETACHED, OR_COPY = (1 << bit for bit in range(5))
READ_ONLY, IS_COPIED, PADDED = 1, 2, 4
FLOAT32, FLOAT64, INT64, ANY = (2, 32, 1), (2, 64, 1), (0, 64, 1), (0, 0, 0)

face = load_face()

# What Cython writes is not ours to mend: Python 3.15 has fields that Cython 3.3 does not fill.
OF_CYTHON = ["-Wno-missing-field-initializers"]


def asked(obj, flags=0, *, name=None, dtype=ANY, ndim=0, shape=None, stream=0, size=0, beyond=0, dtypes=(),
          count=None):
    return (obj, flags, name, dtype, ndim, shape, stream, size, beyond, dtypes,
            len(dtypes) if count is None else count)


def seen(obj, flags=0, **wanted):
    """What a view of an array has, and what keeps the view open."""
    view, found = face.view(*asked(obj, flags, **wanted))
    return types.SimpleNamespace(view=view, **found)


def refused(obj, flags=0, **wanted):
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        face.view(*asked(obj, flags, name="blur(image)", **wanted))
    assert re.fullmatch(r"blur\(image\): .+: .+ \(.+\)", str(caught.value), re.DOTALL)
    return str(caught.value)


# ---- the header ------------------------------------------------------------------------------------------------------

def test_the_structs_are_frozen():
    """By the major version of the table: a field is only ever added at the end."""
    assert face.layout() == {
        "want": [56, 0, 4, 8, 16, 20, 24, 32, 40, 48],  # size of the struct, and the offset of each field
        "view": [1120, 32, 24, 88, 96],
        "table": [48, 0, 4, 8, 16, 24, 32, 40],
        "flags": [WRITABLE, C_ORDER, ANY_DEVICE, DETACHED, OR_COPY],
    }


@pytest.mark.needs("Cython")
def test_the_inside_has_the_structs_of_the_header(tmp_path):
    """One extension has both: those of ``dlbridge._core``, and by ``cimport dlbridge`` those of the header."""
    subprocess.run([sys.executable, "-m", "cython", "-3", "-I", HERE.parents[1], HERE / "inside.pyx",
                    "-o", tmp_path / "inside.c"], check=True, timeout=100)
    module = compiled_extension(
        "inside", tmp_path, *OF_CYTHON, f"-I{HERE.parents[1]}", source=tmp_path / "inside.c")
    assert module.inside() == module.header()
    assert module.header()["want"] == face.layout()["want"]


def snippets(language):
    page = (HERE.parents[1] / "docs" / "jobs" / "extensions.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


PAGE = """
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "dlbridge.h"
#include <stdlib.h>

static void blur_in_place(void *data, const int64_t *shape, const int64_t *strides) {
    for (int64_t row = 0; row < shape[0]; ++row)
        ((float *)data)[row * strides[0]] = (float)row;
}

%s
PyObject *call_blur(PyObject *image) { return blur(NULL, image); }

PyObject *give(PyObject *image) {
    float *memory = calloc(12, sizeof(float));
    memory[5] = 5;
%s}
"""


def test_the_c_of_the_page_does_what_it_says(tmp_path):
    source = tmp_path / "page.c"
    _, *functions = snippets("c")              # after a whole module, which tests/pages builds
    source.write_text(PAGE % tuple(functions))
    library = ctypes.PyDLL(str(compiled("page.c", tmp_path, "-std=c11", source=source)))
    for function in library.call_blur, library.give:
        function.restype, function.argtypes = ctypes.py_object, [ctypes.py_object]

    image = np.ones((3, 4), "float32")
    library.call_blur(image)
    assert image[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(dlbridge.ConversionError) as caught:
        library.call_blur(image.astype("float64"))
    assert str(caught.value) in snippets("text")[0]

    given = library.give(image)
    assert type(given) is np.ndarray
    assert (given.shape, given[1, 1]) == ((3, 4), 5)


@pytest.mark.needs("Cython")
def test_the_cython_of_the_page_does_what_it_says(tmp_path):
    [body] = snippets("cython")
    source = tmp_path / "page_cython.pyx"
    source.write_text(body)
    subprocess.run([sys.executable, "-m", "cython", "-3", "-I", HERE.parents[1], source], check=True, timeout=100)
    page = compiled_extension("page_cython", tmp_path, *OF_CYTHON, source=source.with_suffix(".c"))
    assert [page.mean(samples) for samples in (np.arange(3.0), np.arange(3.0)[::-1])] == [1, 1]
    with pytest.raises(dlbridge.ConversionError, match=r"mean\(samples\): dtype"):
        page.mean(np.arange(3))


@pytest.mark.parametrize("options", [
    pytest.param(("-std=c11",), id="C11"),
    pytest.param(("-x", "c++", "-std=c++17"), id="C++17"),
    pytest.param(("-std=c11", "-DPy_LIMITED_API=0x030A0000"), id="C11, limited API",
                 marks=pytest.mark.needs("a limited API")),
    pytest.param(("-x", "c++", "-std=c++17", "-DPy_LIMITED_API=0x030A0000"), id="C++17, limited API",
                 marks=pytest.mark.needs("a limited API")),
])
def test_an_extension_compiles_without_a_warning_and_works(options, tmp_path):
    module = compiled_extension("face", tmp_path, "-Wpedantic", *options)
    assert module.sum(np.arange(4.0)) == 6
    assert module.layout() == face.layout()


HEADERS = ("torch/include/ATen/dlpack.h", "cuda/core/_include/dlpack.h", "tvm_ffi/include/dlpack/dlpack.h")


def headers():
    """The copies of dlpack.h that are installed."""
    return [path / header for path in map(Path, sys.path) for header in HEADERS if (path / header).is_file()]


@pytest.mark.parametrize("options", [("-std=c11",), ("-x", "c++", "-std=c++17")], ids=["C", "C++"])
@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("header", headers(), ids=lambda path: path.parts[-3])
def test_the_header_stands_beside_another_dlpack(header, ours_first, options, tmp_path):
    includes = ['#include "dlbridge.h"', f'#include "{header}"']
    source = tmp_path / "both.c"
    source.write_text("\n".join(["#include <Python.h>", *(includes if ours_first else includes[::-1]),
                                 "int ndim(DLManagedTensorVersioned *tensor) { return tensor->dl_tensor.ndim; }",
                                 "int of(dlbridge_View *view) { return view->tensor.ndim; }\n"]))
    subprocess.run([*compile_flags(), *options, "-fsyntax-only", source], check=True, timeout=100)


def test_a_dlpack_before_1_0_says_what_to_do(tmp_path):
    source = tmp_path / "old.c"
    source.write_text('#define DLPACK_DLPACK_H_\n#include "dlbridge.h"\n')
    done = subprocess.run([*compile_flags(), "-fsyntax-only", source], capture_output=True, text=True, timeout=100)
    assert "include dlbridge.h before it" in done.stderr


def test_several_files_share_one_table(tmp_path):
    """The second file has no pointer of its own: only the first imports."""
    (tmp_path / "second.h").write_text("int view_in_the_second(PyObject *obj, dlbridge_View *out);\n")
    flags = ("-DDLBRIDGE_TABLE=shared_table",)
    second = tmp_path / "second.c"
    second.write_text('#include "dlbridge.h"\n#include "second.h"\n'
                      "int view_in_the_second(PyObject *obj, dlbridge_View *out) {\n"
                      "    return DLBRIDGE_TABLE == NULL ? -2 : dlbridge_view(obj, NULL, out);\n}\n")
    compiled = tmp_path / "second.o"
    subprocess.run([*compile_flags(), *flags, "-c", "-fPIC", second, "-o", compiled], check=True, timeout=100)
    module = compiled_extension("face", tmp_path, *flags, "-DDLBRIDGE_DEFINE_TABLE", "-DWITH_A_SECOND_FILE",
                                f"-I{tmp_path}", str(compiled))
    assert module.view_in_the_second(np.zeros(3)) == 3


# ---- the table -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("versions", "loaded"), [
    (((1, 0),), (1, 0)),
    (((1, 7),), (1, 7)),
    (((2, 0), (1, 4)), (1, 4)),
    (((3, 0), (2, 9), (1, 0)), (1, 0)),
])
def test_a_newer_table_loads(versions, loaded, monkeypatch):
    monkeypatch.setattr(dlbridge.face, "_C_API", face.table_of(versions))
    try:
        assert face.import_again() == loaded
        assert face.sum(np.arange(3.0)) == 3
    finally:
        monkeypatch.undo()
        assert face.import_again() == (1, 0)


@pytest.mark.parametrize(("versions", "hint"), [
    (((2, 0),), "update the extension"),
    (((3, 1), (2, 0)), "update the extension"),
    (((0, 9),), "pip install -U dlbridge"),
])
def test_a_table_of_another_major_is_refused(versions, hint, monkeypatch):
    monkeypatch.setattr(dlbridge.face, "_C_API", face.table_of(versions))
    newest = "{}.{}".format(*versions[0])
    with pytest.raises(ImportError, match=rf"^dlbridge: C API: is {newest}, .* built for 1\.0 \({hint}\)$"):
        face.import_again()
    assert face.sum(np.arange(3.0)) == 3, "what was loaded before stays"


def test_an_extension_built_for_a_newer_minor_says_what_to_update(tmp_path):
    header = (Path(dlbridge.get_include()) / "dlbridge.h").read_text()
    (tmp_path / "dlbridge.h").write_text(re.sub(r"(#define DLBRIDGE_API_MINOR) 0", r"\1 3", header))
    with pytest.raises(ImportError, match=r"is 1\.0, and .* was built for 1\.3 \(pip install -U dlbridge\)"):
        compiled_extension("face", tmp_path, f"-I{tmp_path}")


def test_a_dlbridge_without_a_table_says_what_to_do(monkeypatch):
    monkeypatch.delattr(dlbridge.face, "_C_API")
    with pytest.raises(ImportError, match=r"C API: is missing, .* \(pip install -U dlbridge\)"):
        face.import_again()


def test_the_capsule_is_where_its_name_says():
    find = ctypes.pythonapi.PyCapsule_Import
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    table = ctypes.pythonapi.PyCapsule_GetPointer
    table.restype, table.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    assert find(b"dlbridge._C_API", 0) == table(dlbridge.face._C_API, b"dlbridge._C_API")


def test_an_import_that_fails_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "dlbridge", None)
    with pytest.raises(ImportError):
        face.import_again()
    assert face.sum(np.arange(3.0)) == 3


# ---- what is seen ----------------------------------------------------------------------------------------------------

def test_every_field_of_a_view():
    array = numbered((4, 6), "int16")[:, ::2]
    found = seen(array)
    assert (found.data, found.shape, found.strides) == (array.ctypes.data, (4, 3), (6, 2))
    assert (found.dtype, found.device, found.byte_offset, found.flags) == ((0, 16, 1), (1, 0), 0, 0)


LAYOUTS = {
    "compact": lambda array: array,
    "transposed": lambda array: array.T,
    "backwards": lambda array: array[::-1, ::-2],
    "window": lambda array: array[1:3, 2:5],
    "repeated": lambda array: np.broadcast_to(array[0], (5, 6)),
    "no axes": lambda array: array[1, 2, ...],
    "no elements": lambda array: array[:0],
    "one row": lambda array: array[None, 1:2],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("to", params(("numpy", "torch", "dlbridge", "memoryview")))
def test_a_view_shows_what_asdlpack_shows(to, layout):
    array = layout(numbered((4, 6), "float32"))
    if to != "numpy":
        array = dlbridge.convert(array, to, readonly="share")
    tensor = dlbridge.asdlpack(array)
    for _ in range(2):          # by the first one the route is made
        found = seen(array)
        assert (found.shape, found.strides) == (tensor.shape, tensor.strides)
        assert found.data == tensor.data_ptr or not tensor.size
        assert bool(found.flags & READ_ONLY) == tensor.readonly


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "float16", "float64", "complex64", "complex128"])
def test_dtypes(name):
    array = np.zeros(3, name)
    codes = {"b": 6, "i": 0, "u": 1, "f": 2, "c": 5}
    for _ in range(2):
        assert seen(array).dtype == (codes[array.dtype.kind], array.dtype.itemsize * 8, 1)


@pytest.mark.needs("ml_dtypes")
def test_dtypes_of_ml_dtypes():
    import ml_dtypes

    for _ in range(2):
        assert seen(np.zeros(3, ml_dtypes.bfloat16)).dtype == (4, 16, 1)
        found = seen(np.zeros(3, ml_dtypes.int4))
        assert (found.dtype, found.flags) == ((0, 4, 1), PADDED)


@pytest.mark.needs("torch")
def test_dtypes_of_torch():
    import torch

    for _ in range(2):
        for name in ("uint8", "int8", "bool", "float16", "bfloat16", "float8_e5m2", "complex64", "int64"):
            tensor = torch.zeros(3, dtype=getattr(torch, name))
            found = seen(tensor)
            assert (found.data, dlbridge.asdlpack(tensor).dtype) == (tensor.data_ptr(), name)


@pytest.mark.needs("torch")
def test_torch_dtypes_of_fewer_bits_are_not_seen_as_bytes():
    import torch

    tensor = torch.zeros(3, dtype=torch.uint8).view(torch.uint4)
    face.view_anything(torch.zeros(3))
    for _ in range(2):
        with pytest.raises(dlbridge.ConversionError, match="uint4"):
            face.view_anything(tensor)


def test_64_axes():
    array = np.zeros((1,) * 63 + (2,)).view()
    assert seen(array).shape == (1,) * 63 + (2,)


def test_nothing_is_wanted():
    assert face.view_anything(np.zeros((2, 3)))["shape"] == (2, 3)


# ---- what is asked ---------------------------------------------------------------------------------------------------

MET = {
    "dtype": (np.zeros((2, 3)), 0, {"dtype": FLOAT64}),
    "ndim": (np.zeros((2, 3)), 0, {"ndim": 2}),
    "extents": (np.zeros((2, 3)), 0, {"ndim": 2, "shape": (2, -1)}),
    "no axes": (np.zeros(()), 0, {"ndim": 0, "shape": ()}),
    "C order": (np.zeros((2, 3)), C_ORDER, {}),
    "C order, one element": (np.zeros((3, 1)).T, C_ORDER, {}),
    "C order, no elements": (np.zeros((3, 0, 2)).T, C_ORDER, {}),
    "writable": (np.zeros(3), WRITABLE, {}),
    "writable, without elements": (np.zeros((0, 3)), WRITABLE, {}),
    "any device": (np.zeros(3), ANY_DEVICE, {}),
    "all": (np.zeros((2, 3)), WRITABLE | C_ORDER | DETACHED, {"dtype": FLOAT64, "ndim": 2, "shape": (-1, 3)}),
}


@pytest.mark.parametrize(("array", "flags", "wanted"), MET.values(), ids=MET)
def test_what_is_met_is_seen_as_it_is(array, flags, wanted):
    for _ in range(2):
        assert seen(array, flags, **wanted).data == array.ctypes.data


def odd_strides():
    return np.zeros(4, np.dtype([("a", "u1"), ("b", "f8")]))["b"]


def unaligned():
    return np.frombuffer(bytearray(33), "u1")[1:].view("f8") if np.frombuffer(
        bytearray(8), "u1").ctypes.data % 8 == 0 else np.frombuffer(bytearray(32), "f8")


def read_only(array):
    array.flags.writeable = False
    return array


REFUSED = {
    "dtype": (np.zeros(3), 0, {"dtype": FLOAT32}, "dtype float64: is not float32, which is wanted (convert it to"),
    "dtype of as many bits": (np.zeros(3), 0, {"dtype": INT64}, "dtype float64: is not int64"),
    "lanes": (np.zeros(3), 0, {"dtype": (2, 64, 2)}, "dtype float64: is not (code=2, bits=64, lanes=2)"),
    "ndim": (np.zeros((2, 3)), 0, {"ndim": 3}, "shape (2, 3): has 2 axes where 3 are wanted (reshape it)"),
    "axes where none": (np.zeros(3), 0, {"ndim": 0, "shape": ()}, "shape (3,): has 1 axes where 0 are wanted"),
    "extents": (np.zeros((2, 3)), 0, {"ndim": 2, "shape": (-1, 4)}, "is not 4 along axis 1"),
    "read-only": (np.broadcast_to(np.zeros(3), (3,)), WRITABLE, {}, "readonly True: "),
    "bytes": (b"abc", WRITABLE, {}, "readonly True: "),
    "read-only, without elements": (read_only(np.zeros(0)), WRITABLE, {}, "readonly True: "),
    "read-only, byte order": (read_only(np.zeros(3, ">f8")), WRITABLE, {}, "readonly True: "),
    "read-only, C order": (read_only(np.zeros((2, 3)).T), WRITABLE | C_ORDER, {}, "readonly True: "),
    "C order": (np.zeros((2, 3)).T, C_ORDER, {}, "strides (1, 3) of shape (3, 2) are not in C order"),
    "C order, backwards": (np.zeros(3)[::-1], C_ORDER, {}, "strides (-1,) of shape (3,)"),
    "byte order": (np.zeros(3, ">f8"), 0, {}, "byte order is not this machine's"),
    "odd strides": (odd_strides(), 0, {}, "strides (9,) in bytes are no multiples"),
    "list": ([1, 2], 0, {}, "type list: offers no array protocol (pass numpy.asarray(x))"),
    "list, with a dtype": ([1, 2], 0, {"dtype": FLOAT32}, '(pass numpy.asarray(x, "float32"))'),
    "list, with a dtype that NumPy lacks": ([1, 2], 0, {"dtype": (4, 16, 1)}, "(pass numpy.asarray(x))"),
    "name of a library": ("numpy", 0, {}, "source: src 'numpy': offers no array protocol (pass an array)"),
    "fields": (np.zeros(2, "i4,f4"), 0, {}, "has no DLPack type (pass one field, x['f0'])"),
    "dictionary": ({"a": np.zeros(2)}, 0, {}, "offers no array protocol (pass its values one by one)"),
    "number, to be written": (np.float64(1), WRITABLE, {}, "readonly True: is not wanted, since the memory is "),
}


@pytest.mark.parametrize(("array", "flags", "wanted", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_met_is_refused_in_the_callers_name(array, flags, wanted, text):
    for _ in range(2):
        assert text in refused(array, flags, **wanted)


def test_hints_of_what_is_written_work():
    repeated = np.lib.stride_tricks.as_strided(np.zeros(3), (2, 3), (0, 8))
    for array in (b"abcd", np.broadcast_to(np.zeros(3), (2, 3)), repeated):
        hint = re.fullmatch(r".* \((.+)\)", refused(array, WRITABLE))[1]
        code = re.fullmatch("make y = (.+), pass y, and go on with y|pass (.+)", hint)
        made = eval(code[1] or code[2], {"x": array, "dlbridge": dlbridge, "numpy": np})
        assert not seen(made, WRITABLE).flags & READ_ONLY


class Copying:
    """Gives a copy each time, by one of two protocols."""

    array = np.zeros(3)

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, copy=None, **keywords):
        return self.array.__dlpack__(copy=True, **keywords)


class MadeAnew:
    @property
    def __array_interface__(self):
        self.last = np.zeros(3)
        return self.last.__array_interface__


@pytest.mark.parametrize("producer", [pytest.param(Copying, marks=pytest.mark.needs("numpy 2.1")), MadeAnew])
def test_writes_to_a_producers_copy_are_refused(producer):
    """Nobody would see them. What is only read may be a copy."""
    assert refused(producer(), WRITABLE)
    assert seen(producer()).shape == (3,)


def test_writes_over_repeated_elements_are_refused():
    array = np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,), writeable=True)
    for _ in range(2):
        assert "repeat elements" in refused(array, WRITABLE)
    assert seen(array).strides == (0,)


COPIED = {
    "C order": (numbered((2, 3), "float64").T, C_ORDER),
    "C order, backwards": (numbered((4,), "float64")[::-1], C_ORDER),
    "C order, repeated": (np.broadcast_to(numbered((3,), "float64"), (2, 3)), C_ORDER),
    "byte order": (numbered((3,), "float64").astype(">f8"), 0),
    "byte order, C order": (numbered((3, 2), "float64").astype(">f8").T, C_ORDER),
    "odd strides": (odd_strides(), 0),
}


@pytest.mark.parametrize(("array", "flags"), COPIED.values(), ids=COPIED)
def test_what_a_copy_helps_is_copied_if_that_is_asked_for(array, flags):
    for _ in range(2):
        found = seen(array, flags | OR_COPY, dtype=FLOAT64)
        values = np.array(ctypes_array(found))
        assert found.flags & IS_COPIED
        assert np.array_equal(values, array)
        assert found.strides == dlbridge.asdlpack(values).strides or not flags & C_ORDER


def ctypes_array(found):
    """An ndarray over a view of doubles, by its address."""
    return dlbridge.convert(
        dlbridge.from_pointer(found.data, found.shape, "float64", strides=found.strides, owner=found.view), "numpy")


def test_what_is_met_is_not_copied():
    array = np.zeros((2, 3))
    assert seen(array, C_ORDER | OR_COPY).data == array.ctypes.data


@pytest.mark.needs("torch")
def test_torch_in_the_words_of_one_who_has_no_keywords():
    import torch

    parameter = torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert refused(parameter).endswith("(pass x.detach())")
        assert seen(parameter, DETACHED).data == parameter.data_ptr()
        assert "resolve_conj" in refused(torch.ones(3, dtype=torch.complex64).conj())
        assert seen(torch.ones(3, dtype=torch.complex64).conj(), OR_COPY).flags & IS_COPIED
        negated = torch.ones(3, dtype=torch.complex128).conj().imag
        assert ctypes_array(seen(negated, OR_COPY)).tolist() == [0, 0, 0]


# Outside of a call of convert(), which says all.
KEYWORDS = re.compile(r"^(?!.*dlbridge\.convert\().*\b(copy|readonly|detach|device|stream|narrow)=")


@pytest.mark.parametrize("case", [*REFUSED.values()], ids=REFUSED)
def test_no_hint_names_a_keyword_of_convert(case):
    array, flags, wanted, _ = case
    assert not KEYWORDS.search(refused(array, flags, **wanted))


def test_wants_that_make_no_sense_are_refused():
    array = np.zeros(3)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"WRITABLE \| OR_COPY"):
            seen(array, WRITABLE | OR_COPY)
        with pytest.raises(ImportError, match=r"flags 0x40: .* \(pip install -U dlbridge\)"):
            seen(array, 64)
        with pytest.raises(ValueError, match="size 8: is less than 40"):
            seen(array, size=8)
        with pytest.raises(ImportError, match="does not know"):
            seen(array, size=64, beyond=1)
        for wrong in {"count": 1}, {"count": -1}, {"dtypes": (FLOAT64,), "count": -1}:
            with pytest.raises(ValueError, match=r"dtype_count -?\d: is not the number of dtypes"):
                seen(array, **wrong)
        with pytest.raises(ValueError, match="dtypes: are wanted beside dtype"):
            seen(array, dtype=FLOAT64, dtypes=(FLOAT64,))


def test_a_longer_want_of_a_newer_header_is_taken():
    array = np.zeros(3)
    for _ in range(3):
        found = seen(array, size=72, beyond=0)
    assert (found.data, found.owned) == (array.ctypes.data, 0), "and still borrowed"


def test_the_shorter_want_of_an_older_header_is_taken():
    """What lies behind it is no part of it."""
    array = np.zeros(3)
    for size in 40, 48:
        found = seen(array, dtype=FLOAT64, size=size, dtypes=() if size == 48 else (INT64,))
        assert (found.data, found.owned) == (array.ctypes.data, 0)
        assert "is not float32" in refused(array, dtype=FLOAT32, size=size)


@pytest.mark.parametrize("flags", [0, C_ORDER | OR_COPY, WRITABLE])
def test_one_of_several_dtypes(flags):
    wanted = FLOAT32, FLOAT64, (1, 8, 1)
    for dtype, triple in zip(("f4", "f8", "u1"), wanted, strict=True):
        array = np.zeros((2, 3), dtype)
        found = seen(array, flags, dtypes=wanted)
        assert (found.data, found.owned) == (array.ctypes.data, 0)
        assert found.dtype == triple
    said = refused(np.zeros(3, "i4"), flags, dtypes=wanted)
    assert "dtype int32: is none of float32, float64, uint8, which are wanted (convert it to float32 first)" in said
    assert '(pass numpy.asarray(x, "float32"))' in refused([1, 2], flags, dtypes=wanted)
    if flags & OR_COPY:
        found = seen(np.zeros((2, 3), ">f4").T, flags, dtypes=wanted)
        assert (found.dtype, found.owned) == (FLOAT32, 1)


# ---- what keeps the memory -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make", params((
    lambda: np.zeros((2, 3)),
    lambda: np.zeros((2, 3)).T[1:],
    lambda: dlbridge.asdlpack(np.zeros(3)),
)))
def test_nothing_is_held_for_an_array_that_keeps_its_memory(make):
    array = make()
    seen(array)
    before = sys.getrefcount(array)
    found = seen(array)
    assert (found.owned, sys.getrefcount(array)) == (0, before)


@pytest.mark.needs("torch")
def test_nothing_is_held_for_a_torch_tensor():
    import torch

    tensor = torch.zeros(2, 3)
    seen(tensor)
    before = sys.getrefcount(tensor)
    assert (seen(tensor).owned, sys.getrefcount(tensor)) == (0, before)


def test_an_export_is_held_until_the_view_is_released():
    source = bytearray(8)
    found = seen(source)
    assert found.owned
    with pytest.raises(BufferError):
        source.append(1)
    del found
    source.append(1)


def test_the_buffer_under_an_array_is_held():
    """NumPy lets it go, and the memory with it."""
    source = bytearray(16)
    array = np.ndarray((16,), "u1", buffer=source)
    for _ in range(2):
        found = seen(array)
        with pytest.raises(BufferError):
            source.append(1)
        del found
    del array
    source.append(1)


def test_a_registered_source_stands_before_what_is_borrowed():
    class Wrapped(np.ndarray):
        pass

    other = np.full(3, 7.0)
    array = np.zeros(3).view(Wrapped)
    seen(array)
    assert not seen(array).owned
    dlbridge.register_source(Wrapped, lambda obj: other)
    for _ in range(2):
        assert seen(array).data == other.ctypes.data


def test_a_producer_is_let_go_once():
    producer = Producer()
    found = seen(producer)
    assert (found.owned, producer.deleted) == (1, 0)
    del found           # which releases twice
    producer.forget()
    assert producer.deleted == 1


def test_a_refused_producer_is_let_go_once():
    producer = Producer()
    refused(producer, dtype=(0, 16, 1))
    gc.collect()
    producer.forget()
    assert producer.deleted == 1


def test_what_a_producer_raises_passes():
    with pytest.raises(ZeroDivisionError, match="its own"):
        seen(Producer(error=ZeroDivisionError("its own")))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in a thread of its own"])
def test_what_was_acquired_outlives_its_array(elsewhere):
    producer = Producer()
    held = face.acquire(*asked(producer))
    found = face.describe_tensor(held)
    assert found["shape"] == (2, 3)
    if elsewhere:
        face.release_elsewhere(held)
    del held
    producer.forget()
    assert producer.deleted == 1


def test_what_was_acquired_of_an_ndarray():
    array = np.arange(3.0)
    held = face.acquire(*asked(array))
    before = sys.getrefcount(array)
    face.release_elsewhere(held)
    assert sys.getrefcount(array) == before - 1


@pytest.mark.needs("torch")
def test_a_tensor_that_was_acquired_cannot_be_resized():
    import torch

    tensor = torch.zeros(3)
    found = seen(tensor)
    del found
    tensor.resize_(4)               # a view that is gone changes nothing
    held = face.acquire(*asked(tensor))
    with pytest.raises(RuntimeError):
        tensor.resize_(1000)
    del held


# ---- what can change under a view, while the caller holds the array --------------------------------------------------

@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_a_new_shape_of_an_ndarray_does_not_change_its_view():
    array = np.zeros((2, 3))
    seen(array)
    found = seen(array)
    array.shape = (3, 2)
    assert face.describe(found.view)["shape"] == (2, 3)


@pytest.mark.needs("torch")
def test_other_data_under_a_torch_tensor_is_not_seen():
    """As with its borrowed table: the caller keeps other code from that while a view is open, or acquires."""
    import torch

    tensor = torch.zeros(2, 3)
    seen(tensor)
    kept = tensor.detach()
    found = seen(tensor)
    tensor.data = torch.ones(4)
    assert face.describe(found.view)["shape"] == (2, 3)
    assert face.describe(found.view)["data"] == kept.data_ptr()


# ---- what is given ---------------------------------------------------------------------------------------------------

HOW = {"fresh": None, "memory with a function": "drop", "static": "static"}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
@pytest.mark.parametrize("to", params(("numpy", "torch", "jax", "memoryview", "dlbridge")))
def test_memory_of_the_callers_becomes_an_array_of_any_library(to, how):
    before = face.dropped()
    made = face.deliver(face.make((3, 4), FLOAT32, IS_COPIED if how == "drop" else 0, how, 0), to)
    described = dlbridge.asdlpack(made)
    assert (described.shape, described.dtype) == ((3, 4), "float32")
    del described, made
    gc.collect()
    assert face.dropped() == before + (how == "drop")


def test_an_object_owns_the_memory():
    owner = np.arange(3.0)
    before = sys.getrefcount(owner)
    array = face.deliver(face.make((3,), FLOAT64, READ_ONLY, owner, owner.ctypes.data), "numpy")
    assert (array.ctypes.data, array.flags.writeable) == (owner.ctypes.data, False)
    assert sys.getrefcount(owner) == before + 1
    del array
    assert sys.getrefcount(owner) == before


def test_memory_that_nobody_takes_is_let_go():
    before = face.dropped()
    face.make((3, 4), FLOAT32, 0, "drop", 0)
    face.release_elsewhere(face.make((3, 4), FLOAT32, 0, "drop", 0))
    assert face.dropped() == before + 2


@pytest.mark.parametrize(("shape", "dtype", "flags", "field"), [
    ((-1,), FLOAT32, 0, "make: shape"),
    ((2**40, 2**40), FLOAT32, 0, "make: shape"),
    ((3,), (2, 33, 1), 0, "make: dtype"),
    ((1,) * 65, FLOAT32, 0, "make: ndim"),
])
@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_what_cannot_be_described_is_refused_and_nothing_taken(how, shape, dtype, flags, field):
    before = face.dropped()
    with pytest.raises(dlbridge.ConversionError, match=field):
        face.make(shape, dtype, flags, how, 0)
    assert face.dropped() == before


@pytest.mark.parametrize(("function", "field"), [
    ("view", "obj"), ("acquire", "obj"), ("make", "like"), ("deliver", "to")])
def test_null_is_refused_and_what_led_to_it_is_raised(function, field):
    with pytest.raises(ValueError, match=f"^{function}: {field} NULL: is none"):
        face.with_null(function, None)
    with pytest.raises(KeyError, match="why it is NULL"):
        face.with_null(function, KeyError("why it is NULL"))


@pytest.mark.parametrize("ndim", [-3, -2, -1, 1, 3, 65, 1000000])
def test_a_tensor_whose_axes_were_changed_is_refused(ndim):
    before = face.dropped()
    made = face.make((2, 3), FLOAT32, 0, "drop", 0)
    face.change(made, ndim)
    with pytest.raises(ValueError, match=r"^deliver: tensor: has other axes than it was made with"):
        face.deliver(made, "numpy")
    assert face.dropped() == before + 1


def test_an_exception_that_is_left_by_who_lets_go_is_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: reported.append(what.exc_value))
    array = face.deliver(face.make((3,), FLOAT32, 0, "fails", 0), "numpy")
    del array
    with pytest.raises(dlbridge.UnsupportedError, match="no_such_library"):
        face.deliver(face.make((3,), FLOAT32, 0, "fails", 0), "no_such_library")
    assert [str(error) for error in reported] == ["left by a function that lets go"] * 2


@pytest.mark.parametrize(("flags", "nbytes"), [(0, 50_000), (PADDED, 100_000)])
def test_fresh_memory_for_elements_below_a_byte(flags, nbytes):
    def write_all():
        made = face.make((100_000,), (0, 4, 1), flags, None, 0)
        ctypes.memset(face.describe_tensor(made)["data"], 1, nbytes)

    assert run_in_child(write_all).result() is None


def test_unknown_flags_are_refused():
    with pytest.raises(ValueError, match="flags 0x10"):
        face.make((3,), FLOAT32, 16, None, 0)


def test_a_delivery_that_fails_takes_the_memory():
    before = face.dropped()
    with pytest.raises(dlbridge.UnsupportedError, match="no_such_library"):
        face.deliver(face.make((3,), FLOAT32, 0, "drop", 0), "no_such_library")
    with pytest.raises(dlbridge.UnsupportedError):
        face.deliver(face.make((3,), FLOAT32, 0, "drop", 0), 5)
    assert face.dropped() == before + 2


def test_a_delivery_like_an_example():
    for example, kind in ((np.zeros(1), np.ndarray), (np, np.ndarray), (np.ndarray, np.ndarray),
                          (memoryview(b""), memoryview), (dlbridge.asdlpack(b""), dlbridge.Tensor)):
        for _ in range(2):
            assert type(face.deliver(face.make((3,), FLOAT32, 0, None, 0), example)) is kind


def test_a_delivery_like_what_no_library_makes():
    class Interface:
        __array_interface__ = np.zeros(1).__array_interface__

    for example in (b"a", bytearray(1), Interface(), np.float64(1)):
        for _ in range(2):
            assert type(face.deliver(face.make((3,), FLOAT32, 0, None, 0), example)) is np.ndarray
    hint = r"\(pass the name of a library, or an array of it\)"
    with pytest.raises(dlbridge.UnsupportedError, match=rf"^deliver: to .*{hint}$"):
        face.deliver(face.make((3,), FLOAT32, 0, None, 0), [1])
    for wrong in ([1], 5, None, bytes, "bytes"):
        with pytest.raises((dlbridge.UnsupportedError, ValueError)):
            face.deliver(face.make((3,), FLOAT32, 0, None, 0), wrong)


@pytest.mark.needs("torch")
def test_a_delivery_like_a_torch_tensor():
    import torch

    for example in (torch.zeros(1), torch.nn.Parameter(torch.zeros(1)), torch.Tensor, torch):
        for _ in range(2):
            assert isinstance(face.deliver(face.make((3,), FLOAT32, 0, None, 0), example), torch.Tensor)


@pytest.mark.needs("torch")
def test_a_delivery_like_an_array_without_memory_raises():
    """It is an array of a library that is known, so no other library's array takes its place."""
    import torch

    with pytest.raises(dlbridge.UnsupportedError, match="is_meta"):
        face.deliver(face.make((3,), FLOAT32, 0, "drop", 0), torch.zeros(2, device="meta"))


@pytest.mark.needs("torch")
def test_memory_that_is_read_only_is_not_writable_in_torch():
    owner = np.arange(3.0)
    tensor = face.deliver(face.make((3,), FLOAT64, READ_ONLY, owner, owner.ctypes.data), "torch")
    assert (tensor.data_ptr() != owner.ctypes.data, tensor.tolist()) == (True, [0, 1, 2])


@pytest.mark.needs("jax")
def test_memory_that_the_caller_still_writes_is_copied_for_jax():
    owner = np.arange(64.0).view("f4")
    array = face.deliver(face.make((64,), FLOAT32, 0, owner, owner.ctypes.data), "jax")
    before = np.array(array)
    owner[:] = 9
    assert np.array_equal(array, before)


@pytest.mark.parametrize("target", params(("numpy", "torch", "jax")))
def test_there_and_back(target):
    """Taken from any library, given to the same one: the author's whole function."""
    source = dlbridge.convert(numbered((3, 4), "float32"), target, readonly="share")
    held = face.acquire(*asked(source, C_ORDER))
    given = face.deliver(held, source)
    assert type(given) is type(source)
    assert np.array_equal(np.asarray(given), np.asarray(source))


# ---- threads, and the end --------------------------------------------------------------------------------------------

def test_threads_look_at_the_same_arrays():
    arrays = [np.arange(100.0), dlbridge.asdlpack(np.arange(100.0)), bytearray(np.arange(100.0).tobytes())]
    failures = []

    def look():
        for array in itertools.islice(itertools.cycle(arrays[:2]), 2000):
            if face.sum(array) != 4950:
                failures.append(array)
        for _ in range(200):
            failures.extend([1] * (seen(arrays[2]).shape != (800,)))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@in_child(says="released\nreleased\n")
def test_python_ends_with_views_and_tensors_open():
    import os
    import sys

    import numpy as np
    from support.face import load_face

    def asked(obj):
        return obj, 0, None, (0, 0, 0), 0, None, 0, 0, 0, (), 0     # anything

    class Released:
        def __del__(self, write=os.write):
            write(1, b"released\n")

    class Bytes(bytearray):
        pass

    class Array(np.ndarray):
        pass

    owners = Bytes(8), np.zeros(3).view(Array)
    for owner in owners:
        owner.released = Released()
    face = load_face()
    sys.kept = [face.view(*asked(owners[0])), face.acquire(*asked(owners[1])),
                face.make((3,), (2, 32, 1), 0, "drop", 0)]


IN_A_SUBINTERPRETER = """
import importlib.machinery, importlib.util
loader = importlib.machinery.ExtensionFileLoader("face", "LIBRARY")
try:
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("face", loader))
    loader.exec_module(module)
    module.import_again()
except ImportError as error:
    assert "subinterpreter" in str(error), error
else:
    raise AssertionError("it was imported")
"""


def test_a_copy_for_an_extension_is_seen_by_who_watches():
    swapped = np.arange(6.0).astype(">f8")
    with dlbridge.watch() as copies:
        seen(swapped, OR_COPY, name="blur(image)")
    [found] = copies
    assert (found.source, found.nbytes, found.target) == ("numpy.ndarray", 48, "blur(image)")
    assert found.reason == "byte order is not this machine's"


@pytest.mark.parametrize("attempted", [IN_A_SUBINTERPRETER], ids=["import"])
@in_child(says="", warnings="default")
def test_a_subinterpreter_is_refused_and_the_main_one_goes_on(attempted):
    import numpy
    from lifetime.interpreters import attempt
    from support.face import load_face

    face = load_face()
    attempt("legacy", attempted.replace("LIBRARY", face.__file__))
    assert face.sum(numpy.arange(3.0)) == 3
