"""Arrow's C interfaces: what is shared, what is refused, and that every array is released once."""

import contextlib
import ctypes
import gc
import threading

import numpy as np
import pyarrow
import pytest
from support.arrow_producers import OfArray, OfDeviceArray, OfStream, address_of, metadata_of
from support.child import run_in_child
from support.compiling import compiled
from support.exporters import OF_ARROW

import dlbridge
from dlbridge.errors import AGAIN
from dlbridge.testing.producers import new_capsule

pytestmark = pytest.mark.quick

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
KINDS = pytest.mark.parametrize("make", [OfArray, OfDeviceArray], ids=["array", "device array"])


def hint_without_end(raised):
    return raised.value.hint.removesuffix(f"; {AGAIN}")


def first_way(raised):
    """The code of a hint."""
    return hint_without_end(raised).removeprefix("pass ").removeprefix("call ").partition(", or ")[0]


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
    assert dlbridge.explain(source, "numpy").protocol == OF_ARROW


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


def of_lance(values):
    """bfloat16 as lance has it, in an extension type over bytes of one length."""
    class BFloat16(pyarrow.ExtensionType):
        def __init__(self):
            super().__init__(pyarrow.binary(2), "lance.bfloat16")

        def __arrow_ext_serialize__(self):
            return b""

    bits = np.array(values, "float32").view("uint32") >> 16
    storage = pyarrow.FixedSizeBinaryArray.from_buffers(
        pyarrow.binary(2), len(values), [None, pyarrow.py_buffer(bits.astype("uint16").tobytes())])
    return pyarrow.ExtensionArray.from_storage(BFloat16(), storage)


@pytest.mark.needs("pyarrow", "ml_dtypes")
def test_an_extension_type_of_the_same_bits_is_shared():
    source = of_lance([1.5, 2, -3, 4])
    address = source.storage.buffers()[1].address
    for array, values, start in (
            (source, [1.5, 2, -3, 4], 0), (source[1:3], [2, -3], 2),
            (pyarrow.chunked_array([source]), [1.5, 2, -3, 4], 0),
            (pyarrow.FixedSizeListArray.from_arrays(source, 2), [[1.5, 2], [-3, 4]], 0)):
        made = dlbridge.convert(array, "numpy", copy=False)
        assert made.dtype.name == "bfloat16"
        assert made.astype("float32").tolist() == values
        assert made.ctypes.data == address + start
    with pytest.raises(dlbridge.ConversionError, match="null_count 1: "):
        dlbridge.convert(pyarrow.concat_arrays([source, pyarrow.nulls(1, source.type)]), "numpy")


def test_the_name_of_the_same_bits_over_another_storage_is_refused():
    for format in (b"w:4", b"z"):
        with pytest.raises(dlbridge.ConversionError, match=r"extension:name 'lance\.bfloat16': "):
            dlbridge.convert(OfArray(format=format, metadata=metadata_of((NAME, b"lance.bfloat16"))), "numpy")


@pytest.mark.needs("pyarrow")
def test_the_hint_for_an_extension_type_that_nobody_registered():
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __arrow_c_array__(self, requested_schema=None):
            return self.array.__arrow_c_array__()

    source = OfArray(format=b"i", metadata=metadata_of((NAME, b"my.own")))
    with pytest.raises(dlbridge.ConversionError, match=r"\(pass pyarrow\.array\(x\), or its \.storage if it has "):
        dlbridge.convert(source, "numpy")
    # A type that pyarrow knows is one of its arrays then, and has its storage by name.
    with pytest.raises(dlbridge.ConversionError, match=r"\(pass pyarrow\.array\(x\)\.storage\)$"):
        dlbridge.convert(Wrapped(opaque()), "numpy")


