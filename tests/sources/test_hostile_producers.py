"""What a producer can get wrong, and what must come of it: an error that says so, and nothing lost or done twice.

Whatever may kill the interpreter runs in a forked child, where a signal is a failed case.
"""

import contextlib
import ctypes
import importlib.util
import re
import types

import numpy as np
import pytest
from support import optional
from support.buffers import view_of
from support.child import run_in_child
from support.children import each_in_one_child
from support.face import FACE, load_face
from support.hostile_buffer import HostileBuffer
from support.optional import params, product

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import (
    NOT_GIVEN,
    ArrayInterface,
    ArrayStruct,
    CudaArrayInterface,
    OldProducer,
    OpaqueProducer,
    Producer,
    capsule_name,
    capsule_pointer,
    rename_capsule,
)

pytestmark = pytest.mark.quick

HOUSE_SHAPE = re.compile(r"[^:]+: .+: .+ \(.+\)", re.DOTALL)
TARGETS = ("numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge")
# What is refused before a target is reached goes two ways: convert() and the face for extensions.
WAYS = (*TARGETS, FACE) if optional.FULL else ("numpy", FACE)
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


def cases(table):
    """The lines of a table as parameters."""
    return [pytest.param(*case, id=name) for name, case in table.items()]


@pytest.fixture(autouse=True, scope="module")
def targets_are_loaded():
    """A child inherits what is imported: no test pays for an import of its own."""
    for target in TARGETS:
        with contextlib.suppress(dlbridge.MissingLibraryError):
            dlbridge.convert(np.zeros(2, np.float32), target)
    load_face()


def taken(source, target):
    return load_face().view_anything(source) if target == FACE else dlbridge.convert(source, target)


def refused_by(convert, *arguments):
    """The error of a conversion that must fail, with the house's shape of message."""
    try:
        convert(*arguments)
    except dlbridge.DLBridgeError as error:
        refused = error.with_traceback(None)    # whose frames would keep the capsules
    else:
        pytest.fail("was converted")
    assert HOUSE_SHAPE.fullmatch(str(refused)), str(refused)
    return refused


# ---- DLPack structs --------------------------------------------------------------------------------------------------

STRUCTS = {
    "ndim -1": ({"ndim": -1}, "ndim -1"),
    "ndim 65": ({"ndim": 65, "shape": (1,) * 65, "strides": (1,) * 65}, "ndim 65"),
    "ndim int32 max": ({"ndim": 2**31 - 1}, "ndim 2147483647"),
    "ndim int32 min": ({"ndim": -(2**31)}, "ndim -2147483648"),
    "shape NULL": ({"shape": None}, "shape NULL"),
    "shape and strides NULL": ({"shape": None, "strides": None}, "shape NULL"),
    "data NULL": ({"data": None}, "data NULL"),
    "data NULL, one element": ({"data": None, "ndim": 0}, "data NULL"),
    "data at the end of all addresses": ({"data": 2**64 - 8}, "data 0xfffffffffffffff8"),
    "data at the end of all addresses, repeated": ({"data": 2**64 - 2, "strides": (0, 0)}, "data"),
    "data at their beginning, backwards": ({"data": 8, "strides": (-3, -1)}, "data 0x8"),
    "extent -1": ({"shape": (-1, 3)}, "shape"),
    "extent -1, strides NULL": ({"shape": (-1, 3), "strides": None}, "shape"),
    "extent -1 beside 0": ({"shape": (0, -1)}, "shape"),
    "extent int64 min": ({"shape": (INT64_MIN, 1)}, "shape"),
    "extent int64 max": ({"shape": (INT64_MAX, 1), "strides": (0, 0)}, "shape|strides"),
    "elements overflow": ({"shape": (2**32, 2**32), "strides": (0, 0)}, "shape|strides"),
    "elements overflow to a small count": ({"shape": (2**33, 2**31), "strides": (0, 0)}, "shape|strides"),
    "elements overflow, strides NULL": ({"shape": (2**32, 2**32), "strides": None}, "shape|strides"),
    "elements overflow beside 0": ({"ndim": 3, "shape": (0, 2**40, 2**40), "strides": (1, 1, 1)}, "shape|strides"),
    "elements overflow beside 0, strides NULL": (
        {"ndim": 3, "shape": (2**40, 2**40, 0), "strides": None}, "shape|strides"),
    "bytes overflow": ({"shape": (2**61, 1), "strides": (0, 0)}, "shape|strides"),
    "stride int64 max": ({"strides": (INT64_MAX, 1)}, "strides"),
    "stride int64 min": ({"strides": (INT64_MIN, 1)}, "strides"),
    "stride int64 min, three steps": ({"shape": (4, 3), "strides": (INT64_MIN, 1)}, "strides"),
    "stride overflows in bytes": ({"strides": (2**61, 1)}, "strides"),
    "stride overflows in bytes, backwards": ({"strides": (-(2**61), 1)}, "strides"),
    "strides overflow in sum": ({"shape": (2, 2), "strides": (2**60, 2**60)}, "strides"),
    "strides overflow in sum, backwards": ({"shape": (2, 2), "strides": (-(2**60), -(2**60))}, "strides"),
    "byte_offset uint64 max": ({"byte_offset": 2**64 - 1}, "byte_offset"),
    "byte_offset 2**63": ({"byte_offset": 2**63}, "byte_offset"),
    "byte_offset and strides overflow in sum": (
        {"byte_offset": 2**63 - 1, "strides": (2**60, 1)}, "byte_offset|strides"),
    "device type 0": ({"device_type": 0}, "device_type 0"),
    "device type 5, unused": ({"device_type": 5}, "device_type 5"),
    "device type 19, newer": ({"device_type": 19}, "device_type 19"),
    "device type 33": ({"device_type": 33}, "device_type 33"),
    "device type -1": ({"device_type": -1}, "device_type -1"),
    "device type int32 min": ({"device_type": -(2**31)}, "device_type"),
    "dtype opaque handle": ({"code": 3, "bits": 64}, "dtype"),
    "dtype code 18": ({"code": 18}, "dtype"),
    "dtype code 255": ({"code": 255}, "dtype"),
    "dtype of 0 bits": ({"bits": 0}, "dtype"),
    "dtype of 7 bits": ({"code": 0, "bits": 7}, "dtype"),
    "dtype of 255 bits": ({"bits": 255}, "dtype"),
    "dtype bool of 1 bit": ({"code": 6, "bits": 1}, "dtype"),
    "dtype bfloat of 32 bits": ({"code": 4, "bits": 32}, "dtype"),
    "dtype float6 of 8 bits": ({"code": 15, "bits": 8}, "dtype"),
    "lanes 0": ({"lanes": 0}, "dtype"),
    "lanes 2": ({"lanes": 2}, "dtype"),
    "lanes 65535": ({"lanes": 65535}, "dtype"),
    "packed elements with holes": ({"code": 1, "bits": 4, "strides": (6, 2)}, "strides"),
}


