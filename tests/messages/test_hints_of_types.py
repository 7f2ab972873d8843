"""What is said of an object of which no library's file knows anything: the way to its array that its type has."""

import collections
import dataclasses
import functools
import sys
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from support.hints import code_in

import dlbridge
from dlbridge.testing.producers import Producer

ARRAY = np.arange(3.0)


def refused(x):
    with pytest.raises(dlbridge.UnsupportedError) as caught:
        dlbridge.convert(x, "numpy")
    assert dlbridge.explain(x, "numpy").hint == caught.value.hint
    return caught.value.hint


class Method:
    def to_numpy(self):
        return ARRAY


class Camel:
    def GetArray(self):
        return ARRAY


class Property:
    @property
    def value(self):
        return ARRAY


class Cached:
    @functools.cached_property
    def values(self):
        return ARRAY


class Slot:
    __slots__ = ("data",)

    def __init__(self):
        self.data = ARRAY


class Inherited(Method):
    """The way of its base."""


class Arguments:
    """Whose first way needs more than the object."""

    def to_numpy(self, dtype):
        raise AssertionError

    def read(self, size=-1):
        return ARRAY.tobytes()


class Made:
    @staticmethod
    def asarray(x):
        raise AssertionError

    @classmethod
    def from_array(cls, x):
        raise AssertionError

    def tobytes(self):
        return ARRAY.tobytes()


class Numbers:
    def __array__(self, dtype=None, copy=None):
        return ARRAY

    def numpy(self):
        raise AssertionError


class NoNumbers(Method):
    __array__ = None


class Bytes:
    def __bytes__(self):
        return ARRAY.tobytes()


class Items:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return ARRAY[index]


class Named(Mapping):
    def __getitem__(self, name):
        return {"x": ARRAY}[name]

    def __iter__(self):
        return iter(["x"])

    def __len__(self):
        return 1


class Table:
    def to_pandas(self):
        return {"x": ARRAY}


@pytest.mark.parametrize(("kind", "code"), [
    (Method, "x.to_numpy()"), (Camel, "x.GetArray()"), (Property, "x.value"), (Cached, "x.values"), (Slot, "x.data"),
    (Inherited, "x.to_numpy()"), (Arguments, "x.read()"), (Made, "x.tobytes()"), (Numbers, "numpy.asanyarray(x)"),
    (NoNumbers, "x.to_numpy()"), (Bytes, "bytes(x)"), (Items, "numpy.array(x)"),
])
def test_the_way_of_a_type_is_named_and_leads_to_its_array(kind, code):
    x = kind()
    assert refused(x) == f"pass {code}, if that gives an array"
    given = eval(code, {"x": x, "numpy": np})
    made = dlbridge.convert(given, "numpy", **({"dtype": "float64"} if isinstance(given, bytes) else {}))
    assert made.tolist() == ARRAY.tolist()


@pytest.mark.parametrize(("kind", "code"), [
    (Named, "dlbridge.convert_tree(dict(x), to)"), (Table, "dlbridge.convert_tree(x.to_pandas(), to)")])
def test_a_type_of_several_arrays(kind, code):
    x = kind()
    assert refused(x) == f"call {code}"
    given = eval(code, {"dlbridge": dlbridge, "x": x, "to": "numpy"})
    assert given["x"].tolist() == ARRAY.tolist()


