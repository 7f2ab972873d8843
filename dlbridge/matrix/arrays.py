"""The array that the command line of ``dlbridge explain`` describes.

It is made by options, as in ``numpy --dtype bfloat16 --shape 3,4 --step -1``, or mapped from a file.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

import dlbridge
from dlbridge._core.dtypes import NAMES
from dlbridge._core.meant import about_target
from dlbridge.matrix.rows import TABLE, Row, is_installed, rows_of
from dlbridge.matrix.terminal import Mistake, choice

ALIGNMENT = 64
DEFAULTS: dict[str, Any] = {"dtype": "float32", "shape": (3, 4), "order": "C", "readonly": False, "step": 1}


def extents(text: str) -> tuple[int, ...]:
    """Parse an option's shape, such as ``3,4``."""
    given = [extent.strip() for extent in text.split(",") if extent.strip()]
    if not all(extent.isdecimal() for extent in given):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of extents (write 3,4)")
    return tuple(map(int, given))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of ``dlbridge explain``: the array, the target and the device."""
    parser.add_argument("source", metavar="SOURCE", help="a library, or a .npy file, which is mapped read-only")
    parser.add_argument("target", metavar="TARGET", help="as in dlbridge.convert(array, TARGET)")
    parser.add_argument("--dtype", help="of NumPy or ml_dtypes; '>f4' is big-endian (float32)")
    parser.add_argument("--shape", type=extents, help="extents, with commas between them (3,4)")
    parser.add_argument("--order", choices=("C", "F"), help="which axis is the fastest: the last, or the first (C)")
    parser.add_argument("--readonly", action="store_true", default=None, help="memory that must not be written to")
    parser.add_argument("--step", type=int, help="along the first axis; -1 reverses it (1)")
    parser.add_argument("--device", help="where the result is to be, as in convert(array, TARGET, device=DEVICE)")


def make(arguments: argparse.Namespace) -> Any:
    """Make the array that the command line describes, in the library that it names."""
    given = {name: getattr(arguments, name) for name in DEFAULTS if getattr(arguments, name) is not None}
    rows, targets = rows_of(TABLE), dlbridge.targets()
    if arguments.target not in targets:
        text, wrong, hint = about_target(arguments.target, targets)
        raise Mistake(f"{text} {wrong} ({hint})")
    if arguments.source in rows:
        return in_library(rows[arguments.source], in_numpy(**(DEFAULTS | given)))
    if not Path(arguments.source).is_file():
        raise Mistake(f"{arguments.source!r} is neither a file nor a library ({choice(arguments.source, rows)})")
    if given:
        raise Mistake(f"--{next(iter(given))}: a file says itself what it has (leave it out)")
    return mapped(arguments.source)


def mapped(path: str) -> Any:
    """Map the array of a file, so that its memory is the file."""
    try:
        array = np.load(path, mmap_mode="r")
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror or error}") from error
    except (ValueError, EOFError):
        array = None
    if not isinstance(array, np.ndarray):
        raise Mistake(f"{path}: has no array that can be mapped (numpy.save() writes such files)")
    return array


def in_numpy(dtype: str, shape: tuple[int, ...], order: Any, readonly: bool, step: int) -> np.ndarray[Any, Any]:
    """Make zeros at a multiple of 64 bytes, which every library can share."""
    kind = dtype_named(dtype)
    if not step or (step != 1 and not shape):
        raise Mistake(f"--step: {step}: cannot be taken along {'any axis' if shape else 'no axis'} (1 takes all)")
    whole = (shape[0] * abs(step), *shape[1:]) if shape else ()
    nbytes = math.prod(whole) * kind.itemsize
    try:
        room = np.zeros(nbytes + ALIGNMENT, "u1")
    except (MemoryError, ValueError, OverflowError) as error:
        raise Mistake(f"--shape: {shape}: {error} (take a smaller one)") from error
    start = -room.ctypes.data % ALIGNMENT
    array = room[start:start + nbytes].view(kind).reshape(whole, order=order)
    array = array[::step] if shape else array
    array.flags.writeable = not readonly
    return array


def dtype_named(name: str) -> np.dtype[Any]:
    """Find a type of NumPy's own, or of ml_dtypes."""
    try:
        kind = np.dtype(name)
        if kind.itemsize and not kind.hasobject:
            return kind
    except TypeError:
        pass
    if name not in NAMES:
        raise Mistake(f"--dtype: {name!r} is no type that dlbridge knows ({choice(name, NAMES)})")
    try:
        import ml_dtypes

        made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return made
    except (ImportError, AttributeError) as error:
        raise Mistake(f"--dtype: {name}: NumPy has no such type: {error} (pip install -U ml_dtypes)") from error


def in_library(row: Row, array: np.ndarray[Any, Any]) -> Any:
    """Put the array into a library, which changes what it does not support: without read-only memory it copies."""
    if not is_installed(row):
        raise Mistake(f"{row.name} is not installed (pip install {row.distributions[0]})")
    try:
        if row.name in dlbridge.targets():
            return dlbridge.convert(array, row.name, device=None if "cpu" in row.devices else row.devices[0])
        return row.make(row.load(), array)
    except Exception as error:
        raise Mistake(f"{row.name} has no such array: {error}") from error
