"""Arrow's C interfaces: what is shared, what is refused, and that every array is released once."""

import contextlib
import ctypes
import gc
import threading

import numpy as np
import pyarrow
import pytest
from support.arrow_producers import OfArray, OfDeviceArray, OfStream, address_of
from support.compiling import compiled

import dlbridge
from dlbridge.testing.child import run_in_child
from dlbridge.testing.producers import new_capsule

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
KINDS = pytest.mark.parametrize("make", [OfArray, OfDeviceArray], ids=["array", "device array"])


# ---- pyarrow ---------------------------------------------------------------------------------------------------------

@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_are_shared_and_read_only(dtype):
    source = pyarrow.array(np.arange(5).astype(dtype))
    array = dlbridge.convert(source, "numpy", copy=False)
    assert array.dtype == dtype
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert array.ctypes.data == source.buffers()[1].address
    assert not array.flags.writeable
    assert dlbridge.explain(source, "numpy").protocol == "arrow"


@pytest.mark.needs("pyarrow")
def test_slices_begin_where_they_begin():
    source = pyarrow.array(range(10))[3:7]
    array = dlbridge.convert(source, "numpy", copy=False)
    assert array.tolist() == [3, 4, 5, 6]
    assert array.ctypes.data == source.buffers()[1].address + 24


@pytest.mark.needs("pyarrow")
def test_chunked_array_of_one_chunk_is_shared():
    chunk = pyarrow.array(range(10))
    for source in (pyarrow.chunked_array([chunk]), pyarrow.chunked_array([chunk[:0], chunk, chunk[10:]])):
        array = dlbridge.convert(source, "numpy", copy=False)
        assert array.tolist() == list(range(10))
        assert array.ctypes.data == chunk.buffers()[1].address


@pytest.mark.needs("pyarrow")
def test_nulls_that_a_slice_leaves_out_do_not_matter():
    source = pyarrow.array([1, None, 3])
    assert dlbridge.convert(source[2:], "numpy").tolist() == [3]
    with pytest.raises(dlbridge.ConversionError, match="null_count 1: "):
        dlbridge.convert(source[1:], "numpy")


REFUSED = {
    "bool": (lambda: pyarrow.array([True]), r"format 'b': has eight bools in a byte \(cast it to uint8"),
    "nulls": (lambda: pyarrow.array([1, None]), r"null_count 1: .*\(pass x.fill_null\(0\), or x.drop_null\(\)\)"),
    "strings": (lambda: pyarrow.array(["a"]), "format 'u': are strings"),
    "lists": (lambda: pyarrow.array([[1]]), r"format '\+l': are nested \(pass x.flatten\(\)"),
    "only nulls": (lambda: pyarrow.nulls(3), "format 'n': has nothing but nulls"),
    "dates": (lambda: pyarrow.array([0], pyarrow.date32()), r"format 'tdD': are dates \(cast it to int32"),
    "points in time": (lambda: pyarrow.array([0], pyarrow.timestamp("s")), "format 'tss:': are points in time"),
    "decimals": (lambda: pyarrow.array([1], pyarrow.decimal128(3)), "format 'd:3,0': are decimals"),
    "categories": (lambda: pyarrow.array(["a"]).dictionary_encode(), r"dictionary 'i': .*x.dictionary_decode\(\)"),
    "columns": (lambda: pyarrow.table({"a": [1]}), r"format '\+s': has columns \(pass its columns one by one\)"),
    "chunks": (lambda: pyarrow.chunked_array([[1], [2]]), r"chunks 2 or more: .*x.combine_chunks\(\)"),
    "no chunk": (lambda: pyarrow.chunked_array([], pyarrow.int8()), "chunks 0: are no memory"),
}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_array_library_has_is_refused_with_a_way_out(make, words):
    with pytest.raises(dlbridge.ConversionError, match=words):
        dlbridge.convert(make(), "numpy")


@pytest.mark.needs("pyarrow")
def test_memory_lives_as_long_as_what_was_made_of_it():
    before = pyarrow.total_allocated_bytes()
    source = pyarrow.array(range(1000))
    arrays = [dlbridge.convert(source, "numpy") for _ in range(3)]
    del source
    assert pyarrow.total_allocated_bytes() > before
    assert all(array.sum() == 499500 for array in arrays)
    del arrays
    assert pyarrow.total_allocated_bytes() == before