class Proxy:
    """Has every attribute, and nothing is called while its error is worded."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError(name)


class Meta(type):
    def __getattr__(cls, name):
        raise AttributeError(name) if name.startswith("__") else AssertionError(name)


class Waiting(metaclass=Meta):
    def get(self):
        raise AssertionError


class Signed:
    """A method whose signature cannot be had."""

    @property
    def __signature__(self):
        raise OSError

    def __call__(self):
        return ARRAY


def test_a_type_may_have_anything_in_it():
    odd = type("Odd", (), {"to_numpy": Signed(), "__array__": None})
    assert refused(odd()) == "pass x.to_numpy(), if that gives an array"
    numbered = type("Numbered", (), {1: 2, "read": lambda self: b"a"})
    assert refused(numbered()) == "pass x.read(), if that gives an array"


def test_nothing_of_the_object_is_called():
    assert "__dlpack__" in refused(Proxy())
    assert refused(Waiting()) == "pass x.get(), if that gives an array"


# ---- libraries that are not installed here: classes of the same shape -----------------------------------------------

def of_library(module, name, **attributes):
    return type(name, (), {"__module__": module, **attributes})()


LIKE = {
    "casadi.DM": of_library("casadi.casadi", "DM", __array__=None, full=lambda self: ARRAY),
    "obspy.Trace": of_library("obspy.core.trace", "Trace", data=ARRAY),
    "obspy.Stream": of_library("obspy.core.stream", "Stream", __iter__=lambda self: iter([LIKE["obspy.Trace"]])),
    "openmm.Quantity": of_library(
        "openmm.unit.quantity", "Quantity", unit="nm", value_in_unit=lambda self, unit: ARRAY),
    "cvxpy.Variable": of_library("cvxpy.expressions.expression", "Expression", value=ARRAY),
    "deltalake.DeltaTable": of_library("deltalake.table", "DeltaTable", to_pyarrow_table=lambda self: {"x": ARRAY}),
    "msgpack.ExtType": of_library("msgpack.ext", "ExtType", data=ARRAY.tobytes()),
    "jpype, an array of arrays": of_library(
        "_jpype", "_JObject", __len__=lambda self: 2, __getitem__=lambda self, at: [ARRAY[:1], ARRAY[1:]][at]),
    "jpype, a list": of_library("_jpype", "_JObject", __iter__=lambda self: iter(ARRAY)),
    "jpype, a buffer": of_library("_jpype", "_JObject", hasArray=lambda self: True, array=lambda self: ARRAY),
}


@pytest.mark.parametrize("name", LIKE)
def test_the_hints_for_libraries_that_are_not_installed(name):
    x = LIKE[name]
    code = next(code_in(refused(x), ("numpy", "dlbridge")))
    given = eval(code, {"x": x, "numpy": np, "dlbridge": dlbridge, "to": "numpy"})
    if isinstance(given, (list, dict)):
        given, = given.values() if isinstance(given, dict) else given
    described = {"dtype": "float64"} if isinstance(given, bytes) else {}
    assert dlbridge.convert(given, "numpy", **described).tolist() == ARRAY.tolist()


def test_what_has_no_numbers_gets_no_code():
    symbol = of_library("casadi.casadi", "SX", __array__=lambda self: None)
    assert refused(symbol) == "it is a symbol, and has no numbers"


# ---- containers ------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Sample:
    x: object
    name: str = ""


Image = collections.namedtuple("Image", ("width", "height", "pixels"))
Frame = collections.namedtuple("Frame", ("name", "pixels"))
TREE = "call dlbridge.convert_tree(x, to)"


@pytest.mark.parametrize("x", [
    Sample(ARRAY), Sample({"deep": [ARRAY]}), Image(3, 1, ARRAY), Frame("a", ARRAY), [1, ARRAY], (3, "label", [ARRAY]),
    [None, ARRAY], [{"x": ARRAY}], collections.deque([ARRAY]), [[ARRAY], []], [Sample(ARRAY)], [np.float32(1), ARRAY],
], ids=lambda x: type(x).__name__)
def test_what_has_an_array_anywhere_is_a_tree(x):
    assert refused(x) == TREE
    made = dlbridge.convert_tree(x, "dlbridge")
    assert "Tensor(" in repr(made)
    assert repr(ARRAY) not in repr(made)


@pytest.mark.parametrize(("x", "hint"), [
    (Sample(3), "it has no arrays in it"),
    (Sample({"deep": ["text"]}), "it has no arrays in it"),
    (collections.UserDict(a=1), "it has no arrays in it"),
    ({"a": 1.5}, "it has no arrays: pass its values one by one"),
    ([Method()], "it has no arrays and no numbers: pass its items one by one, x[0]"),
    ([b"ab", b"c"], "it has no arrays and no numbers: pass its items one by one, x[0]"),
    ([np.float32(1), 2], "pass numpy.asarray(x)"),
    ([[np.float32(1)], [Fraction(1, 2)]], "pass numpy.asarray(x)"),
    ([], "pass numpy.asarray(x)"),
])
def test_what_has_no_array_is_no_tree(x, hint):
    assert refused(x) == hint
    for code in code_in(hint, ("numpy",)):
        eval(code, {"x": x, "numpy": np})


def test_a_container_that_is_in_itself():
    x = collections.deque()
    x.append(x)
    assert refused(x)


# ---- objects that are numbers ----------------------------------------------------------------------------------------

class Half:
    """As mpmath's and sympy's: registered as a number, and no subclass of Python's."""

    def __float__(self):
        return 0.5


