"""Write the tables of docs/libraries.md: from the tables of the targets, and a look at every library that is installed.

``PYTHONPATH=tests python tools/libraries_page.py``, with the extra "all".
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cuda.core.utils
import numpy as np
import pandas
import PIL.Image
import polars
import pyarrow
from dlbridge._core.dtypes import NAMES
from dlbridge._core.targets.quirks import COPIED_DTYPES, DTYPES, LATER_DTYPES, LIMITS, QUIRKS
from libraries.rows import ROWS

import dlbridge
from dlbridge.matrix.info import dlpack_version

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "libraries.md"
BEGIN, END = "<!-- begin: {} -->\n", "<!-- end: {} -->\n"
PROTOCOLS = {
    "__dlpack_c_exchange_api__": "exchange API", "__dlpack__": "DLPack", "__array_struct__": "array struct",
    "__array_interface__": "array interface", "__arrow_c_device_array__": "Arrow device array",
    "__arrow_c_array__": "Arrow array", "__arrow_c_stream__": "Arrow stream",
}
# The name of the distribution, where it is not that of the library.
DISTRIBUTIONS = {"paddle": "paddlepaddle", "tensorflow": "tensorflow-cpu", "warp": "warp-lang",
                 "tvm_ffi": "apache-tvm-ffi", "array_api_strict": "array-api-strict"}
MATRIX = np.arange(6, dtype="float32").reshape(2, 3)
# Libraries that are sources only, and how to make something of theirs.
SOURCES: dict[str, tuple[str, Callable[[], Any]]] = {
    "pyarrow, Array": ("pyarrow", lambda: pyarrow.array([1.0, 2.0])),
    "pyarrow, ChunkedArray": ("pyarrow", lambda: pyarrow.chunked_array([[1.0, 2.0]])),
    "pyarrow, Tensor": ("pyarrow", lambda: pyarrow.Tensor.from_numpy(MATRIX)),
    "pyarrow, Buffer": ("pyarrow", lambda: pyarrow.py_buffer(b"abcd")),
    "pandas, Series": ("pandas", lambda: pandas.Series([1.0, 2.0])),
    "polars, Series": ("polars", lambda: polars.Series([1.0, 2.0])),
    "Pillow, Image": ("pillow", lambda: PIL.Image.new("RGB", (4, 3))),
    "cuda.core, StridedMemoryView": (
        "cuda-core", lambda: cuda.core.utils.StridedMemoryView.from_any_interface(MATRIX, stream_ptr=-1)),
}
LAYOUTS = {
    "NEGATIVE_STRIDES": "negative strides", "ZERO_STRIDES": "repeated rows", "ANY_STRIDES": "holes",
    "ANY_ORDER": "axes in any order", "ODD_STRIDES": "strides off the item size", "SWAPPED_BYTES": "other byte order",
    "alignment": "alignment", "fewest_axes": "fewest axes", "most_axes": "most axes",
}
MEMORY = {
    "SHARING": "shares memory of others", "READ_ONLY": "heeds read-only, or never writes", "HOST": "the host's memory",
    "OTHER_DEVICES": "a device's memory",
}
FORMS = {
    "PINNED": "pinned memory", "UNIFIED": "managed memory", "PACKED": "packed elements below a byte",
    "PADDED": "padded elements below a byte", "BOOLS": "bools",
}
LIBRARIES = [*dict.fromkeys(quirk.library for quirk in QUIRKS if quirk.library != "*")]


def table(head: list[str], rows: Iterator[list[str]]) -> str:
    """Lay cells out as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def offers(array: Any) -> str:
    """The protocols that an array has on the host."""
    found = [words for name, words in PROTOCOLS.items() if hasattr(array, name)]
    try:
        memoryview(array)
        found.append("buffer")
    except (TypeError, BufferError, ValueError):
        pass
    return ", ".join(found)


def sources() -> Iterator[list[str]]:
    """A row for each kind of array, from one that was made."""
    several = {name.partition(",")[0] for name in SOURCES}
    made = {row.name: (DISTRIBUTIONS.get(row.name, row.name), lambda row=row: row.make(MATRIX))
            for row in ROWS if row.name not in several}
    for name, (distribution, make) in (made | SOURCES).items():
        array = make()
        tensor = dlbridge.asdlpack(array)
        yield [name, version(distribution), offers(array), tensor.protocol,
               dlpack_version(array) if hasattr(array, "__dlpack__") else "",
               "read-only" if tensor.readonly else "writable"]


def holds(columns: dict[str, str], given: str, lacking: str) -> Iterator[list[str]]:
    """A row for each target, of what its rows in QUIRKS take from it; one that shares nothing shares no layout."""
    for library in LIBRARIES:
        quirks = {quirk.lacks: quirk for quirk in QUIRKS if quirk.library == library}
        cells = []
        for field in columns:
            if field in LIMITS:
                cells.append(str(quirks[field].value) if field in quirks else "")
                continue
            quirk = quirks.get(field) or (quirks.get("SHARING") if field in LAYOUTS else None)
            if quirk is None:
                cells.append(given)
            else:
                cells.append(f"{lacking} before {quirk.below}" if quirk.below else lacking)
        yield [library, *cells]


def dtypes() -> Iterator[list[str]]:
    """A row for each type, of the targets that name the types they take."""
    for name in NAMES:
        since = {later.library: f"since {later.since}" for later in LATER_DTYPES if name in later.dtypes}
        cells = ["yes" if name in DTYPES[library] else since.get(library, "") for library in DTYPES]
        for index, library in enumerate(DTYPES):
            if name in COPIED_DTYPES.get(library, ()):
                cells[index] = "by a copy"
        if any(cells):
            yield [name, *cells]


def reasons() -> Iterator[list[str]]:
    """Every row of QUIRKS that was seen or reported, in words."""
    words = LAYOUTS | MEMORY | FORMS
    for quirk in QUIRKS:
        if quirk.library != "*" and not quirk.issue.startswith(("dlpack 1.3", "PEP")):
            bound = f", before {quirk.below}" if quirk.below else ""
            yield [quirk.library, words[quirk.lacks], quirk.words + bound, quirk.issue]


TABLES = {
    "sources": lambda: table(
        ["arrays of", "version", "offer", "taken by", "own DLPack export", "memory"], sources()),
    "layouts": lambda: table(["target", *LAYOUTS.values()], holds(LAYOUTS, "shared", "copied")),
    "memory": lambda: table(["target", *MEMORY.values()], holds(MEMORY, "yes", "no")),
    "dtypes": lambda: table(["dtype", *DTYPES], dtypes()),
    "reasons": lambda: table(["target", "what", "what happens without dlbridge", "from"], reasons()),
}


def main() -> None:
    """Put each table between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
