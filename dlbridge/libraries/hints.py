"""What to do instead: hints that are code, for what NumPy and Arrow can say and DLPack cannot.

Tests run the code, with the object that was refused as x.
"""

import datetime
import inspect
import math
import numbers
import re
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.library import Facts
from dlbridge.libraries.profiles import IN_TREE, OF_POINTER
from dlbridge.libraries.records import NUMBERS, hint_for, numbers_of

# ---- NumPy's types ---------------------------------------------------------------------------------------------------

# What to pass in place of elements that DLPack has no type for, by NumPy's kind: of an array {x}, or {compact} where
# its elements have to lie side by side; {order} is theirs, if it is not the machine's.
BY_KIND = {
    "M": 'pass {x}.view("{order}i8"), where NaT is the least integer',
    "m": 'pass {x}.view("{order}i8"), where NaT is the least integer',
    "O": 'pass {x}.astype("float64"), if all its objects are numbers',
    "V": 'pass the bytes, {compact}.view("uint8")',
    "S": 'pass the bytes, {compact}.view("uint8")',
    "U": 'pass the code points, {compact}.view("{order}u4")',
    "T": 'pass the code points, numpy.atleast_1d({x}.tolist()).view("u4")',
    "f": 'pass {x}.astype("float64")',
    "c": 'pass {x}.astype("complex128")',
}
# What to pass in place of objects, by the types that all of them are of.
OBJECTS: tuple[tuple[tuple[type[Any], ...], str], ...] = (
    ((bool,), 'pass x.astype("bool")'),
    ((bool, type(None)), 'pass x.astype("bool"), where None becomes False'),
    ((int, np.integer), 'pass x.astype("{integers}")'),
    ((int, float, Decimal, Fraction, np.integer, np.floating), 'pass x.astype("float64")'),
    ((int, float, Decimal, Fraction, np.integer, np.floating, type(None)),
     'pass x.astype("float64"), where None becomes NaN, and integers from 2**53 on are rounded'),
    ((int, float, complex, np.number), 'pass x.astype("complex128")'),
    # Those of mpmath, sympy and gmpy2.
    ((Decimal, numbers.Real), 'pass x.astype("float64"), if all its objects have a value'),
    ((numbers.Number,), 'pass x.astype("complex128"), if all its objects have a value'),
    ((str,), 'pass numpy.asarray(x).astype("U")'),
    ((list, tuple), "pass all side by side, numpy.concatenate(x.tolist())"),
    ((bytes,), 'pass numpy.asarray(x).astype("S")'),
    ((datetime.date,), 'pass numpy.asarray(x).astype("M8[us]")'),
    ((datetime.timedelta,), 'pass numpy.asarray(x).astype("m8[us]")'),
)
# The types of NumPy that integers may be of, the best first.
INTEGERS = ("int64", "uint64")
COLUMNS = 'call dlbridge.convert_tree(x, to, columns="pass")'
OF_ARRAYS = "call dlbridge.convert_tree(x.tolist(), to)"
# Of strides on a device that a target lacks, where no library with kernels for them is imported.
NO_KERNEL = "copy it with the library that made it, or import cupy, whose kernels then make a compact copy"
NO_HINT = "its elements are no numbers, and no array library has them"
KINDS = {"O": "O", "T": "V", "s": "S", "w": "U", "u": "U", "x": "V"}      # of PEP 3118's letters
COUNTS = "0123456789(,)"        # before a letter, in its format
LONGEST = 4096                  # format of PEP 3118 that is looked through
SWAPPED = ">" if sys.byteorder == "little" else "<"             # the order that is not the machine's


def for_array(dtype: Any, side_by_side: bool) -> str:
    """What to pass in place of an ndarray whose elements DLPack has no type for.

    A view of other sizes needs one axis at least, along which the elements lie side by side.
    """
    if dtype.names:
        field = next((name for name in dtype.names if dtype[name].base.char in NUMBERS), None)
        one = "" if field is None else f"pass one field, x[{field!r}], or "
        return as_last_axis(dtype) + one + COLUMNS
    if not dtype.itemsize:
        return "its elements have no bytes"
    if hasattr(dtype, "na_object"):
        return "fill in what is missing first"
    return hint(dtype.kind, dtype.byteorder, "x", "x" if side_by_side else "numpy.ascontiguousarray(x)")


