"""pyarrow: immutable arrays of one axis, and tensors."""

import importlib
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.arrow_parts import (
    form_of_lists,
    has_nulls,
    parts_of_chunks,
    parts_of_nullable,
    why_copied,
    why_nullable_copied,
    why_unpacked,
)
from dlbridge.libraries.hints import COLUMNS
from dlbridge.libraries.library import Arrays, Fact, Form, Library, Masked, Ragged, Sparse
from dlbridge.libraries.profiles import FLOATS, INTEGERS, LENGTH_1_STRIDES

SEEN = "seen in 26.0.1"
# Buffers and tensors are no arrays: they lie on any memory, and have no flag but that of the view that they were given.
CONSTANT = Fact(True, SEEN, "has arrays that do not change, by the standard")
COMPACT = "has compact arrays; of tensors alone it takes others"


def columns(table: Any, unpack: bool) -> list[tuple[str, Any]]:
    """The columns of a table or a batch; bools, which Arrow has eight to a byte, as ndarrays."""
    bools = sys.modules["pyarrow"].lib.Type_BOOL
    return [
        (field.name, column.to_numpy(zero_copy_only=False)
         if unpack and field.type.id == bools and not column.null_count else column)
        for field, column in zip(table.schema, table.columns, strict=True)]


class Given:
    """Capsules that a method of another library gave, as an object that pyarrow reads."""

    def __init__(self, schema: Any, array: Any = None) -> None:
        self.schema, self.array = schema, array

    def __arrow_c_schema__(self) -> Any:
        return self.schema

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.schema, self.array


were_read: weakref.WeakSet[Any] = weakref.WeakSet()


def columns_of_reader(reader: Any, unpack: bool) -> list[tuple[str, Any]]:
    """The columns of a reader, which gives its rows once, and none without an error when it is asked again."""
    if reader in were_read:
        raise refusal(ConversionError, "arrow", "rows", "of RecordBatchReader",
                      "were read before, and it has no others", "ask for it again")
    were_read.add(reader)
    return columns(reader.read_all(), unpack)


def columns_of_schema(reader: Any, unpack: bool) -> list[tuple[str, Any]]:
    """Columns without rows, by which it is seen what the reader's types are refused for."""
    return columns(reader.schema.empty_table(), unpack)


def columns_by_schema(source: Any, unpack: bool) -> list[tuple[str, Any]]:
    """The columns of an object of another library without rows, if it says its schema beside its stream."""
    if not hasattr(source, "__arrow_c_schema__") or hasattr(source, "__arrow_c_array__"):
        return []
    try:
        schema = importlib.import_module("pyarrow").schema(source)
    except Exception:
        return []               # what is wrong with it will be said when it is read
    return columns(schema.empty_table(), unpack)


def read(pyarrow: Any, source: Any, chunks_of: Callable[[Any], Any], check: Callable[[Any], Any]) -> Any:
    """Read an array or a stream into pyarrow.

    The schema that pyarrow would pass to their methods is optional, and not every producer takes it.
    """
    if hasattr(source, "__arrow_c_stream__"):
        schema, chunks = chunks_of(source.__arrow_c_stream__())
        arrays = [pyarrow.array(Given(*chunk)) for chunk in chunks]
        return pyarrow.chunked_array(arrays, type=pyarrow.field(Given(schema)).type)
    pair = source.__arrow_c_array__()
    check(pair)
    return pyarrow.array(Given(*pair))


def columns_by_arrow(
    source: Any, unpack: bool, *, chunks_of: Callable[[Any], Any], check: Callable[[Any], Any],
) -> Any:
    """The columns of an object of another library that gives them by Arrow's interfaces.

    If it has no columns, it is given as an array of pyarrow's; without pyarrow, as it is. It may be a stream, which can
    be read once. ``chunks_of`` reads a stream's capsule, ``check`` looks at an array's pair; they raise an error for
    what pyarrow would not survive.
    """
    if not hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__arrow_c_array__"):
        return source           # memory of a device
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ImportError:
        return source
    try:
        array = read(pyarrow, source, chunks_of, check)
    except pyarrow.ArrowException as error:
        raise refusal(ConversionError, "arrow", "columns", type(source).__name__, f"cannot be read by pyarrow: {error}",
                      "pass its columns one by one") from error
    if not pyarrow.types.is_struct(array.type):
        return array
    return columns(pyarrow.Table.from_struct_array(array), unpack)