def refuse_struct(fields, versioned, target):
    """Both ways to hand a struct in; what came of it, for the parent to look at."""
    producer = Producer(versioned=versioned, **fields)
    capsule = producer.capsule()
    seen = []
    for source in (producer, capsule):
        error = refused_by(taken, source, target)
        seen.append((type(error), str(error)))
        del error
    names = [capsule_name(capsule), producer.fields["name"]]
    before = producer.deleted
    del capsule, source
    producer.forget()
    return seen, names, producer.calls, before, producer.deleted


@pytest.mark.parametrize("target", params(WAYS))
@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_structs_are_refused_and_not_lost(versioned, target):
    given = each_in_one_child(refuse_struct, {name: (case[0], versioned, target) for name, case in STRUCTS.items()})
    for name, (_, field) in STRUCTS.items():
        seen, (capsule, original), calls, before, after = given[name]
        for kind, text in seen:
            assert re.search(rf": (?:{field})\b", text), (name, text)
            assert issubclass(kind, dlbridge.DeviceError if "device_type" in field else dlbridge.ConversionError), name
        assert capsule == original, (name, "a refused capsule is the producer's still")
        assert len(calls) == 1, name
        assert (before, after) == (0, 2), (name, "each of two structs once, by its own capsule")


@pytest.mark.parametrize("target", params(WAYS))
@pytest.mark.parametrize("version", [(2, 0), (0, 9), (2**32 - 1, 0)], ids=str)
def test_other_major_version_is_not_read(version, target):
    """Beyond the deleter and the flags nothing of such a struct means what it used to: here it would crash."""
    outcome = run_in_child(
        refuse_struct, {"version": version, "ndim": 2**31 - 1, "shape": None, "strides": None}, True, target)
    seen, _, _, before, after = outcome.result()
    assert all("version" in text and str(version[0]) in text for _, text in seen)
    assert (before, after) == (0, 2)


@pytest.mark.parametrize("target", params(TARGETS))
def test_newer_minor_version_is_read(target):
    producer = Producer(version=(1, 99))
    array = dlbridge.convert(producer, target)
    del array
    producer.forget()
    assert producer.deleted == 1


SOUND = {
    "strides NULL": ({"strides": None}, [[0, 1, 2], [3, 4, 5]]),
    "rank 0": ({"ndim": 0}, 0),
    "rank 0, shape and strides NULL": ({"ndim": 0, "shape": None, "strides": None}, 0),
    "no elements, data NULL": ({"shape": (0, 3), "data": None}, np.empty((0, 3))),
    "no elements, odd strides": ({"shape": (0, 3), "strides": (2**40, -(2**40))}, np.empty((0, 3))),
    "extent 1, wild stride": ({"shape": (1, 3), "strides": (INT64_MIN, 1)}, [[0, 1, 2]]),
    "byte_offset": ({"byte_offset": 8, "ndim": 1, "shape": (2,), "strides": (1,)}, [2, 3]),
    "unknown flags": ({"flags": 2**63 | 2**40}, [[0, 1, 2], [3, 4, 5]]),
    "deleter NULL": ({"deleter": None}, [[0, 1, 2], [3, 4, 5]]),
}


def take_struct(fields, versioned, target):
    producer = Producer(versioned=versioned, **fields)
    array = dlbridge.convert(producer, target)
    values = dlbridge.convert(array, "numpy").tolist()
    del array
    producer.forget()
    return values, producer.deleted


@pytest.mark.parametrize("target", params(target for target in TARGETS if target != "jax"))
@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_unusual_but_sound_structs_are_taken(versioned, target):
    given = each_in_one_child(take_struct, {name: (case[0], versioned, target) for name, case in SOUND.items()})
    assert given == {name: (np.asarray(expected).tolist(), 0 if "deleter" in fields else 1)
                     for name, (fields, expected) in SOUND.items()}