def of_integers(code: str, least: Any, greatest: Any) -> str:
    """A cast of integers, which may be beyond all types of them."""
    fits = (name for name in INTEGERS if np.iinfo(name).min <= least and greatest <= np.iinfo(name).max)
    return code.format(integers=next(fits, "float64"))


def for_exporter(kind: str, order: str) -> str:
    """What to pass in place of another object that NumPy takes, by the kind and the byte order of its elements."""
    return hint(kind, order, "numpy.asarray(x)", "numpy.ascontiguousarray(x)")


def as_last_axis(dtype: Any) -> str:
    """How the fields of a record are seen as an axis, if they can be; with what joins it to other ways."""
    numbers = numbers_of(dtype)
    if numbers is None or numbers.as_slice(dtype.itemsize) is None:
        return ""
    return f"{hint_for(numbers.dtype)}, for its numbers as a last axis, or "


def for_buffer(text: str, item_bytes: int) -> str:
    """What to pass in place of a buffer, by PEP 3118's format, which names the fields of structures."""
    # CPython 3.11's re loses memory where it has too little; and no structure that has a form of its own is as long.
    if not 2 <= len(text) <= LONGEST:
        return for_format(text, item_bytes)
    several = as_last_axis(structure_of(text, item_bytes))
    if several and "{" not in text:
        return several.removesuffix(", or ")
    return several + for_format(text, item_bytes)


def structure_of(text: str, item_bytes: int) -> np.dtype[Any]:
    """A dtype of as many numbers of one type as a format has; of bytes without form if it has anything else."""
    plain = re.sub(r":[^:]*:|T\{|\}|[@=^\s]", "", text)
    items = re.findall(r"([\d(),]*)([a-zA-Z?])", re.sub(r"[<>!]", "", plain))
    kinds = {letter for _, letter in items}
    if len(kinds) == 1 and kinds < {*NUMBERS} and len({*plain} & {*"<>!"}) < 2 and not re.search(r"[\d)]T", text):
        try:
            count = sum(math.prod(map(int, re.findall(r"\d+", shape))) for shape, _ in items)
            letter = np.dtype(kinds.pop())
            sizes = {letter.itemsize, 4} if letter.char in "lL" else {letter.itemsize}       # by the mark of the order
            if count > 1 and item_bytes in (size * count for size in sizes):
                return np.dtype([("", f"{letter.kind}{item_bytes // count}", (count,))])
        except (TypeError, ValueError, ArithmeticError):
            pass                    # NumPy has no array of this number of elements
    return np.dtype("V")


def for_format(text: str, item_bytes: int) -> str:
    letters = text.lstrip("@=<>!^" + COUNTS)
    letter = letters[:1]
    if len(letters) > 1 and {*letters} < {*NUMBERS, *COUNTS}:           # NumPy names them
        return "pass one field, numpy.asarray(x)['f0']"
    if letter == "B":       # of more than a byte each: ctypes says so of a packed structure
        return f"call dlbridge.convert(x, to, shape=(-1, {item_bytes})) for the bytes of its elements"
    if letter == "&":
        return OF_POINTER.format("ctypes.cast(x, ctypes.c_void_p).value")
    if letter == "T":
        return for_structure(text)
    if letter == "g":       # NumPy does not read it from ctypes, nor "u"
        return 'pass numpy.ndarray(memoryview(x).shape, "g", x).astype("float64")'
    if letter == "u":
        return 'pass the code points, numpy.frombuffer(memoryview(x).cast("B"), "u4")'
    return for_exporter(KINDS.get(letter, ""), text[:1].replace("!", ">"))


def for_structure(text: str) -> str:
    """By the format of a structure: its first field of numbers, if NumPy can read the whole."""
    if re.search(r"[PzZ&gu](?=:)", text):
        return 'pass the bytes, memoryview(x).cast("B")'
    inner = text.partition("{")[2]
    while (flat := re.sub(r"T\{[^{}]*\}:[^:]*:", "", inner)) != inner:
        inner = flat
    for shape_and_type, name in re.findall(r"([^:]*):([^:]*):", inner):
        if shape_and_type[-1:] in NUMBERS:
            return f"pass one field, numpy.asarray(x)[{name!r}]"
    return "pass numpy.asarray(x), and then what is said of it"


def for_struct(kind: str, is_native: bool) -> str:
    """What to pass in place of an ``__array_struct__``, of whose strings NumPy reads more than there is."""
    return for_exporter("" if kind == "U" else kind, "=" if is_native else SWAPPED)


