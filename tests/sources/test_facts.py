"""What is known of libraries: one file each, looked up by the bases of a type, loaded when it is first wanted."""

import re
import sys

import pytest
from support.children import in_child
from support.lacking import TARGETS

from dlbridge.libraries import library as lookup
from dlbridge.libraries.library import Fact, Facts, applies, libraries, library_named, library_of

EVIDENCE = r"[\w.-]+#\d+|dlpack \d\.\d|numpy \d\.\d|PEP 3118|seen in ([\w.-]+ )?[\d.]+( with TensorFlow [\d.]+)?"


def every_fact():
    """Each fact of each library, with where it stands."""
    for library in (*libraries().values(), *TARGETS):
        for record in (library, *library.arrays):
            for field in record._fields:
                value = getattr(record, field)
                for fact in value if isinstance(value, tuple) and not isinstance(value, Fact) else (value,):
                    if isinstance(fact, Fact):
                        yield f"{library.name}.{field}", fact


def is_sound(fact):
    bounded = not (fact.since and fact.below) or lookup.release(fact.since) < lookup.release(fact.below)
    return re.fullmatch(EVIDENCE, fact.evidence) and fact.value and bounded


def test_every_fact_has_evidence():
    facts = list(every_fact())
    assert len(facts) > 400
    assert [(where, fact) for where, fact in facts if not is_sound(fact)] == []


def test_a_file_has_the_library_of_its_name():
    assert {name for name in lookup.files() if library_named(name) is None} == set()
    assert library_named("nonsense") is None
    assert library_named("profiles") is None


def test_versions_bound_a_fact():
    fact = Fact(1, "seen in 2.0", since="2.0", below="2.10")
    assert [applies(fact, version) for version in ("1.9", "2.0", "2.9.1+cpu", "2.10.0", "", "main")] == [
        False, True, True, False, False, False]


def test_types_in_modules_of_another_name_are_found():
    assert library_of("jaxlib") is library_named("jax")
    assert library_of("PIL").name == "pillow"
    assert library_of("no_such_library") is None


@pytest.mark.needs("torch")
def test_facts_are_inherited():
    import torch

    class Special(torch.nn.Parameter):
        pass

    class MoreSpecial(Special):
        pass

    for kind in (torch.nn.Parameter, Special, MoreSpecial):
        assert Facts(kind).exchange == "torch.nn.parameter.Parameter"
        assert Facts(kind).names_stream is True       # of Tensor
        assert Facts(kind).hint("is_sparse") == "pass x.to_dense()"
    assert Facts(torch.Tensor).exchange == "torch.Tensor"


def test_a_type_that_says_it_is_of_a_library_which_is_not_there_has_no_facts():
    pretender = type("Tensor", (), {"__module__": "mindspore.common.tensor"})
    assert "mindspore" not in sys.modules
    assert Facts(pretender).gives is None


@in_child
def test_facts_of_a_library_that_is_imported_later_are_found_then():
    import sys
    import types

    from dlbridge.libraries.library import Facts

    facts = Facts(type("Tensor", (), {"__module__": "mindspore.common.tensor"}))
    assert facts.gives is None
    sys.modules["mindspore"] = types.ModuleType("mindspore")
    assert facts.gives is not None


@in_child
def test_a_file_is_loaded_with_the_first_type_of_its_library():
    import sys

    import numpy

    import dlbridge

    def loaded():
        return {name.rpartition(".")[2] for name in sys.modules if name.startswith("dlbridge.libraries.")}

    assert loaded() == set()
    dlbridge.convert(numpy.zeros(3), "memoryview")
    assert "numpy.ma" not in sys.modules
    assert loaded() == {"library", "memoryview", "numpy", "others", "profiles"}


@pytest.mark.parametrize(("name", "package", "delivered"), [
    (library.name, library.top.partition(".")[0], bool(library.delivery))
    for library in libraries().values() if "." in library.top])