# ---- capsules --------------------------------------------------------------------------------------------------------

NAMES = [b"", b"dltensor ", b"DLTensor", b"dltensor_versioned2", b"used", b"torch.Tensor", b"\xff\xfe"]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_capsule_of_another_name(name):
    producer = Producer(name=name)
    error = refused_by(dlbridge.convert, producer.capsule(), "numpy")
    assert isinstance(error, dlbridge.UnsupportedError)
    assert '"dltensor"' in str(error)
    del error
    assert producer.deleted == 1


def test_capsule_without_a_name():
    error = refused_by(dlbridge.convert, np.zeros(2).__array_struct__, "numpy")
    assert isinstance(error, dlbridge.UnsupportedError)
    assert "NULL" in str(error)


@pytest.mark.parametrize("target", params(TARGETS))
@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_capsule_is_consumed_once(versioned, target):
    producer = Producer(versioned=versioned)
    capsule = producer.capsule()
    array = dlbridge.convert(capsule, target)
    assert capsule_name(capsule) == (abi.USED_VERSIONED_NAME if versioned else abi.USED_LEGACY_NAME)
    error = refused_by(taken, capsule, target)
    assert "consumed already" in str(error)
    del array, capsule, error
    assert producer.deleted == 1


@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_capsule_that_is_only_explained_is_not_consumed(versioned):
    producer = Producer(versioned=versioned)
    capsule = producer.capsule()
    plan = dlbridge.explain(capsule, "numpy")
    assert plan.action == "share"
    assert capsule_name(capsule) == (abi.VERSIONED_NAME if versioned else abi.LEGACY_NAME)
    assert producer.deleted == 0
    array = dlbridge.convert(capsule, "numpy")
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    del array, capsule, plan
    assert producer.deleted == 1


@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_capsule_that_can_not_be_explained_is_not_consumed(versioned):
    producer = Producer(versioned=versioned, shape=(-1, 3))
    capsule = producer.capsule()
    plan = dlbridge.explain(capsule, "numpy")
    assert plan.action == "refuse"
    assert "negative extent" in plan.reason
    assert producer.deleted == 0
    del capsule
    assert producer.deleted == 1


def test_renamed_capsule_is_nobodys():
    """Somebody else consumed it, and never ran the deleter: that is theirs to answer for, not ours."""
    producer = Producer()
    capsule = producer.capsule()
    rename_capsule(capsule, abi.USED_VERSIONED_NAME)
    refused_by(dlbridge.convert, capsule, "numpy")
    del capsule
    assert producer.deleted == 0


# ---- producers that raise --------------------------------------------------------------------------------------------

class OwnError(Exception):
    pass


ERRORS = [
    TypeError("an operand has the wrong type"),
    TypeError("__dlpack__() got an unexpected keyword argument 'max_version'"),
    ValueError("a value"),
    BufferError("cannot be exported"),
    RuntimeError("out of luck"),
    AttributeError("'NoneType' object has no attribute 'data'"),
    NotImplementedError(),
    MemoryError(),
    OwnError("of the producer"),
    KeyboardInterrupt(),
    SystemExit(3),
    StopIteration(),
]


@pytest.mark.parametrize("kind", [Producer, OldProducer])
@pytest.mark.parametrize(("error", "target"), params(product(ERRORS, TARGETS)))
def test_error_of_a_producer_passes_through_untouched(error, kind, target):
    """Also a TypeError that looks like an old signature, where the signature is known: it is called once."""
    producer = kind(error=error)
    with pytest.raises(BaseException) as caught:
        dlbridge.convert(producer, target)
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert len(producer.calls) == 1


@pytest.mark.parametrize("error", [error for error in ERRORS if "max_version" not in str(error)], ids=repr)
def test_producer_of_unknown_signature_is_called_once(error):
    producer = OpaqueProducer(error=error)
    with pytest.raises(BaseException) as caught:
        dlbridge.convert(producer, "numpy")
    assert caught.value is error
    assert len(producer.calls) == 1


def test_unknown_signature_without_max_version_is_called_again():
    class Old(OpaqueProducer):
        def __dlpack__(self, **keywords):
            self.calls.append(keywords)
            if keywords:
                raise TypeError(f"unexpected keyword argument {next(iter(keywords))!r}")
            return self.capsule()

    first, second = Old(versioned=False), Old(versioned=False)
    assert dlbridge.convert(first, "numpy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert first.calls == [{"max_version": (1, 3)}, {}]
    dlbridge.convert(second, "numpy")
    assert second.calls[-1] == {}
    assert len(second.calls) <= 2, "what one object of a type taught may be known for the next"


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [(Producer, {"max_version": (1, 3)}), (OldProducer, {}), (OpaqueProducer, {"max_version": (1, 3)})],
    ids=["modern", "stream alone", "unknown"])
def test_keywords_that_a_producer_is_given(kind, keywords):
    producer = kind()
    dlbridge.convert(producer, "numpy")
    assert producer.calls == [keywords]


def test_copy_false_is_passed_on_and_checked():
    producer = Producer()
    dlbridge.convert(producer, "numpy", copy=False)
    assert producer.calls == [{"max_version": (1, 3), "copy": False}]
    copier = Producer(flags=abi.IS_COPIED)
    with pytest.raises(dlbridge.CopyRequiredError, match="made a copy"):
        dlbridge.convert(copier, "numpy", copy=False)
    copier.forget()
    assert copier.deleted == 1