def hint(kind: str, order: str, x: str, compact: str) -> str:
    return BY_KIND.get(kind, NO_HINT).format(x=x, compact=compact, order=order if order == SWAPPED else "")


# ---- objects of unknown libraries ------------------------------------------------------------------------------------

# How an attribute is called that gives the array of an object, the best first; in lower case and without underscores,
# since each library writes it in its own way. Those of the last line mean something else where there are keys.
GIVES_AN_ARRAY = (
    "todlpack", "tonumpy", "asnumpy", "getnumpy", "numpy", "tonumpyarray", "asnumpyarray", "getnumpyarray", "tonparray",
    "asnparray", "nparray", "tondarray", "asndarray", "getndarray", "ndarray", "toarray", "asarray", "getarray",
    "getasarray", "getfdata", "todense", "asdense", "full", "dequantize", "astensor", "totensor", "totorch", "astorch",
    "getpixelarray", "pixelarray", "getbuffer", "getframe", "getimage", "getpositions", "getdata", "array", "magnitude",
)
GIVES_A_TABLE = ("topyarrowtable", "toarrowtable", "toarrow", "topyarrow", "topolars", "topandas")
GIVES_ITS_VALUES = ("values", "value", "data", "getvalues", "getvalue", "read", "get", "tobytes", "tolist")


def for_tree(own: Any, container: Any) -> str:
    """Of a container with arrays in it, which may have a hint of its own."""
    hint: str = own(container) if callable(own) else own or IN_TREE
    return hint


def for_type(kind: Any) -> str | None:
    """What to pass in place of an object, by what its type has and nobody has called; or None.

    The type is asked, and not the object, since a proxy has every attribute. Some types have none of these because
    their objects say so; then what the hint gives is an array only perhaps, and the hint says so, too.
    """
    if has(kind, "__array__"):
        return "pass numpy.asanyarray(x), if that gives an array"           # which keeps a mask
    named = public_names(kind)
    code = code_of(named, GIVES_AN_ARRAY)
    table = None if code else code_of(named, GIVES_A_TABLE)
    if table is not None:
        return f"call dlbridge.convert_tree({table}, to)"
    if code is None and callable(named.get("keys", ("", None))[1]) and has(kind, "__getitem__"):
        return "call dlbridge.convert_tree(dict(x), to)"
    code = code or code_of(named, GIVES_ITS_VALUES)
    if code is None and has(kind, "__bytes__"):
        code = "bytes(x)"
    if code is None and has(kind, "__len__") and has(kind, "__getitem__"):
        code = "numpy.array(x)"
    return None if code is None else f"pass {code}, if that gives an array"


def has(kind: Any, name: str) -> bool:
    """Whether a type has a method itself, whatever its metaclass answers; None in a class takes one away."""
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name] is not None
    return False


def public_names(kind: Any) -> dict[str, tuple[str, Any]]:
    """What a type has by its names as in GIVES_AN_ARRAY: the name as it is, and the attribute."""
    found: dict[str, tuple[str, Any]] = {}
    for base in kind.__mro__:
        for name, value in vars(base).items():
            if isinstance(name, str) and not name.startswith("_"):
                found.setdefault(name.replace("_", "").lower(), (name, value))
    return found


def code_of(named: dict[str, tuple[str, Any]], wanted: Iterable[str]) -> str | None:
    """The code for the first attribute that is there and can be had without arguments."""
    for plain in wanted:
        name, value = named.get(plain, ("", None))
        if name and not callable(value):
            return f"x.{name}"
        if name and isinstance(value, (staticmethod, classmethod, type)):
            continue
        if name and needs_nothing(value):
            return f"x.{name}()"
    return None


def needs_nothing(method: Any) -> bool:
    """Whether a method can be called without arguments, as far as it says so."""
    try:
        parameters = list(inspect.signature(method).parameters.values())[1:]
    except Exception:
        return True                 # few functions in C say it, and an object may raise anything
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return False
    return True


# ---- frames ---------------------------------------------------------------------------------------------------------

def lacks(library: str, dtype: Any) -> ConversionError:
    return refusal(ConversionError, library, "dtype", dtype, f"is a type that {library} does not have",
                   "return one that it has, such as float32")


def several_types(dtypes: Iterable[Any], cast: str) -> ConversionError:
    """Of a frame of numbers: nobody said which type the array shall have."""
    return refusal(ConversionError, "source", "columns", f"of {', '.join(sorted(map(str, dtypes)))}",
                   "are of several types, and an array has one", f"{cast}, or {COLUMNS}")