# ---- released once ---------------------------------------------------------------------------------------------------

@KINDS
def test_array_is_released_when_the_last_consumer_lets_go(make):
    source = make()
    array = dlbridge.convert(source, "numpy")
    view = array[2:]
    assert array.tolist() == [0, 1, 2, 3, 4, 5]
    assert array.ctypes.data == source.values.ctypes.data
    del array
    gc.collect()
    assert source.released["array"] == 0
    assert view.tolist() == [2, 3, 4, 5]
    del view
    assert source.released["array"] == 1


@KINDS
def test_array_is_moved_out_of_its_capsule(make):
    source = make()
    array = dlbridge.convert(source, "numpy")
    given = [kept for kept in source.kept if hasattr(kept, "null_count") or hasattr(kept, "array")][-1]
    assert getattr(given, "array", given).release is None
    del array
    assert source.released == {"schema": 0, "array": 1, "stream": 0}    # the schema is the capsule's to release


def test_stream_of_one_chunk():
    source = OfStream(6)
    array = dlbridge.convert(source, "numpy")
    assert array.tolist() == [0, 1, 2, 3, 4, 5]
    assert source.released == {"schema": 1, "array": 0, "stream": 1}
    del array
    assert source.released == {"schema": 1, "array": 1, "stream": 1}


@pytest.mark.parametrize("lengths", [(6, 6), (0, 6, 0, 6), (6, 0, 6, 6)])
def test_every_chunk_that_was_asked_for_is_released(lengths):
    source = OfStream(*lengths)
    with pytest.raises(dlbridge.ConversionError, match="chunks 2 or more"):
        dlbridge.convert(source, "numpy")
    asked = sum(hasattr(kept, "null_count") for kept in source.kept)
    assert source.released == {"schema": 1, "array": asked, "stream": 1}