@pytest.mark.parametrize("fields", [
    pytest.param({}, id="sound"),
    pytest.param({"ndim": -1}, id="refused"),
])
def test_error_survives_a_capsule_that_dies_with_it(fields):
    """A producer may keep nothing: then its capsule dies while dlbridge's error is on its way."""

    def convert_both():
        texts = []
        for keeps in (True, False):
            producer = Producer(keeps=keeps, **fields)
            try:
                dlbridge.convert(producer, "numpy")
            except dlbridge.DLBridgeError as error:
                texts.append(str(error))
            else:
                texts.append("converted")
            producer.forget()
            texts.append(producer.deleted)
        return texts

    outcome = run_in_child(convert_both)
    kept, deleted, dropped, deleted_too = outcome.result()
    assert kept == dropped
    assert deleted == deleted_too == 1
    assert outcome.stderr == ""


NOT_CAPSULES = [None, 0, b"dltensor", "dltensor", object(), (), np.zeros(2), Producer(), ctypes.c_void_p(0)]


@pytest.mark.parametrize("returned", NOT_CAPSULES, ids=lambda value: type(value).__name__)
def test_dlpack_method_that_returns_no_capsule(returned):
    class Wrong(Producer):
        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            return returned

    error = refused_by(dlbridge.convert, Wrong(), "numpy")
    assert "__dlpack__" in str(error)
    assert type(returned).__qualname__ in str(error)


def test_dlpack_method_that_returns_a_used_capsule():
    class Twice(Producer):
        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            if not self._capsules:
                self._capsules.append(self.capsule())
            return self._capsules[0]

    producer = Twice()
    array = dlbridge.convert(producer, "numpy")
    assert "consumed already" in str(refused_by(dlbridge.convert, producer, "numpy"))
    del array
    producer.forget()
    assert producer.deleted == 1


# More digits than Python writes out: no message may fail over them.
UNWRITABLE = 10**5000


def name_of(value):
    try:
        return type(value).__name__ if isinstance(value, memoryview) else re.sub(" at 0x[0-9a-f]+", "", repr(value))
    except ValueError:
        return f"{type(value).__name__} of unwritable numbers"


class Liar(int):
    """A number that is within all limits, by its own account."""

    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True

    def __eq__(self, other):
        return False

    __hash__ = int.__hash__


DEVICES = [
    None, 1, (), (1,), (1, 0, 0), ("cpu", 0), (1, "0"), (2**70, 0), (1, 2**70), (None, None), "cpu", {1: 0, 2: 0, 3: 0},
    (UNWRITABLE, 0), memoryview(bytes(4)).cast("B", (2, 2))]


def test_dlpack_device_that_is_rubbish():
    class Nowhere(Producer):
        def __dlpack_device__(self):
            return self.device

    def convert_it(device):
        producer = Nowhere()
        producer.device = device
        return str(refused_by(dlbridge.convert, producer, "numpy"))

    given = each_in_one_child(convert_it, {name_of(device): (device,) for device in DEVICES})
    assert [text for text in given.values() if "__dlpack_device__" not in text] == []


@pytest.mark.parametrize("device", [(-1, 0), (0, 0), (99, 0), (2**31 - 1, 0), (-(2**31), 0), (1, -1)], ids=repr)
def test_dlpack_device_that_the_struct_contradicts(device):
    """The struct is what counts; refusing is right too, crashing or reading elsewhere is not."""
    class Elsewhere(Producer):
        def __dlpack_device__(self):
            return device

    def convert_it():
        try:
            return dlbridge.convert(Elsewhere(), "numpy").tolist()
        except dlbridge.DLBridgeError as error:
            return str(error)

    answer = run_in_child(convert_it).result()
    assert answer == [[0, 1, 2], [3, 4, 5]] or "__dlpack_device__" in answer


@pytest.mark.parametrize("error", ERRORS[2:], ids=repr)
def test_dlpack_device_that_raises(error):
    class Fails(Producer):
        def __dlpack_device__(self):
            raise error

    producer = Fails()
    with pytest.raises(BaseException) as caught:
        dlbridge.convert(producer, "numpy")
    assert caught.value is error
    assert not producer.calls


def test_dlpack_device_without_an_id():
    class Paddle(Producer):
        def __dlpack_device__(self):
            return 1, None

    assert dlbridge.convert(Paddle(), "numpy").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("target", params(TARGETS))