def missing_values(fill: str) -> ConversionError:
    return refusal(ConversionError, "source", "columns", "with missing values", "are no array",
                   f"{fill}, or {COLUMNS}")


def no_numbers(columns: Mapping[Any, str]) -> ConversionError:
    """Of a frame: its columns that keep it from being one array, each with what is in it."""
    named = ", ".join(f"{name!r} {what}" for name, what in columns.items())
    return refusal(ConversionError, "source", "columns", named, "are no numbers of one array", COLUMNS)


# ---- Arrow's types ---------------------------------------------------------------------------------------------------

# An array may be a slice, with the bytes of others in its buffer, which says that they are signed.
BYTES = 'pass all bytes side by side, memoryview(pyarrow.concat_arrays([{x}, {x}.slice(0, 0)]).buffers()[2]).cast("B")'
# CDataInterface, "format strings": what is wrong with a format that has no DLPack type, and the hint, by how the
# format begins. The first line that fits counts. {x} is the code for an array of pyarrow's.
ARROW = {
    "b": ("has eight bools in a byte", "pass {x}.fill_null(False).to_numpy(zero_copy_only=False)"),
    "n": ("has nothing but nulls", "there is nothing to convert"),
    "tdD": ("are dates", 'pass {x}.cast("int32")'),
    "tdm": ("are dates", 'pass {x}.cast("int64")'),
    "tts": ("are times of the day", 'pass {x}.cast("int32")'),
    "ttm": ("are times of the day", 'pass {x}.cast("int32")'),
    "tt": ("are times of the day", 'pass {x}.cast("int64")'),
    "ts": ("are points in time", 'pass {x}.cast("int64")'),
    "tD": ("are durations", 'pass {x}.cast("int64")'),
    "ti": ("are intervals of months, days and nanoseconds", "no array library has them"),
    "d": ("are decimals", 'pass {x}.cast("float64")'),
    "w": ("are bytes of one length", BYTES.replace("2", "1")),
    "+s": ("has columns", "pass one of them, {x}.field(0)"),
    "+m": ("are maps", "pass all values side by side, {x}.items"),
    "+u": ("are of several types", "pass those of one type, {x}.field(0)"),
    "+r": ("are stored by their runs", "pass pyarrow.compute.run_end_decode({x})"),
    "+": ("are lists", "pass {x}.flatten()"),
    "u": ("are strings", BYTES),
    "U": ("are strings", BYTES),
    "vu": ("are strings", 'pass all bytes side by side, memoryview({x}.cast("string").buffers()[2]).cast("B")'),
    "vz": ("are bytes of any length",
           'pass all bytes side by side, memoryview({x}.cast("binary").buffers()[2]).cast("B")'),
    "z": ("are bytes of any length", BYTES),
    "Z": ("are bytes of any length", BYTES),
    "": ("has no DLPack type", "no array library has it"),
    # By the fields of other errors.
    "null_count": ("", "pass {x}.fill_null(0), or {x}.drop_null()"),
    "null lists": ("", "pass {x}.drop_null()"),
    "dictionary": ("", 'pass {x}.indices.cast("int64").fill_null(-1), or {x}.dictionary_decode()'),
    "extension": ("", "pass {x}.storage"),
    "unknown extension": ("", "pass {x}, or its .storage if it has one"),
    "nothing": ("", "convert its values to one type of numbers first"),
}
FLATTEN = ".flatten()"                  # what makes lists of one length their values


def unknown_format(text: str) -> tuple[str, str]:
    """How a format begins that has no DLPack type, and what is wrong with it."""
    return next((beginning, wrong) for beginning, (wrong, _) in ARROW.items() if text.startswith(beginning))


def for_arrow(facts: Facts, field: str, levels: int, is_stream: bool) -> str:
    """The hint for an error about values in so many lists, which the code in it flattens first."""
    own = facts.hint(field)
    if field == "+s" and not facts.records:
        return f"{COLUMNS}, with pyarrow installed"
    if own is not None:
        return own.format(x="x" + levels * (facts.hint("flatten") or FLATTEN))
    usual = "pyarrow.chunked_array(x).combine_chunks()" if is_stream else "pyarrow.array(x)"
    return ARROW[field][1].format(x=(facts.hint("pyarrow") or usual) + levels * FLATTEN)