@in_child
def test_a_library_whose_package_is_missing_is_named(name, package, delivered):
    import importlib.metadata
    import sys

    import pytest

    # An installed plug-in may add a target of the same name, and needs the library as well: none is looked up here.
    importlib.metadata.entry_points = lambda **wanted: ()
    import dlbridge

    class Absent:
        def find_spec(self, wanted, path=None, target=None):
            if wanted == package:
                raise ModuleNotFoundError(f"No module named {wanted!r}", name=wanted)

    sys.meta_path.insert(0, Absent())
    with pytest.raises(dlbridge.MissingLibraryError if delivered else dlbridge.UnsupportedError):
        dlbridge.convert(bytearray(8), name)


NEW_LIBRARY = '''
"""A library that nobody has taught dlbridge: no protocol, bytes for its elements, a constructor."""

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import NO_LABELS, NO_SUBBYTE, PLAIN, compact

SEEN = "seen in 1.0"

LIBRARY = Library(
    name="toyarrays",
    arrays=(
        Arrays("Array", gives=Fact(lambda array: array.memory, SEEN),
               element_type=Fact(lambda array: array.kind, SEEN)),
        Arrays("Remote", gives=Fact(lambda array: array.memory.copy(), SEEN), copies=Fact(True, SEEN)),
        Arrays("Either", gives=Fact(lambda array: array.memory, SEEN)),
        Arrays("Nothing", {"": "pass toyarrays.Array()"}),
    ),
    delivery="importer:prepare_for_ndarrays",
    importer=lambda toyarrays, array, dtype: toyarrays.Array(array, dtype),
    array_types=("Array",),
    lacks=(*compact(SEEN), *PLAIN, Fact("READ_ONLY", SEEN, "writes"), *NO_LABELS, *NO_SUBBYTE),
    dtypes=(Fact(("int16", "float16"), SEEN),),
)
'''
MODULE = """
class Array:
    def __init__(self, memory, kind):
        self.memory, self.kind = memory, kind

class Remote(Array):
    pass

class Either(bytearray):
    memory = None

class Nothing:
    pass
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "toyarrays.py").write_text(NEW_LIBRARY)
    (tmp_path / "toyarrays.py").write_text(MODULE)
    return str(tmp_path)


@in_child
def test_a_library_takes_one_file(folder):
    import re
    import sys

    import numpy
    import pytest

    import dlbridge
    import dlbridge.libraries

    sys.path.insert(0, folder)
    dlbridge.libraries.__path__.append(f"{folder}/libraries")
    import toyarrays

    source = numpy.arange(6, dtype="int16")
    array = dlbridge.convert(source, "toyarrays", copy=False)
    assert type(array) is toyarrays.Array
    assert (array.kind, array.memory.ctypes.data) == ("int16", source.ctypes.data)
    assert dlbridge.convert(source, toyarrays) is not dlbridge.convert(array, toyarrays)
    assert dlbridge.convert(array, "toyarrays") is array
    halves = dlbridge.convert(toyarrays.Array(source, "float16"), "numpy")
    assert (halves.dtype, halves.ctypes.data) == ("float16", source.ctypes.data)
    assert "toyarrays" in dlbridge.targets()
    remote = toyarrays.Remote(source, "int16")
    assert dlbridge.convert(remote, "numpy").ctypes.data != source.ctypes.data
    assert dlbridge.explain(remote, "numpy").action == "copy"
    with pytest.raises(dlbridge.CopyRequiredError, match=": copy False: "):
        dlbridge.convert(remote, "numpy", copy=False)
    either = toyarrays.Either(b"abc")
    assert dlbridge.convert(either, "numpy").tolist() == [97, 98, 99]       # by its own buffer
    either.memory = source
    assert dlbridge.convert(either, "numpy") is not source
    assert dlbridge.convert(either, "numpy").ctypes.data == source.ctypes.data
    for refused, hint in ((numpy.zeros(3), "float64"), (toyarrays.Nothing(), "pass toyarrays.Array()"),
                          (toyarrays.Array(None, "int16"), "pass something with __dlpack__"),
                          (toyarrays.Array(source, "float32"), "another type"),
                          (toyarrays.Array(source, "i3"), "another type")):
        with pytest.raises(dlbridge.DLBridgeError, match=re.escape(hint)):
            dlbridge.convert(refused, "toyarrays" if hint == "float64" else "numpy")