def test_the_flag_of_padding_says_nothing_of_whole_bytes(target):
    producer = Producer(flags=4)
    tensor = dlbridge.asdlpack(dlbridge.convert(producer, target))
    for source in (tensor, tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 3))):
        assert dlbridge.convert(source, "numpy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not capsule_struct_flags(tensor)


def capsule_struct_flags(tensor):
    capsule = tensor.__dlpack__(max_version=(1, 3))
    address = capsule_pointer(capsule, b"dltensor_versioned")
    return abi.DLManagedTensorVersioned.from_address(address).flags & abi.SUBBYTE_PADDED


@pytest.mark.parametrize("device_type", [2, 8, 10, 14], ids=["cuda", "metal", "rocm", "oneapi"])
def test_memory_elsewhere_is_not_read_by_the_host(device_type):
    def convert_it(target):
        producer = Producer(device_type=device_type)
        error = refused_by(taken, producer, target)
        producer.forget()
        return type(error), producer.deleted, producer.calls

    for target in ("numpy", "memoryview"):
        kind, deleted, (keywords,) = run_in_child(convert_it, target).result()
        assert issubclass(kind, dlbridge.DeviceError)
        assert deleted == 1
        assert keywords.get("stream") != 0 or device_type == 10, "0 is forbidden for CUDA"


def test_struct_is_read_once():
    """What a producer changes afterwards changes nothing that was checked."""
    producer = Producer()
    capsule = producer.capsule()
    array = dlbridge.convert(capsule, "dlbridge")
    struct = producer._exports[0].struct
    struct.dl_tensor.shape[0] = 2**40
    struct.dl_tensor.strides[0] = 2**40
    struct.dl_tensor.ndim = -5
    assert array.shape == (2, 3)
    assert dlbridge.convert(array, "numpy").tolist() == [[0, 1, 2], [3, 4, 5]]


# ---- __array_interface__ ---------------------------------------------------------------------------------------------

class Truth:
    """Its truth is nobody's business."""

    def __bool__(self):
        raise OwnError("asked for its truth")


class Sliced(str):
    """A string whose parts are none."""

    __slots__ = ()

    def __getitem__(self, _):
        return []


INTERFACES = {
    "shape missing": ({"shape": NOT_GIVEN}, "shape"),
    "shape None": ({"shape": None}, "shape"),
    "shape a list": ({"shape": [2, 3]}, "shape"),
    "shape a string": ({"shape": "23"}, "shape"),
    "shape of strings": ({"shape": ("2", "3")}, "shape"),
    "shape of floats": ({"shape": (2.0, 3.0)}, "shape"),
    "shape negative": ({"shape": (-2, 3)}, "shape"),
    "shape beyond 64 bits": ({"shape": (2**70, 3)}, "shape"),
    "shape unwritable": ({"shape": (UNWRITABLE, 3)}, "shape"),
    "shape overflows": ({"shape": (2**40, 2**40), "strides": None}, "shape|strides"),
    "shape of 65": ({"shape": (1,) * 65, "strides": None}, "ndim"),
    "shape of 1000, with strides": ({"shape": (1,) * 1000, "strides": (4,) * 1000}, "ndim"),
    "typestr missing": ({"typestr": NOT_GIVEN}, "typestr"),
    "typestr bytes": ({"typestr": b"<f4"}, "typestr"),
    "typestr empty": ({"typestr": ""}, "typestr"),
    "typestr without a size": ({"typestr": "<f"}, "typestr"),
    "typestr of size 0": ({"typestr": "<f0"}, "typestr"),
    "typestr of a huge size": ({"typestr": "<f99999999999999999999"}, "typestr"),
    "typestr of a negative size": ({"typestr": "<f-4"}, "typestr"),
    "typestr of no order": ({"typestr": "?f4"}, "typestr"),
    "typestr that answers by itself": ({"typestr": Sliced("<j4")}, "typestr"),
    "typestr of no kind": ({"typestr": "<\u0166" + "4"}, "typestr"),
    "typestr of a date": ({"typestr": "<M8[ns]"}, "typestr"),
    "typestr of objects": ({"typestr": "|O8"}, "typestr"),
    "typestr of text": ({"typestr": "<U4"}, "typestr"),
    "typestr of void": ({"typestr": "|V4"}, "typestr"),
    "typestr of bits": ({"typestr": "|t1"}, "typestr"),
    "typestr of long double": ({"typestr": "<f16"}, "typestr"),
    "strides a list": ({"strides": [12, 4]}, "strides"),
    "strides too few": ({"strides": (4,)}, "strides"),
    "strides too many": ({"strides": (12, 4, 4)}, "strides"),
    "strides of strings": ({"strides": ("12", "4")}, "strides"),
    "strides beyond 64 bits": ({"strides": (2**70, 4)}, "strides"),
    "strides unwritable": ({"strides": (UNWRITABLE, 4)}, "strides"),
    "strides overflow": ({"strides": (2**62, 4), "shape": (5, 3)}, "strides"),
    "strides int64 min": ({"strides": (INT64_MIN, 4), "shape": (3, 3)}, "strides"),
    "data an address alone": ({"data": 4096}, "data"),
    "data missing, no buffer": ({"data": NOT_GIVEN}, "data"),
    "data None, no buffer": ({"data": None}, "data"),
    "data of strings": ({"data": ("0x1000", False)}, "data"),
    "data of three": ({"data": (4096, False, 0)}, "data"),
    "data of one": ({"data": (4096,)}, "data"),
    "data negative": ({"data": (-8, False)}, "data"),
    "data beyond 64 bits": ({"data": (2**64, False)}, "data"),
    "data at the end of all addresses": ({"data": (2**64 - 8, False), "strides": None}, "data"),
    "data unwritable": ({"data": (UNWRITABLE, False)}, "data"),
    "data NULL": ({"data": (0, False)}, "data"),
    "data a short buffer": ({"data": bytearray(23), "strides": None}, "shape"),
    "data a short buffer, backwards": ({"data": bytearray(24), "strides": (-12, 4)}, "shape"),
    "data an empty buffer": ({"data": b"", "strides": None}, "shape"),
    "data a buffer with gaps": ({"data": memoryview(bytes(96))[::2], "strides": None}, "data"),
    "offset negative": ({"data": bytearray(24), "strides": None, "offset": -4}, "offset"),
    "offset beyond the buffer": ({"data": bytearray(24), "strides": None, "offset": 25}, "offset"),
    "offset huge": ({"data": bytearray(24), "strides": None, "offset": 2**70}, "offset"),
    "offset a string": ({"data": bytearray(24), "strides": None, "offset": "4"}, "offset"),
    "offset that leaves too little": ({"data": bytearray(24), "strides": None, "offset": 4}, "shape"),
    "mask": ({"mask": np.zeros((2, 3), bool)}, "mask"),
}


def convert_interface(kind, entries, target):
    holder = kind(**entries)
    error = refused_by(taken, holder, target)
    return type(error), str(error)


@pytest.mark.parametrize("target", params(WAYS))
def test_array_interfaces_are_refused(target):
    given = each_in_one_child(
        convert_interface, {name: (ArrayInterface, case[0], target) for name, case in INTERFACES.items()})
    for name, (_, field) in INTERFACES.items():
        kind, text = given[name]
        assert issubclass(kind, dlbridge.ConversionError), name
        assert re.search(rf"^array_interface: (.*\W)?'?(?:{field})'?\b", text), (name, text)


@pytest.mark.parametrize("target", params(WAYS))
def test_array_interface_that_is_no_description(target):
    class Holder:
        def __init__(self, interface):
            self.__array_interface__ = interface

    def convert_it(interface):
        return str(refused_by(taken, Holder(interface), target))

    given = each_in_one_child(
        convert_it, {repr(each): (each,) for each in (None, 3, (), "shape", [("shape", (2,))], {})})
    assert [text for text in given.values() if not text.startswith("array_interface: ")] == []


def test_array_interface_is_asked_for_once():
    class Counted:
        asked = 0
        array = np.arange(3)

        @property
        def __array_interface__(self):
            type(self).asked += 1
            return self.array.__array_interface__

    dlbridge.convert(Counted(), "numpy")
    assert Counted.asked == 1


@pytest.mark.parametrize("attribute", ["__array_interface__", "__array_struct__", "__cuda_array_interface__"])
@pytest.mark.parametrize("error", [error for error in ERRORS if not isinstance(error, AttributeError)], ids=repr)
def test_property_that_raises_passes_through(attribute, error):
    def fail(self):
        raise error

    holder = type("Holder", (), {attribute: property(fail)})()
    with pytest.raises(BaseException) as caught:
        dlbridge.convert(holder, "numpy")
    assert caught.value is error


def test_truth_of_the_read_only_flag_that_raises_passes_through():
    holder = ArrayInterface()
    holder.__array_interface__["data"] = (holder.array.ctypes.data, Truth())
    with pytest.raises(OwnError):
        dlbridge.convert(holder, "numpy")


def test_array_interface_that_changes_while_it_is_read():
    def convert_it():
        class Emptied:
            """Empties the dict when asked whether the memory is read-only."""

            def __bool__(self):
                interface.clear()
                return False

        holder = ArrayInterface()
        interface = holder.__array_interface__
        interface["data"] = (holder.array.ctypes.data, Emptied())
        return dlbridge.convert(holder, "numpy").tolist()

    assert run_in_child(convert_it).result() == [[0, 1, 2], [3, 4, 5]]


class Growing(tuple):
    """A tuple that says another length each time it is asked."""

    def __new__(cls, values):
        made = super().__new__(cls, values)
        made.asked = 0
        return made

    def __len__(self):
        self.asked += 1
        return super().__len__() * 1000**(self.asked - 1)


def test_tuple_that_lies_about_its_length():
    def convert_it():
        for shape, strides in ((Growing((2, 3)), (12, 4)), ((2, 3), Growing((12, 4)))):
            try:
                array = dlbridge.convert(ArrayInterface(shape=shape, strides=strides), "numpy")
            except dlbridge.DLBridgeError:
                continue
            assert array.tolist() == [[0, 1, 2], [3, 4, 5]]

    run_in_child(convert_it).result()


@pytest.mark.needs("torch")
def test_subclass_of_tuple_is_a_shape():
    import torch

    array = dlbridge.convert(ArrayInterface(shape=torch.Size((2, 3))), "numpy")
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]