@pytest.mark.needs("pyarrow")
def test_a_bare_stream_is_read_once():
    chunk = pyarrow.array([1, 2, 3], pyarrow.int32())
    make = pyarrow.chunked_array([chunk]).__arrow_c_stream__
    stream = make()
    plan = dlbridge.explain(stream, "numpy")
    assert (plan.action, plan.hint) == ("refuse", "call dlbridge.convert(x, to)")
    made = dlbridge.convert(stream, "numpy", copy=False)
    assert made.tolist() == [1, 2, 3]
    assert made.ctypes.data == chunk.buffers()[1].address
    with pytest.raises(dlbridge.ConversionError, match="consumed before"):
        dlbridge.convert(stream, "numpy")
    assert dlbridge.convert_tree({"x": make()}, "numpy")["x"].tolist() == [1, 2, 3]
    for capsule in chunk.__arrow_c_array__():
        with pytest.raises(dlbridge.UnsupportedError, match="is not a DLPack capsule"):
            dlbridge.convert(capsule, "numpy")


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("method", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_a_bare_pair_is_read_once(method):
    array = pyarrow.array([1.0, 2.0])
    pair = getattr(array, method)()
    assert dlbridge.explain(pair, "numpy").action == "share"
    made = dlbridge.convert(pair, "numpy", copy=False)
    assert (made.ctypes.data, made.flags.writeable) == (array.buffers()[1].address, False)
    with pytest.raises(dlbridge.ConversionError, match="consumed before"):
        dlbridge.convert(pair, "numpy")
    del array, pair
    held = pyarrow.total_allocated_bytes()
    assert made.tolist() == [1, 2]
    del made
    gc.collect()
    assert pyarrow.total_allocated_bytes() < held


@pytest.mark.needs("pyarrow")
def test_other_pairs_are_no_array():
    schema, array = pyarrow.array([1]).__arrow_c_array__()
    for pair in ((array, schema), (schema, schema), [schema, array], (schema, array, array), (schema, 1), (1, array)):
        with pytest.raises(dlbridge.UnsupportedError, match="offers no array protocol"):
            dlbridge.convert(pair, "numpy")
    assert dlbridge.convert((schema, array), "numpy").tolist() == [1]
    with pytest.raises(dlbridge.ConversionError, match="null_count 1") as raised:
        dlbridge.convert(pyarrow.array([1, None]).__arrow_c_array__(), "numpy")
    code = first_way(raised)
    x = pyarrow.array([1, None]).__arrow_c_array__()
    assert dlbridge.convert(eval(code, {"pyarrow": pyarrow, "x": x}), "numpy").tolist() == [1, 0]


@pytest.mark.needs("pyarrow")
def test_a_pair_in_a_tree_is_a_tuple():
    tree = {"k": pyarrow.array([1, 2]).__arrow_c_array__()}
    with pytest.raises(dlbridge.DLBridgeError, match=r"leaf \['k'\]\[0\]: .*'arrow_schema'.*with the pair") as raised:
        dlbridge.convert_tree(tree, "numpy")
    code = raised.value.hint.removeprefix("call ").partition(" with ")[0]
    assert eval(code, {"dlbridge": dlbridge, "x": tree["k"], "to": "numpy"}).tolist() == [1, 2]


@pytest.mark.needs("pyarrow")
def test_what_to_do_about_a_bare_stream():
    make = pyarrow.chunked_array([pyarrow.array([1, None])]).__arrow_c_stream__
    with pytest.raises(dlbridge.ConversionError, match="null_count 1") as raised:
        dlbridge.convert(make(), "numpy")
    code = first_way(raised)
    assert dlbridge.convert(eval(code, {"pyarrow": pyarrow, "x": make()}), "numpy").tolist() == [1, 0]
    make = pyarrow.table({"a": [1, 2]}).__arrow_c_stream__
    with pytest.raises(dlbridge.ConversionError, match="has columns") as raised:
        dlbridge.convert(make(), "numpy")
    code = first_way(raised)
    made = eval(code, {"dlbridge": dlbridge, "pyarrow": pyarrow, "x": make(), "to": "numpy"})
    assert made["a"].tolist() == [1, 2]


@pytest.mark.needs("pyarrow")
def test_nulls_that_a_slice_leaves_out_do_not_matter():
    source = pyarrow.array([1, None, 3])
    assert dlbridge.convert(source[2:], "numpy").tolist() == [3]
    with pytest.raises(dlbridge.ConversionError, match="null_count 1: "):
        dlbridge.convert(source[1:], "numpy")


REFUSED = {
    "bool": (lambda: pyarrow.array([True]), r"format 'b': has eight bools in a byte \(pass x.fill_null\(False\)"),
    "nulls": (lambda: pyarrow.array([1, None]), r"null_count 1: .*\(pass x.fill_null\(0\), or x.drop_null\(\)\)"),
    "strings": (lambda: pyarrow.array(["a"]), "format 'u': are strings"),
    "lists": (lambda: pyarrow.array([[1]]), r"format '\+l': are lists \(pass x.flatten\(\)"),
    "only nulls": (lambda: pyarrow.nulls(3), "format 'n': has nothing but nulls"),
    "dates": (lambda: pyarrow.array([0], pyarrow.date32()), r"format 'tdD': are dates \(pass x.cast\(.int32.\)"),
    "points in time": (lambda: pyarrow.array([0], pyarrow.timestamp("s")), "format 'tss:': are points in time"),
    "decimals": (lambda: pyarrow.array([1], pyarrow.decimal128(3)), "format 'd:3,0': are decimals"),
    "categories": (lambda: pyarrow.array(["a"]).dictionary_encode(), r"dictionary 'i': .*x.indices"),
    "opaque": (lambda: opaque(), r"extension:name 'arrow.opaque': .* int32 .*\(pass x.storage\)"),
    "opaque in chunks": (lambda: pyarrow.chunked_array([opaque()]), "extension:name 'arrow.opaque': .* int32 "),
    "columns": (lambda: pyarrow.table({"a": [1]}), r"format '\+s': .*\(call dlbridge.convert_tree\(x, to, columns="),
}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_array_library_has_is_refused_with_a_hint(make, words):
    with pytest.raises(dlbridge.ConversionError, match=words):
        dlbridge.convert(make(), "numpy")


def opaque():
    return pyarrow.ExtensionArray.from_storage(
        pyarrow.opaque(pyarrow.int32(), "a type", "a vendor"), pyarrow.array([1, 2], pyarrow.int32()))


def bool8(*values):
    return pyarrow.ExtensionArray.from_storage(pyarrow.bool8(), pyarrow.array(values, pyarrow.int8()))


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("convert", [
    lambda x: dlbridge.convert(x, "numpy", copy=False),
    lambda x: np.from_dlpack(dlbridge.asdlpack(x)),
    lambda x: dlbridge.convert_tree([x], "numpy")[0],
    dlbridge.accepts("numpy")(lambda x: x),
], ids=["convert", "Tensor", "convert_tree", "accepts"])
def test_the_hint_of_an_extension_type_is_its_storage(convert):
    for x in (opaque(), pyarrow.chunked_array([opaque()])):
        with pytest.raises(dlbridge.ConversionError) as raised:
            convert(x)
        assert dlbridge.explain(x, "numpy").hint == raised.value.hint
        assert convert(eval(raised.value.hint.removeprefix("pass "))).tolist() == [1, 2]


@pytest.mark.needs("pyarrow")
def test_bools_of_a_byte_each_are_shared():
    source = bool8(0, 0, 1, 0, 1)[1:]
    for given in (source, pyarrow.chunked_array([source])):
        array = dlbridge.convert(given, "numpy", copy=False)
        assert array.dtype == bool
        assert array.tolist() == [False, True, False, True]
        assert array.ctypes.data == source.storage.buffers()[1].address + 1
        assert dlbridge.explain(given, "numpy").dtype == "bool"
    assert dlbridge.convert(bool8(), "numpy").dtype == bool


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("values", [(0, 2), (1, -1), (0, None)])
def test_bools_that_other_libraries_would_not_take_for_bools_are_refused(values):
    with pytest.raises(dlbridge.ConversionError, match="null_count 1: " if None in values else "bool8 of other bytes"):
        dlbridge.convert(bool8(*values), "numpy")
    assert dlbridge.convert(bool8(*values, 1)[-1:], "numpy").tolist() == [True]


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


# ---- lists of one length, and tensors --------------------------------------------------------------------------------

VALUES = np.arange(24, dtype="float32")


def lists(values, length):
    return pyarrow.FixedSizeListArray.from_arrays(values, length)


def tensors(shape, permutation=None, values=VALUES):
    kind = pyarrow.fixed_shape_tensor(pyarrow.float32(), shape, permutation=permutation)
    return pyarrow.ExtensionArray.from_storage(kind, lists(pyarrow.array(values), int(np.prod(shape))))


NESTED = {
    "lists": (lambda: lists(pyarrow.array(VALUES), 3), VALUES.reshape(8, 3)),
    "a slice": (lambda: lists(pyarrow.array(VALUES), 3)[2:5], VALUES.reshape(8, 3)[2:5]),
    "of a slice": (lambda: lists(pyarrow.array(VALUES)[6:], 3), VALUES[6:].reshape(6, 3)),
    "in lists": (lambda: lists(lists(pyarrow.array(VALUES), 3), 2), VALUES.reshape(4, 2, 3)),
    "slices of slices": (lambda: lists(lists(pyarrow.array(VALUES)[3:], 3)[1:], 2)[1:3],
                         VALUES[6:].reshape(3, 2, 3)[1:3]),
    "five": (lambda: lists(lists(lists(lists(pyarrow.array(VALUES), 2), 1), 3), 2), VALUES.reshape(2, 2, 3, 1, 2)),
    "in a chunk": (lambda: pyarrow.chunked_array([lists(pyarrow.array(VALUES), 3)]), VALUES.reshape(8, 3)),
    "tensors": (lambda: tensors([3, 4]), VALUES.reshape(2, 3, 4)),
    "a slice of tensors": (lambda: tensors([2, 3])[1:3], VALUES.reshape(4, 2, 3)[1:3]),
    "permuted": (lambda: tensors([2, 3, 2], [2, 0, 1]), VALUES.reshape(2, 2, 3, 2).transpose(0, 3, 1, 2)),
    "of no axes": (lambda: tensors([]), VALUES),
    "in a chunk of tensors": (lambda: pyarrow.chunked_array([tensors([3, 4])]), VALUES.reshape(2, 3, 4)),
    "bools": (lambda: lists(bool8(*[0, 1, 1] * 2), 3), np.array([[False, True, True]] * 2)),
    "empty": (lambda: lists(pyarrow.array(VALUES[:0]), 3), VALUES[:0].reshape(0, 3)),
    "of nothing": (lambda: pyarrow.array([[], []], pyarrow.list_(pyarrow.float32(), 0)), VALUES[:0].reshape(2, 0)),
}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(("make", "expected"), NESTED.values(), ids=NESTED)
def test_lists_of_one_length_are_axes(make, expected):
    source = make()
    array = dlbridge.convert(source, "numpy", copy=False)
    assert (array.shape, array.dtype, array.flags.writeable) == (expected.shape, expected.dtype, False)
    np.testing.assert_array_equal(array, expected)
    plan = dlbridge.explain(source, "numpy")
    assert (plan.action, plan.shape) == ("share", expected.shape)
    tree = dlbridge.convert_tree(pyarrow.table({"x": source}), "dlbridge")
    np.testing.assert_array_equal(tree["x"], expected)


@pytest.mark.needs("pyarrow")
def test_the_values_of_lists_are_shared():
    values = pyarrow.array(VALUES)
    for source in (lists(values, 3), lists(lists(values, 3), 2), lists(values, 3)[2:]):
        array = dlbridge.convert(source, "numpy", copy=False)
        first = values.buffers()[1].address
        assert first <= array.ctypes.data < first + VALUES.nbytes
    before = pyarrow.total_allocated_bytes()
    source = tensors([300, 400], values=np.zeros(120_000 * 10, "float32"))
    tensor = dlbridge.asdlpack(source)
    del source
    assert pyarrow.total_allocated_bytes() > before
    assert tensor.shape == (10, 300, 400)
    del tensor
    assert pyarrow.total_allocated_bytes() == before


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("rows", [[[1, 2], None], [[1, None], [3, 4]], [[1, 2], [None, 4]]])
def test_nulls_in_lists_are_seen(rows):
    source = pyarrow.array(rows, pyarrow.list_(pyarrow.int32(), 2))
    with pytest.raises(dlbridge.ConversionError, match="null_count 1: "):
        dlbridge.convert(source, "numpy")
    sound = [row is not None and None not in row for row in rows].index(True) if rows[1] is not None else 0
    if rows[sound] is not None and None not in rows[sound]:
        assert dlbridge.convert(source[sound:sound + 1], "numpy").tolist() == [rows[sound]]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("kind", [pyarrow.string, pyarrow.bool_, pyarrow.date32, lambda: pyarrow.list_(pyarrow.int8())])
def test_lists_of_what_is_no_number_are_refused(kind):
    with pytest.raises(dlbridge.ConversionError, match="arrow: format "):
        dlbridge.convert(pyarrow.array([], pyarrow.list_(kind(), 2)), "numpy")


class Nested:
    """Lists of a fixed length around six values, by a fake producer."""

    def __init__(self, method=OfArray, child=None, metadata=None, format_text=b"+w:3", **fields):
        self.values = OfArray(**child or {})
        self.producer = method(**{"format": format_text, "child": self.values, "length": 2, "n_buffers": 1,
                                  "metadata": metadata} | fields)
        self.method = "__arrow_c_array__" if method is OfArray else "__arrow_c_device_array__"
        setattr(self, self.method, getattr(self.producer, self.method))


NAME, TEXT = b"ARROW:extension:name", b"ARROW:extension:metadata"
TENSOR = b"arrow.fixed_shape_tensor"


def tensor_metadata(text, name=TENSOR):
    return metadata_of((NAME, name), (TEXT, text))


@KINDS
def test_fake_lists_are_lists(make):
    assert dlbridge.convert(Nested(make), "numpy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert dlbridge.convert(Nested(make, metadata=tensor_metadata(b'{"shape":[1,3]}')), "numpy").shape == (2, 1, 3)
    nested = Nested(make)
    array = dlbridge.convert(nested, "numpy")
    assert nested.producer.released["array"] == 0
    del array
    assert nested.producer.released["array"] == 1
    assert nested.values.released["array"] == 0         # its parent's to release


LIES_OF_LISTS = {
    "too long": ({"length": 3}, "length 6: has not the values of 3 lists of 3"),
    "too far": ({"offset": 1}, "length 6: has not the values of 2 lists of 3"),
    "beyond 63 bits": ({"length": 2**62}, "length 6: has not "),
    "offset beyond 63 bits": ({"offset": 2**62}, "length 6: has not "),
    "negative": ({"length": -2}, "offset, length 0, -2: "),
    "no length": ({"format_text": b"+w:"}, r"format '\+w:': has no length"),
    "a word for a length": ({"format_text": b"+w:x"}, "has no length"),
    "negative length": ({"format_text": b"+w:-3"}, "has no length"),
    "long length": ({"format_text": b"+w:" + b"9" * 30}, "has a length beyond the 32 bits of Arrow's"),
    "length beyond 32 bits": ({"format_text": b"+w:2147483648"}, "has a length beyond the 32 bits"),
    "large length": ({"format_text": b"+w:2147483647", "length": 10}, "length 6: has not"),
    "buffers": ({"n_buffers": 2}, "n_buffers 2: is not 1"),
    "no child of the schema": ({"n_children": 0}, "n_children 0: is not 1"),
    "two children": ({"n_children": 2}, "n_children 2: is not 1"),
    "no child": ({"array_children": 0}, "n_children 0: is not 1"),
    "values with one buffer": ({"child": {"n_buffers": 1}}, "n_buffers 1: is not 2"),
    "a released child": ({"child": {"release": None}}, "release NULL: "),
    "a released schema": ({"child": {"schema_release": None}}, "release NULL: is that of no schema"),
    "a negative child": ({"child": {"length": -1}}, "length -1: has not"),
    "a far child": ({"child": {"offset": 2**62}}, "byte_offset|offset, length"),
    "no values": ({"child": {"data": None}}, "data NULL: "),
    "nulls without bits, in a part": ({"length": 1, "child": {"null_count": 2}}, "null_count 2: elements have no"),
    "no format": ({"child": {"format": None}}, "format NULL: "),
    "words": ({"child": {"format": b"u"}}, "format 'u': "),
    "an extension in lists": ({"child": {"metadata": metadata_of((NAME, b"own"))}}, "extension:name 'own': "),
    "an extension of lists": ({"metadata": metadata_of((NAME, b"own"))}, "extension:name 'own': .*lists"),
    "tensors without a shape": ({"metadata": metadata_of((NAME, TENSOR))}, "extension:metadata None: is no shape"),
    "no JSON": ({"metadata": tensor_metadata(b"{")}, "extension:metadata b'{': is no shape"),
    "no object": ({"metadata": tensor_metadata(b"[3]")}, "is no shape"),
    "another shape": ({"metadata": tensor_metadata(b'{"shape":[2,2]}')}, r"\[2, 2\]: is no shape of lists of 3 values"),
    "a negative shape": ({"metadata": tensor_metadata(b'{"shape":[-1,-3]}')}, "is no shape"),
    "a large shape": ({"metadata": tensor_metadata(b'{"shape":[0,%d]}' % 10**30), "format_text": b"+w:0"},
                      "more values"),
    "many axes": ({"metadata": tensor_metadata(b'{"shape":[3%s]}' % (b",1" * 70))}, "more axes"),
    "a permutation of others": ({"metadata": tensor_metadata(b'{"shape":[1,3],"permutation":[1,2]}')}, "is no shape"),
    "a permutation twice": ({"metadata": tensor_metadata(b'{"shape":[1,3],"permutation":[1,1]}')}, "is no shape"),
    "words for a shape": ({"metadata": tensor_metadata(b'{"shape":"abc"}')}, "is no shape"),
    "infinite": ({"metadata": tensor_metadata(b'{"shape":[1e999]}')}, "is no shape"),
}


@KINDS
@pytest.mark.parametrize(("fields", "words"), LIES_OF_LISTS.values(), ids=LIES_OF_LISTS)
def test_lies_about_lists_are_seen(make, fields, words):
    nested = Nested(make, **fields)
    with pytest.raises(dlbridge.ConversionError, match=words):
        dlbridge.convert(nested, "numpy")
    assert nested.producer.released["array"] <= 1


def test_lists_in_lists_without_end():
    source = OfArray()
    for _ in range(70):
        source = OfArray(format=b"+w:1", child=source, n_buffers=1)
    with pytest.raises(dlbridge.ConversionError, match="is that of a list in 63 others"):
        dlbridge.convert(source, "numpy")


# ---- tensor types of libraries, whose lists do not say their length --------------------------------------------------

@KINDS
@pytest.mark.parametrize(("format_text", "kind"), [(b"+l", "int32"), (b"+L", "int64")])
def test_lists_whose_type_says_no_length(make, format_text, kind):
    offsets = np.arange(0, 13, 3, dtype=kind)
    metadata = tensor_metadata(b"[1, 3]", b"ray.data.arrow_tensor_v2")

    def nested(**fields):
        return Nested(make, metadata=metadata, format_text=format_text, n_buffers=2,
                      **{"data": offsets.ctypes.data} | fields)

    assert dlbridge.convert(nested(), "numpy").tolist() == [[[0, 1, 2]], [[3, 4, 5]]]
    assert dlbridge.convert(nested(offset=1, length=1), "numpy").tolist() == [[[3, 4, 5]]]
    assert dlbridge.convert(nested(length=0, data=None), "numpy").shape == (0, 1, 3)
    for lie, words in (({"length": 3}, "length 6: has not"), ({"data": None}, "offsets of lists, which have"),
                       ({"length": -1}, "offset, length")):
        with pytest.raises(dlbridge.ConversionError, match=words):
            dlbridge.convert(nested(**lie), "numpy")
    offsets[1] = 2
    with pytest.raises(dlbridge.ConversionError, match="offsets of list 0: are not those of 3 values"):
        dlbridge.convert(nested(), "numpy")


def test_offsets_on_a_device_are_not_looked_at():
    offsets = np.arange(0, 13, 3, dtype="int32")
    nested = Nested(OfDeviceArray, metadata=tensor_metadata(b"[3]", b"ray.data.arrow_tensor"), format_text=b"+l",
                    n_buffers=2, data=offsets.ctypes.data, device_type=2)
    with pytest.raises(dlbridge.ConversionError, match="on a device"):
        dlbridge.convert(nested, "dlpack")


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


SEVERAL = pytest.mark.parametrize("lengths", [(6, 6), (0, 6, 0, 4), (6, 0, 6, 5), (1,) * 100])


@SEVERAL
def test_chunks_are_gathered(lengths):
    source = OfStream(*lengths)
    made = dlbridge.convert(source, "numpy")
    assert made.tolist() == [number for length in lengths for number in range(length)]
    assert made.flags.writeable
    asked = sum(hasattr(kept, "null_count") for kept in source.kept)
    assert source.released == {"schema": 1, "array": asked, "stream": 1}


@SEVERAL
def test_chunks_are_not_gathered_where_nothing_may_be_copied(lengths):
    source = OfStream(*lengths)
    with pytest.raises(dlbridge.CopyRequiredError, match=r"chunks 2 or more: .* \(pass copy=None; it was read"):
        dlbridge.convert(source, "numpy", copy=False)
    asked = sum(hasattr(kept, "null_count") for kept in source.kept)
    assert source.released == {"schema": 1, "array": asked, "stream": 1}


def test_explaining_chunks_leaves_nothing_behind():
    source = OfStream(6, 6)
    plan = dlbridge.explain(source, "numpy")
    assert (plan.action, plan.reason, plan.shape) == ("copy", "chunks are gathered into one array", (12,))
    assert source.released == {"schema": 1, "array": 2, "stream": 1}


@pytest.mark.needs("pyarrow", "torch")
def test_chunks_of_every_form():
    numbers = [[1, 2], [3], [], [4, 5, 6]]
    lists = [pyarrow.array([part, part], pyarrow.list_(pyarrow.int16(), len(part))) for part in numbers[:1]]
    tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(2, 3, 2).transpose(0, 2, 1))
    cases = (
        (pyarrow.chunked_array(numbers), [1, 2, 3, 4, 5, 6]),
        (pyarrow.chunked_array(numbers)[1:-1], [2, 3, 4, 5]),
        (pyarrow.chunked_array(lists * 2), [[1, 2]] * 4),
        (pyarrow.chunked_array([tensors, tensors]), [*tensors.to_numpy_ndarray().tolist()] * 2),
        (pyarrow.chunked_array([bool8(1, 0), bool8(0)]), [True, False, False]),
    )
    for source, values in cases:
        for target in ("numpy", "torch", "dlbridge"):
            made = dlbridge.convert(source, target)
            assert dlbridge.convert(made, "numpy").tolist() == values
        assert dlbridge.convert(source, "numpy", copy=True).tolist() == values
        out = np.zeros_like(dlbridge.convert(source, "numpy"))
        assert dlbridge.convert(source, "numpy", out=out).tolist() == values
    first, second = dlbridge.convert_tree([cases[0][0]] * 2, "numpy")
    assert first is second
    with pytest.raises(dlbridge.ConversionError, match="null_count 1"):
        dlbridge.convert(pyarrow.chunked_array([[1], [None]]), "numpy")


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
    "fewer pairs than none": ({"metadata": metadata_of(count=-1)}, "metadata -1: is no length"),
    "text of no length": ({"metadata": metadata_of(count=1) + b"\xff" * 4}, "metadata -1: is no length"),
    "extension": ({"metadata": metadata_of((b"ARROW:extension:name", b"\xff"))}, "extension:name '\ufffd': "),
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


@pytest.mark.parametrize("make", [OfArray, OfDeviceArray, lambda **fields: OfStream(6, **fields)],
                         ids=["array", "device array", "stream"])
def test_metadata_are_read(make):
    other, name = (b"a key", b""), b"ARROW:extension:name"
    for metadata in (metadata_of(), metadata_of(other), metadata_of(other, (name, b""), other)):
        assert dlbridge.convert(make(metadata=metadata), "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    source = make(metadata=metadata_of(other, (b"ARROW:extension:metadata", b"2"), (name, b"fixed.point")))
    said = r"'fixed.point': .* float32 .*\(pass pyarrow\.[^.]*(\.combine_chunks\(\))?[;)]"
    with pytest.raises(dlbridge.ConversionError, match=said):
        dlbridge.convert(source, "numpy")
    assert source.released["array"] == 0            # the capsule's, or not yet asked for
    with pytest.raises(dlbridge.ConversionError, match=r"'arrow\.bool8': .* float32 "):
        dlbridge.convert(make(metadata=metadata_of((name, b"arrow.bool8"))), "numpy")


def test_bools_that_cannot_be_looked_into_are_refused():
    source = OfDeviceArray(device_type=2, format=b"c", metadata=metadata_of((b"ARROW:extension:name", b"arrow.bool8")))
    with pytest.raises(dlbridge.ConversionError, match="bool8 on a device: cannot be looked into"):
        dlbridge.convert(source, "dlpack")
    assert source.released["array"] == 1


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


@pytest.mark.needs("pyarrow")
def test_a_stream_without_chunks_has_no_elements():
    for kind, dtype, shape in [
        (pyarrow.int8(), "int8", (0,)), (pyarrow.list_(pyarrow.float32(), 3), "float32", (0, 3)),
        (pyarrow.bool8(), "bool", (0,)),
    ]:
        array = dlbridge.convert(pyarrow.chunked_array([], kind), "numpy")
        assert (array.shape, array.dtype) == (shape, dtype)
    table = pyarrow.table({"a": [1, 2]}).filter(pyarrow.array([False, False]))
    column = dlbridge.convert_tree(table, "numpy")["a"]
    assert (column.dtype, tuple(column.shape)) == (np.int64, (0,))
    with pytest.raises(dlbridge.ConversionError, match="are strings"):
        dlbridge.convert(pyarrow.chunked_array([], pyarrow.string()), "numpy")


@pytest.mark.parametrize("call", ["get_schema", "get_next"])
def test_stream_is_asked_without_the_gil(call):
    """It may wait for threads that want it. The function tells whether the GIL is held; 1 is an error to its caller."""
    source = OfStream(6, **{call: address_of(ctypes.pythonapi.PyGILState_Check)})
    if call == "get_next":          # the function gives no chunk
        assert dlbridge.convert(source, "numpy").tolist() == []
        return
    with pytest.raises(dlbridge.ConversionError) as raised:
        dlbridge.convert(source, "numpy")
    assert "get_schema 1" not in str(raised.value)


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


def test_chunks_of_more_bytes_than_any_memory_are_not_gathered():
    source = OfStream(2**59, 2**59, 2**59)      # of 4 bytes each
    with pytest.raises(dlbridge.ConversionError, match=r"^arrow: length \d+: has more bytes than any memory"):
        dlbridge.convert(source, "numpy")
    assert source.released == {"schema": 1, "array": 3, "stream": 1}


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