def make(pyarrow: Any, array: Any, dtype: str) -> Any:
    """An Array if there is one axis, otherwise a Tensor."""
    if array.ndim > 1:
        return pyarrow.Tensor.from_numpy(array)
    return pyarrow.Array.from_buffers(
        pyarrow.from_numpy_dtype(array.dtype), array.size, [None, pyarrow.py_buffer(array)])


def parts_of_matrix(matrix: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Views of its memory, which are not to be written to."""
    data, indptr, indices = matrix.to_numpy()
    for part in (data, indptr, indices):
        part.flags.writeable = False
    return matrix.shape, [data.reshape(-1), indices, indptr]


def matrix_of(form: str, name: str) -> Form:
    def put_together(
        kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool,
    ) -> Any:
        data, indices, indptr = (part.to_numpy() for part in parts)
        return (kind or getattr(sys.modules["pyarrow"], name)).from_numpy(data, indptr, indices, shape)

    return Form((name,), parts_of_matrix, put_together, dense="x.to_tensor()",
                of_dense=f'pyarrow.{name}.from_tensor(pyarrow.Tensor.from_numpy(dlbridge.convert(x, "numpy")))',
                index_types=("int64",),
                sparse=Sparse(canonical=True, ordered=f'dlbridge.convert(x, "scipy").tocoo().to{form}()',
                              made=f"pyarrow.{name}.from_tensor(x.to_tensor())"))


# ---- lists -----------------------------------------------------------------------------------------------------------

def flattened(array: Any) -> str:
    return f"x{'.combine_chunks()' if hasattr(array, 'chunks') else ''}.flatten()"


def new_lists(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    pyarrow = sys.modules["pyarrow"]
    data, offsets = parts
    array = data
    if isinstance(data, pyarrow.Tensor):
        extents = data.shape[1:]
        flat = data.to_numpy().reshape(-1)
        array = make(pyarrow, flat, flat.dtype.name)
        for axis in reversed(range(len(extents))):
            count = math.prod(data.shape[:axis + 1])
            array = pyarrow.Array.from_buffers(
                pyarrow.list_(array.type, extents[axis]), count, [None], children=[array])
    for each in reversed(offsets):
        lists = kind or (pyarrow.ListArray if each.type == pyarrow.int32() else pyarrow.LargeListArray)
        array = lists.from_arrays(each, array)
    return array


def offset_types(kind: Any) -> tuple[str, ...]:
    of_type = {"ListArray": ("int32",), "LargeListArray": ("int64",)}
    return of_type.get(getattr(kind, "__name__", ""), ("int32", "int64"))


LISTS = Form(("LargeListArray", "ListArray"), parts_of_chunks, new_lists, dense=flattened,
             of_dense='pyarrow.array(list(dlbridge.convert(x, "numpy")))', copied=why_copied,
             index_types=offset_types, dense_axes=True, ragged=Ragged(any_start=True))

# ---- arrays with nulls -----------------------------------------------------------------------------------------------

# The types of arrays of numbers, by their dtypes.
NUMBERS = {**{f"{kind.lower()}{bits}": f"{kind}{bits}Array" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)},
           "float16": "HalfFloatArray", "float32": "FloatArray", "float64": "DoubleArray"}


def check_nullable(kind: Any, shape: tuple[int, ...], dtype: str, values: Any) -> None:
    if len(shape) != 1:
        raise refusal(ConversionError, "masked", "shape", shape, "is not of one axis, as arrays with nulls are",
                      "pass x.ravel()")
    if NUMBERS.get(dtype) != kind.__name__:
        raise refusal(ConversionError, "masked", "dtype", dtype, f"is none of {kind.__name__}",
                      f"pass pyarrow.{NUMBERS[dtype]} for it" if dtype in NUMBERS else "convert it to float64 first")


def new_nullable(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    pyarrow = sys.modules["pyarrow"]
    values, mask = parts
    valid = np.concatenate([np.ones(values.offset, bool), ~mask])
    bits = pyarrow.py_buffer(np.packbits(valid, bitorder="little"))
    return pyarrow.Array.from_buffers(values.type, len(values), [bits, *values.buffers()[1:]], offset=values.offset)


NULLABLE = Form(tuple(NUMBERS.values()), parts_of_nullable, new_nullable, check_nullable,
                dense="x.fill_null(0)", copied=why_nullable_copied,
                masked=Masked(why_unpacked=why_unpacked, why_packed="its mask gets eight elements in a byte",
                              library="numpy", also_dense=True))

MATRICES = {"csr": "SparseCSRMatrix", "csc": "SparseCSCMatrix"}

LIBRARY = Library(
    name="pyarrow",
    arrays=(
        *(Arrays(name, {"+s": COLUMNS},
                 columns=Fact(columns, SEEN, "has eight bools in a byte")) for name in ("Table", "RecordBatch")),
        Arrays("RecordBatchReader", {"+s": COLUMNS},
               columns=Fact(columns_of_reader, SEEN, "is read once"),
               without_rows=Fact(columns_of_schema, SEEN, "is read once")),
        Arrays("ChunkedArray", {"pyarrow": "x.combine_chunks()"}, constant=CONSTANT,
               form_name=Fact(form_of_lists, SEEN, "may have the offsets of lists beside its elements"),
               has_mask=Fact(has_nulls, SEEN, "may have nulls")),
        *(Arrays(name, form_name=Fact(form_of_lists, SEEN, "has the offsets of its lists beside its elements"))
          for name in ("ListArray", "LargeListArray")),
        Arrays("Array", constant=CONSTANT,
               preferred=Fact("arrow", SEEN, "refuses nulls and bools in __dlpack__ too, but gives no hint")),
        Arrays("BooleanArray", has_mask=Fact(has_nulls, SEEN, "has eight bools in a byte")),
        Arrays("NumericArray",
               preferred=Fact("dlpack", SEEN, "takes twice as long for Arrow's interface", since="26.0.0"),
               declines=Fact(True, SEEN, "gives no hint there"),
               has_mask=Fact(has_nulls, SEEN, "may have nulls")),
        *(Arrays(name, {"": "pass x.to_tensor()"}, form_name=Fact(form, SEEN))
          for form, name in MATRICES.items()),
        Arrays("*", {"pyarrow": "x"}),
    ),
    delivery="importer:prepare_for_ndarrays",
    importer=make,
    array_types=("Array", "Tensor"),
    forms={**{form: matrix_of(form, name) for form, name in MATRICES.items()}, "ragged": LISTS, "masked": NULLABLE},
    lacks=(
        Fact("NEGATIVE_STRIDES", SEEN, "refuses them"),
        Fact("ZERO_STRIDES", SEEN, COMPACT),
        Fact("ANY_STRIDES", SEEN, COMPACT),
        Fact("ODD_STRIDES", SEEN, COMPACT),
        LENGTH_1_STRIDES,
        Fact("SWAPPED_BYTES", SEEN, "has native byte order only"),
        Fact("OTHER_DEVICES", SEEN, "has buffers of the host's memory, unless built for CUDA"),
        Fact("PACKED", SEEN, "has no such types"),
        Fact("PADDED", SEEN, "has no such types"),
        Fact("WRITABLE", SEEN, "has immutable arrays"),
    ),
    fewest_axes=Fact(1, SEEN, "has neither an array nor a tensor without axes"),
    dtypes=(Fact((*INTEGERS, *FLOATS), SEEN, "has eight bools in a byte"),),
)