VERSION_2 = {
    "sound": ({}, None),
    "shape of strings": ({"__array_shape__": ("2",)}, "shape"),
    "typestr of nothing": ({"__array_typestr__": ""}, "typestr"),
    "data no hexadecimal digits": ({"__array_data__": ("0xZZ", False)}, "data"),
    "data beyond 64 bits": ({"__array_data__": ("0x1" + 16 * "0", False)}, "data"),
    "data alone": ({"__array_data__": "0x1000"}, "data"),
    "strides too many": ({"__array_strides__": (8, 8)}, "strides"),
    "mask": ({"__array_mask__": np.zeros(4, bool)}, "mask"),
}


@pytest.mark.parametrize(("attributes", "field"), cases(VERSION_2))
def test_attributes_of_version_2(attributes, field):
    memory = np.arange(4.0)
    sound = {
        "__array_shape__": (4,), "__array_typestr__": "<f8", "__array_data__": (hex(memory.ctypes.data), False),
        "memory": memory,
    }
    holder = type("Holder", (), sound | attributes)()
    if field is None:
        assert dlbridge.convert(holder, "numpy").tolist() == [0, 1, 2, 3]
    else:
        assert f"'{field}'" in str(refused_by(dlbridge.convert, holder, "numpy"))


# ---- __array_struct__ ------------------------------------------------------------------------------------------------