@pytest.mark.parametrize("lengths", [(0, 6), (6, 0), (0, 6, 0), (0, 0, 6, 0, 0)])
def test_chunks_without_elements_are_passed_over(lengths):
    source = OfStream(*lengths)
    assert dlbridge.convert(source, "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    assert source.released == {"schema": 1, "array": len(lengths), "stream": 1}


def test_explaining_leaves_nothing_behind():
    source = OfStream(6)            # which cannot be looked at without being read
    assert dlbridge.explain(source, "numpy").action == "share"
    assert source.released == {"schema": 1, "array": 1, "stream": 1}


@KINDS
def test_explaining_leaves_an_array_to_its_capsule(make):
    source = make()
    method = "__arrow_c_array__" if make is OfArray else "__arrow_c_device_array__"
    given = getattr(source, method)()
    again = type("Again", (), {method: lambda self, requested_schema=None: given})()
    for _ in range(2):
        assert dlbridge.explain(again, "numpy").action == "share"
    assert source.released == {"schema": 0, "array": 0, "stream": 0}
    assert dlbridge.convert(again, "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    assert dlbridge.explain(again, "numpy").action == "refuse"


def test_released_by_a_thread_of_its_own():
    source = OfArray()
    results = [dlbridge.convert(source, "numpy")]
    thread = threading.Thread(target=results.clear)
    thread.start()
    thread.join()
    assert source.released["array"] == 1


def test_exception_that_is_on_its_way_survives_the_release():
    def fail():
        array = dlbridge.convert(OfArray(), "memoryview")
        raise ValueError(array.nbytes)

    with pytest.raises(ValueError, match="24"):
        fail()


# ---- lies ------------------------------------------------------------------------------------------------------------

LIES = {
    "length": ({"length": -1}, "offset, length 0, -1: "),
    "offset": ({"offset": -1}, "offset, length -1, 6: "),
    "end": ({"offset": 2**63 - 3}, "offset, length 9223372036854775805, 6: "),
    "far": ({"offset": 2**62, "length": 1}, "byte_offset "),
    "just too far": ({"offset": 2**60 + 1, "length": 1}, "byte_offset "),
    "too long": ({"length": 2**62}, "shape"),
    "no memory": ({"data": None}, "data NULL: has no memory for 6 elements"),
    "buffers": ({"n_buffers": 1}, "n_buffers 1: "),
    "no buffers": ({"buffers": False}, "buffers NULL: "),
    "more nulls than elements": ({"null_count": 7}, "null_count 7: "),
    "negative nulls": ({"null_count": -2}, "null_count -2: "),
    "consumed": ({"release": None}, "release NULL: "),
    "no schema": ({"schema_release": None}, "release NULL: is that of no schema"),
    "no format": ({"format": None}, "format NULL: "),
    "no letter": ({"format": b""}, "format '': has no DLPack type"),
    "two letters": ({"format": b"ff"}, "format 'ff': has no DLPack type"),
    "not UTF-8": ({"format": b"\xff"}, "format '\ufffd': has no DLPack type"),
}


@KINDS
@pytest.mark.parametrize(("fields", "words"), LIES.values(), ids=LIES)
def test_lies_are_seen(make, fields, words):
    source = make(**fields)
    with pytest.raises(dlbridge.ConversionError, match=words):
        dlbridge.convert(source, "numpy")
    # What was not taken is still the capsule's, and that is ours here; what was taken is let go.
    assert source.released["array"] <= 1
    assert source.released["schema"] == 0


@KINDS
def test_no_elements_need_no_memory(make):
    assert dlbridge.convert(make(length=0, data=None), "numpy").shape == (0,)


@KINDS
def test_nulls_that_nobody_has_counted_are_counted(make):
    bits = [1, 0, 1, 1, 1, 1, 1, 1, 1, 0]
    assert dlbridge.convert(make(null_count=-1), "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    assert dlbridge.convert(make(null_count=-1, bits=bits, offset=2, length=4), "numpy").tolist() == [2, 3, 4, 5]
    with pytest.raises(dlbridge.ConversionError, match="null_count 1: "):
        dlbridge.convert(make(null_count=-1, bits=bits, offset=1, length=4), "numpy")


@pytest.mark.parametrize("answer", [None, (), (1, 2), [None, None], "text", (1, 2, 3)])
@pytest.mark.parametrize("name", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_answer_that_is_no_pair_of_capsules(name, answer):
    source = type("Source", (), {name: lambda self: answer})()
    with pytest.raises(dlbridge.ConversionError, match=f"{name} {type(answer).__name__}: is not a pair of capsules"):
        dlbridge.convert(source, "numpy")


def test_capsules_that_are_swapped():
    class Source(OfArray):
        def __arrow_c_array__(self):
            return super().__arrow_c_array__()[::-1]

    with pytest.raises(dlbridge.ConversionError, match="is not a pair of capsules"):
        dlbridge.convert(Source(), "numpy")


def test_stream_that_is_none():
    with pytest.raises(dlbridge.ConversionError, match="__arrow_c_stream__ int: is no capsule"):
        dlbridge.convert(type("Source", (), {"__arrow_c_stream__": lambda self: 1})(), "numpy")
    with pytest.raises(dlbridge.ConversionError, match="release NULL: is that of a stream that was consumed"):
        dlbridge.convert(OfStream(6, stream_release=None), "numpy")


@pytest.mark.parametrize(("make", "method"), [
    (OfArray, "__arrow_c_array__"),
    (OfDeviceArray, "__arrow_c_device_array__"),
    (lambda: OfStream(6), "__arrow_c_stream__"),
], ids=["array", "device array", "stream"])
def test_capsules_that_are_given_again_are_consumed_once(make, method):
    source = make()
    given = getattr(source, method)()
    again = type("Again", (), {method: lambda self, requested_schema=None: given})()
    array = dlbridge.convert(again, "numpy")
    with pytest.raises(dlbridge.ConversionError, match=r"is that of an? [a-z]+ that was consumed before"):
        dlbridge.convert(again, "numpy")
    assert array.tolist() == [0, 1, 2, 3, 4, 5]
    del array
    assert source.released["array"] == 1


def test_stream_is_taken_before_it_is_asked():
    """What it runs may come here again, in this thread or another."""
    refused = []

    class Source(OfStream):
        def schema(self):
            with pytest.raises(dlbridge.ConversionError, match="stream that was consumed") as raised:
                dlbridge.convert(again, "numpy")
            refused.append(raised)
            return super().schema()

    source = Source(6)
    capsule = source.__arrow_c_stream__()
    again = type("Again", (), {"__arrow_c_stream__": lambda self, requested_schema=None: capsule})()
    assert dlbridge.convert(again, "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    assert len(refused) == 1
    assert source.released == {"schema": 1, "array": 1, "stream": 1}


@pytest.mark.parametrize(("field", "call"), [("schema_error", "get_schema"), ("next_error", "get_next")])
def test_error_of_a_stream_is_told(field, call):
    with pytest.raises(dlbridge.ConversionError, match=f"{call} 5: is the producer's error: it gives no reason"):
        dlbridge.convert(OfStream(6, **{field: 5}), "numpy")
    with pytest.raises(dlbridge.ConversionError, match=f"{call} 5: is the producer's error: no disk"):
        dlbridge.convert(OfStream(6, said=b"no disk", **{field: 5}), "numpy")


@pytest.fixture(scope="module")
def callbacks(tmp_path_factory):
    return ctypes.CDLL(str(compiled("arrow_streams.c", tmp_path_factory.mktemp("c"))))


@pytest.mark.parametrize("call", ["get_schema", "get_next"])
@pytest.mark.parametrize(("name", "kind"), [
    ("leaves_error", OSError), ("leaves_interrupt", KeyboardInterrupt), ("leaves_and_succeeds", KeyboardInterrupt)])
def test_exception_that_a_stream_leaves_behind_is_raised(callbacks, call, name, kind):
    source = OfStream(6, **{call: address_of(callbacks[name])})
    with pytest.raises(kind):
        dlbridge.convert(source, "numpy")
    assert source.released["stream"] == 1


@pytest.mark.parametrize("call", ["get_schema", "get_next"])
def test_stream_is_asked_without_the_gil(call):
    """It may wait for threads that want it. The function tells whether the GIL is held; 1 is an error to its caller."""
    source = OfStream(6, **{call: address_of(ctypes.pythonapi.PyGILState_Check)})
    with pytest.raises(dlbridge.ConversionError) as raised:
        dlbridge.convert(source, "numpy")
    assert f"{call} 1" not in str(raised.value)


def test_stream_may_end_itself():
    source = OfStream(6, ends_itself=True)
    assert dlbridge.convert(source, "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    assert source.released == {"schema": 1, "array": 1, "stream": 1}


def test_chunk_of_a_call_that_failed_is_released():
    class Source(OfStream):
        def field(self, name, default):
            return 5 if name == "next_error" and sum(hasattr(kept, "null_count") for kept in self.kept) == 2 \
                else super().field(name, default)

    source = Source(6, 6)
    with pytest.raises(dlbridge.ConversionError, match="get_next 5"):
        dlbridge.convert(source, "numpy")
    assert source.released == {"schema": 1, "array": 2, "stream": 1}


def test_bits_are_not_counted_beyond_any_memory():
    def count():
        with pytest.raises(dlbridge.ConversionError, match="has more bytes than any memory"):
            dlbridge.convert(OfArray(length=2**61, null_count=-1, bits=[1] * 8), "numpy")

    run_in_child(count).result()


@pytest.mark.parametrize("event", [None, 1])
def test_bits_of_pinned_memory_are_counted_if_it_is_ready(event):
    source = OfDeviceArray(device_type=3, device_id=0, event=event, null_count=-1, bits=[1, 0, 1, 1, 1, 1])
    words = "null_count 1: " if event is None else "null_count -1: is unknown, and only memory of the host"
    with pytest.raises(dlbridge.ConversionError, match=words):
        dlbridge.convert(source, "numpy")


@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 17, 40])
def test_nulls_are_counted_to_the_bit(offset, length):
    bits = np.random.default_rng(offset * 50 + length).integers(0, 2, 64)
    nulls = length - bits[offset:offset + length].sum()
    source = OfArray(offset=offset, length=length, null_count=-1, bits=bits, data=np.zeros(64, "f4").ctypes.data)
    if nulls:
        with pytest.raises(dlbridge.ConversionError, match=f"null_count {nulls}: "):
            dlbridge.convert(source, "numpy")
    else:
        assert dlbridge.convert(source, "numpy").shape == (length,)


# ---- capsules whose destructors run Python code ----------------------------------------------------------------------

@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def destroy(capsule):
    """An error that is handled in it takes the place of one that is on its way."""
    with contextlib.suppress(ValueError):
        int("x")


class Destroyed:
    def capsule(self, struct, name):
        self.kept.append(name)
        return new_capsule(ctypes.addressof(struct), name, address_of(destroy))


@pytest.mark.parametrize("make", [OfArray, OfDeviceArray, lambda **fields: OfStream(6, **fields)],
                         ids=["array", "device array", "stream"])
@pytest.mark.parametrize(("fields", "words"), [
    ({"format": b"n"}, "format 'n': "), ({"null_count": 2}, "null_count 2: "), ({"schema_release": None}, "no schema")])
def test_error_survives_the_capsules(make, fields, words):
    source = make(**fields)
    kind = type(source)
    source.__class__ = type(kind.__name__, (Destroyed, kind), {})
    with pytest.raises(dlbridge.ConversionError, match=words):
        dlbridge.convert(source, "numpy")


@pytest.mark.parametrize("answer", [
    lambda capsule: capsule, lambda capsule: (capsule,), lambda capsule: (capsule, capsule)])
@pytest.mark.parametrize("name", [
    "__arrow_c_array__", "__arrow_c_device_array__", "__arrow_c_stream__", "__array_struct__"])
def test_error_survives_capsules_of_other_things(name, answer):
    given = new_capsule(address_of(destroy), b"other", address_of(destroy))
    answers = [answer(given)]
    del given
    method = (lambda self: answers.pop()) if name != "__array_struct__" else property(lambda self: answers.pop())
    with pytest.raises(dlbridge.ConversionError, match=name):
        dlbridge.convert(type("Source", (), {name: method})(), "numpy")


def test_error_survives_the_capsule_that_a_registered_source_made():
    class Image:
        pass

    dlbridge.register_source(Image, lambda image: new_capsule(address_of(destroy), b"other", address_of(destroy)))
    with pytest.raises(dlbridge.UnsupportedError, match="capsule 'other'"):
        dlbridge.convert(Image(), "numpy")


@KINDS
def test_producers_own_errors_pass(make):
    class Source(make):
        def __arrow_c_array__(self):
            raise KeyError("mine")

        __arrow_c_device_array__ = __arrow_c_array__

    with pytest.raises(KeyError, match="mine"):
        dlbridge.convert(Source(), "numpy")


# ---- devices ---------------------------------------------------------------------------------------------------------

def test_device_that_nobody_knows():
    with pytest.raises(dlbridge.DeviceError, match="device_type 99: is no device of DLPack"):
        dlbridge.convert(OfDeviceArray(device_type=99), "dlbridge")


def test_number_that_no_device_has():
    for number in (-2, 2**31, 2**63 - 1):
        with pytest.raises(dlbridge.ConversionError, match=f"device_id {number}: "):
            dlbridge.convert(OfDeviceArray(device_id=number), "numpy")


def test_device_without_streams_keeps_its_memory():
    tensor = dlbridge.asdlpack(OfDeviceArray(device_type=8, device_id=0))
    assert tensor.__dlpack_device__() == (8, 0)
    with pytest.raises(dlbridge.ConversionError, match="sync_event metal:0: has events that dlbridge cannot wait for"):
        dlbridge.asdlpack(OfDeviceArray(device_type=8, device_id=0, event=1))


def test_an_instance_may_have_the_protocol_alone():
    class Proxy:
        def __init__(self, target):
            self.target = target

        def __getattr__(self, name):
            return getattr(self.target, name)

    for source in (OfArray(), OfDeviceArray(), OfStream(6)):
        assert dlbridge.convert(Proxy(source), "numpy").tolist() == [0, 1, 2, 3, 4, 5]