def test_objects_that_are_registered_as_numbers():
    import numbers

    numbers.Real.register(Half)
    for x in (np.array([Half(), Half()]), np.array([Half(), Decimal("0.5")])):
        with pytest.raises(dlbridge.ConversionError, match=r'\(pass x\.astype\("float64"\)'):
            dlbridge.asdlpack(x)
        assert x.astype("float64").tolist() == [0.5, 0.5]


# ---- errors of producers ---------------------------------------------------------------------------------------------

class Camera(Producer):
    def to_numpy(self):
        return self.array


@pytest.mark.parametrize("verb", [dlbridge.convert, dlbridge.explain, dlbridge.convert_tree])
def test_an_error_of_a_producer_is_as_it_is_with_a_hint_as_a_note(verb):
    x = Camera(error=RuntimeError("the camera is off"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the camera is off") as caught:
            verb(x, "numpy")
        assert str(caught.value) == "the camera is off"
        assert caught.value is x.error
        if sys.version_info >= (3, 11):
            assert x.error.__notes__ == ["pass x.to_numpy(), if that gives an array"]


class Telling(RuntimeError):
    """Has notes of its own, or refuses them."""

    def add_note(self, note):
        raise OSError("no notes")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes before 3.11")
def test_notes_of_an_error_are_its_own():
    error = RuntimeError("the camera is off")
    error.add_note("since noon")
    with pytest.raises(RuntimeError, match="off"):
        dlbridge.convert(Camera(error=error), "numpy")
    assert error.__notes__ == ["since noon"]
    with pytest.raises(Telling, match="off"):
        dlbridge.convert(Camera(error=Telling("off")), "numpy")


def test_what_is_taken_apart_by_a_function_is_not_for_a_hint():
    class Read:
        pass

    dlbridge.register_container(Read, lambda reader: pytest.fail("was read"), lambda reader, values: reader)
    assert "convert_tree" in refused([Read()])


@pytest.mark.parametrize("error", [MemoryError(), RecursionError(), KeyboardInterrupt(), SystemExit()])
def test_what_no_hint_helps_against_has_none(error):
    with pytest.raises(type(error)):
        dlbridge.convert(Camera(error=error), "numpy")
    assert not hasattr(error, "__notes__")


# ---- a buffer slot without a buffer ----------------------------------------------------------------------------------

def closed_mapping():
    import mmap

    mapped = mmap.mmap(-1, 16)
    mapped.close()
    return mapped


def released_view():
    view = memoryview(bytearray(3))
    view.release()
    return view


@pytest.mark.parametrize("make", [closed_mapping, released_view])
def test_an_exporter_of_pythons_own_is_an_array_whose_error_is_seen(make):
    for call in (dlbridge.convert, lambda x, to: dlbridge.convert_tree({"x": x, "y": ARRAY}, to)):
        with pytest.raises(ValueError, match=r"closed|released"):
            call(make(), "numpy")


with_slots = pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python have no buffer slot before 3.12")


class Empty:
    """Of Python 3.12: a slot that gives a buffer only sometimes."""

    def __init__(self, error=None):
        self.error = error

    def __buffer__(self, flags):
        if self.error is None:
            return memoryview(bytearray(b"abc"))
        raise self.error


@with_slots
@pytest.mark.parametrize("kind", [BufferError, TypeError, ValueError])
def test_what_has_a_slot_alone_and_no_buffer_is_no_array(kind):
    error = kind("there is none")
    x = Empty(error)
    with pytest.raises(dlbridge.UnsupportedError, match="Empty: gives no buffer: there is none") as caught:
        dlbridge.convert(x, "numpy")
    assert caught.value.__cause__ is error
    made = dlbridge.convert_tree({"x": x, "y": ARRAY, "z": Empty()}, "numpy")
    assert made["x"] is x
    assert made["z"].tolist() == [97, 98, 99]
    with pytest.raises(dlbridge.UnsupportedError, match=r"\['x'\]"):
        dlbridge.convert_tree({"x": x}, "numpy", others="raise")


@with_slots
def test_another_error_of_a_slot_is_the_producers():
    with pytest.raises(OSError, match="the device is gone"):
        dlbridge.convert_tree([Empty(OSError("the device is gone"))], "numpy")