ARRAY_STRUCTS = {
    "two is 1": ({"two": 1}, "two"),
    "nd -1": ({"nd": -1}, "ndim"),
    "nd 65": ({"nd": 65, "shape": (1,) * 65, "strides": (4,) * 65}, "ndim"),
    "nd int32 max": ({"nd": 2**31 - 1}, "ndim"),
    "shape NULL": ({"shape": None}, "shape"),
    "extent negative": ({"shape": (-1, 3)}, "shape"),
    "extents overflow": ({"shape": (2**40, 2**40)}, "shape|strides"),
    "strides int64 min": ({"shape": (3, 3), "strides": (INT64_MIN, 4)}, "strides"),
    "data NULL": ({"data": None}, "data"),
    "itemsize 0": ({"itemsize": 0}, "typekind"),
    "itemsize -4": ({"itemsize": -4}, "typekind"),
    "itemsize huge": ({"itemsize": 2**31 - 1}, "typekind"),
    "typekind of text": ({"typekind": b"U", "itemsize": 4}, "typekind"),
    "typekind NUL": ({"typekind": b"\0"}, "typekind"),
    "typekind 255": ({"typekind": b"\xff"}, "typekind"),
    "capsule with a name": ({"name": b"dltensor"}, "__array_struct__"),
}


def convert_array_struct(fields, target):
    holder = ArrayStruct(**fields)
    error = refused_by(taken, holder, target)
    kind, text = type(error), str(error)
    del error
    holder.forget()
    return kind, text, holder.deleted


@pytest.mark.parametrize("target", params(WAYS))
def test_array_structs_are_refused(target):
    given = each_in_one_child(convert_array_struct, {name: (case[0], target) for name, case in ARRAY_STRUCTS.items()})
    for name, (_, field) in ARRAY_STRUCTS.items():
        kind, text, deleted = given[name]
        assert issubclass(kind, dlbridge.ConversionError), name
        assert re.search(rf"^array_struct: '?(?:{field})\b", text), (name, text)
        assert deleted == 1, name


def test_array_struct_without_strides():
    assert dlbridge.convert(ArrayStruct(strides=None), "numpy").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("value", [None, 1, b"", object()], ids=name_of)
def test_array_struct_that_is_no_capsule(value):
    holder = type("Holder", (), {"__array_struct__": value})()
    assert "__array_struct__" in str(refused_by(dlbridge.convert, holder, "numpy"))


# ---- buffers ---------------------------------------------------------------------------------------------------------

BUFFERS = {
    "len too small": ({"len": 4}, "len"),
    "len too large": ({"len": 4096}, "len"),
    "extents negative": ({"shape": (-2, -3)}, "shape"),
    "extents overflow": ({"shape": (2**40, 2**40)}, "shape|strides"),
    "strides int64 min": ({"shape": (3, 3), "strides": (INT64_MIN, 4), "len": 36}, "strides"),
    "suboffsets": ({"suboffsets": (0, -1)}, "suboffsets"),
    "format of objects": ({"format": b"O", "itemsize": 8, "len": 48, "strides": (24, 8)}, "format"),
    "format of a struct": ({"format": b"T{f:x:}"}, "format"),
    "format of two": ({"format": b"ff", "itemsize": 8, "len": 48}, "format"),
    "format with a count": ({"format": b"2h"}, "format"),
    "format empty": ({"format": b""}, "format"),
    "format unknown": ({"format": b"j"}, "format"),
    "format not ASCII": ({"format": b"\xff"}, "format"),
    "format of another size": ({"format": b"d"}, "format"),
    "format Z of nothing": ({"format": b"Z"}, "format"),
    "format of long double": ({"format": b"g", "itemsize": 16, "len": 96, "strides": (48, 16)}, "format"),
    "itemsize 0": ({"itemsize": 0, "len": 0}, "format"),
    "itemsize 3": ({"itemsize": 3, "len": 18}, "format"),
    "itemsize negative": ({"itemsize": -4}, "format"),
}


def convert_view(fields, target):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    error = refused_by(taken, view_of(array, **fields), target)
    return type(error), str(error)


@pytest.mark.parametrize("target", params(WAYS))
def test_buffers_are_refused(target):
    given = each_in_one_child(convert_view, {name: (case[0], target) for name, case in BUFFERS.items()})
    for name, (_, field) in BUFFERS.items():
        kind, text = given[name]
        assert issubclass(kind, dlbridge.ConversionError), name
        assert re.search(rf"^buffer: (?:{field})\b", text), (name, text)


@pytest.mark.skipif(importlib.util.find_spec("_testbuffer") is None, reason="this Python ships without _testbuffer")
def test_buffer_with_suboffsets():
    import _testbuffer

    buffer = _testbuffer.ndarray(list(range(6)), shape=[2, 3], format="i", flags=_testbuffer.ND_PIL)
    assert "suboffsets" in str(refused_by(dlbridge.convert, buffer, "numpy"))


@pytest.mark.parametrize("ndim", [65, 2**31 - 1, -1])
@pytest.mark.parametrize("target", params(WAYS))
def test_buffer_of_impossible_rank_with_suboffsets(ndim, target):
    """Nothing of so long a list is read: this one has a single entry."""
    def convert_it():
        exporter = HostileBuffer(ndim=ndim, suboffsets=(-1,))
        text = str(refused_by(taken, exporter, target))
        return text, exporter.exported, exporter.released

    text, exported, released = run_in_child(convert_it).result()
    assert f"ndim {ndim}" in text
    assert exported == released == 1


@pytest.mark.parametrize("fields", [{"format": b"j"}, {"ndim": 1, "shape": None}, {"suboffsets": (0, -1)}], ids=str)
def test_buffer_that_is_refused_is_let_go(fields):
    exporter = HostileBuffer(**fields)
    refused_by(dlbridge.convert, exporter, "numpy")
    assert exporter.exported == exporter.released == 1


@pytest.mark.parametrize("target", params(WAYS))
def test_array_interface_over_a_buffer_that_lies_about_its_axes(target):
    """Its shape is NULL: a memoryview of it would crash in Python itself, and only the bytes are asked for."""
    def convert_it():
        data = HostileBuffer(ndim=2, shape=None, strides=None, len=24)
        return dlbridge.convert(ArrayInterface(data=data, strides=None), "numpy").tolist(), data.exported

    values, exported = run_in_child(convert_it).result()
    assert values == [[0, 1, 2], [3, 4, 5]]
    assert exported == 1


def test_released_memoryview():
    view = memoryview(bytearray(4))
    view.release()
    with pytest.raises(ValueError, match="released"):
        dlbridge.convert(view, "numpy")


# ---- __cuda_array_interface__, without a driver ----------------------------------------------------------------------

@pytest.mark.parametrize("target", params(["numpy", "torch", "dlbridge", "dlpack"]))
def test_cuda_array_interface_without_a_driver(target):
    given = each_in_one_child(
        convert_interface, {version: (CudaArrayInterface, {"version": version}, target) for version in range(4)})
    assert [text for kind, text in given.values() if not issubclass(kind, dlbridge.DeviceError)] == []


CUDA_INTERFACES = {
    name: case for name, case in INTERFACES.items() if "buffer" not in name and "offset" not in name
} | {
    "version negative": ({"version": -1}, "version"),
    "version a string": ({"version": "3"}, "version"),
    "stream 0": ({"stream": 0}, "stream"),
    "stream negative": ({"stream": -5}, "stream"),
    "stream a string": ({"stream": "1"}, "stream"),
    "stream unwritable": ({"stream": UNWRITABLE}, "stream"),
    "stream that compares as it likes": ({"stream": Liar(2**70)}, "stream"),
}


@pytest.mark.needs("torch")
def test_cuda_array_interfaces_are_refused():
    given = each_in_one_child(
        convert_interface, {name: (CudaArrayInterface, case[0], "torch") for name, case in CUDA_INTERFACES.items()})
    for name, (_, field) in CUDA_INTERFACES.items():
        kind, text = given[name]
        assert issubclass(kind, dlbridge.ConversionError), name
        assert re.search(rf"^cuda_array_interface: '?(?:{field})\b", text), (name, text)


# ---- keywords --------------------------------------------------------------------------------------------------------

class Stream:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


KEYWORDS = {
    "device unwritable": ({"device": (1, UNWRITABLE)}, dlbridge.DeviceError, "device"),
    "device of an unwritable index": (
        {"device": types.SimpleNamespace(type="cuda", index=UNWRITABLE)}, dlbridge.DeviceError, "device"),
    "copy unwritable": ({"copy": UNWRITABLE}, TypeError, "copy"),
    "readonly unwritable": ({"readonly": UNWRITABLE}, ValueError, "readonly"),
    "stream unwritable": ({"stream": UNWRITABLE}, dlbridge.DeviceError, "stream"),
    "stream that compares as it likes": ({"stream": Liar(2**70)}, dlbridge.DeviceError, "stream"),
    "device that compares as it likes": ({"device": (1, Liar(2**70))}, dlbridge.DeviceError, "device"),
    "stream object that answers a number": ({"stream": Stream(7)}, TypeError, "stream"),
    "stream object that answers nothing": ({"stream": Stream(())}, TypeError, "stream"),
    "stream object that answers not-a-number": ({"stream": Stream((0, float("nan")))}, TypeError, "stream"),
}


@pytest.mark.parametrize(("keywords", "kind", "field"), cases(KEYWORDS))
def test_keyword_of_no_value(keywords, kind, field):
    with pytest.raises(kind, match=f"^convert: {field} "):
        dlbridge.convert(np.zeros(2), "numpy", **keywords)


def test_target_that_cannot_be_written_is_explained():
    plan = dlbridge.explain(np.zeros(2), UNWRITABLE)
    assert (plan.action, plan.target) == ("refuse", "of type int")


# ---- no arrays at all ------------------------------------------------------------------------------------------------

NOT_ARRAYS = [None, 1, 1.5, "text", [1, 2], (1, 2), {}, {1}, object(), object, Producer, np, len, range(3), NOT_GIVEN]


@pytest.mark.parametrize(("thing", "target"), params(product(NOT_ARRAYS, (*TARGETS, FACE))))
def test_what_is_no_array(thing, target):
    error = refused_by(taken, thing, target)
    assert isinstance(error, dlbridge.UnsupportedError)
    assert (thing.__name__ if isinstance(thing, type) else type(thing).__name__) in str(error)
