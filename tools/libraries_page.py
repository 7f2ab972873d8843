"""Write the tables of docs/libraries.md: from the libraries' files, and a look at every library that is installed.

``PYTHONPATH=tests python tools/libraries_page.py``, with the extra "all".
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
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
from libraries.rows import ROWS

import dlbridge
from dlbridge._core.dtypes import NAMES
from dlbridge.libraries import dlpack, profiles
from dlbridge.libraries.library import Arrays, Fact, Library, libraries
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
                 "tvm_ffi": "apache-tvm-ffi", "array_api_strict": "array-api-strict", "litert": "ai-edge-litert"}
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
RELABELLED = {"LENGTH_1_STRIDES": "the strides of an axis of one element"}
MEMORY = {
    "SHARING": "shares memory of others", "READ_ONLY": "heeds read-only, or never writes",
    "WRITABLE": "its arrays may change", "HOST": "the host's memory",
    "OTHER_DEVICES": "a device's memory",
}
FORMS = {
    "PINNED": "pinned memory", "UNIFIED": "managed memory", "PACKED": "packed elements below a byte",
    "PADDED": "padded elements below a byte", "BOOLS": "bools",
}
# What makes a target's arrays, by its name, by its delivery, or by the first part of that.
DELIVERIES = {
    "numpy": "NumPy's C API", "torch": "its C exchange API; before 2.10 a capsule", "exchange": "its C exchange API",
    "jax": "jaxlib's importer, with a legacy capsule; otherwise by `jax.dlpack.from_dlpack`",
    "cupy": "`cupy.from_dlpack`, with a `Tensor`",
    "numba": "`numba.cuda.from_cuda_array_interface`",
    "onnxruntime": "`OrtValue`'s importer, with a legacy capsule",
    "pyarrow": "an `Array` where there is one axis, by `Array.from_buffers`; else a `Tensor`, by `Tensor.from_numpy`",
    "tensor:prepare_memoryview": "a memoryview over a `Tensor`", "capsule": "a capsule", "tensor": "a `Tensor`",
    "importer": "its `{importer}`, with a `Tensor`",
    "importer:prepare_for_capsules": "its `{importer}`, with a legacy capsule",
    "importer:prepare_for_ndarrays": "its own constructor, over an ndarray",
}
# What the fields of libraries/library.Arrays say.
SOURCE_FACTS = {
    "preferred": "is read by {}", "exchange": "its exchange table is used as it is",
    "gives": "is read by its own function",
    "immutable": "read-only memory", "forgets": "the array is kept alive beside its export",
    "element_type": "its own word for the type counts", "gradient_free": "`{}` is asked",
    "copies": "reading copies", "arrow_form": "is shared so with copy=False",
    "masked": "refused where its mask hides a value",
    "no_memory": "refused", "unasked": "refused",
    "shells": "refused where it has such a type", "owned_on": "only its managed export is used on {}",
    "columns": "is a dictionary of its columns in batches",
    "container": "is a dictionary of its arrays in batches",
    "without_rows": "is left unread where a type is refused",
    "replicas": "is read on one of its devices",
    "host_number": "is asked which device of the host it is on", "refused": "refused",
    "names_stream": "names its stream",
    "none_is_unordered": "takes None for no order", "stream_object": "its stream is known",
    "default_unsaid": "waits for the default stream", "repeats_unsaid": "its own strides count",
    "zero_stream": "its stream 0 is a default one",
    "rearranged": "its kernels make compact copies on a device",
    "pinned_memory": "is asked whether it is in pinned memory",
}
TARGETS = [library for library in (*libraries().values(), dlpack.VERSIONED) if library.delivery]


def lacks(library: Library) -> dict[str, Fact]:
    """What a target does not support, by the name that the tables have for it, limits included."""
    limits = {name: getattr(library, name) for name in (
        "alignment", "device_alignment", "aligned_dtypes", "fewest_axes", "most_axes")}
    return {fact.value: fact for fact in library.lacks} | {name: fact for name, fact in limits.items() if fact}


def bounds(fact: Fact) -> str:
    """The versions that a fact holds for, in words."""
    return "".join([f", since {fact.since}" if fact.since else "", f", before {fact.below}" if fact.below else ""])


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


def targets() -> Iterator[list[str]]:
    """A row for each target: how its arrays are made, and what pip installs."""
    for library in libraries().values():
        if library.delivery:
            keys = library.name, library.delivery, library.delivery.partition(":")[0]
            words = next(DELIVERIES[key] for key in keys if key in DELIVERIES)
            own = library.name in ("memoryview", "dlpack", "dlbridge")
            yield [f'`"{library.name}"`', words.format(importer=library.importer),
                   "" if own else f"`{library.install or library.name}`"]


def facts() -> Iterator[list[str]]:
    """A row for each fact about a type as a source."""
    for library in libraries().values():
        for record in library.arrays:
            for field in Arrays._fields:
                value = getattr(record, field)
                for fact in (value,) if isinstance(value, Fact) else value if field == "refused" else ():
                    name = f"{library.name}, {'all its types' if record.name == '*' else record.name}"
                    yield [name, SOURCE_FACTS[field].format(fact.value), fact.words + bounds(fact), fact.evidence]


def holds(columns: Mapping[str, str], given: str, lacking: str) -> Iterator[list[str]]:
    """A row for each target, of what its facts take from it; one that shares nothing shares no layout."""
    for library in TARGETS:
        rows = lacks(library)
        cells = []
        for field in columns:
            fact = rows.get(field) or (rows.get("SHARING") if field in LAYOUTS else None)
            if field in ("alignment", "fewest_axes", "most_axes"):
                cells.append(str(rows[field].value) if field in rows else "")
            else:
                cells.append(given if fact is None else f"{lacking}{bounds(fact).replace(',', '')}")
        yield [library.name, *cells]


def dtypes() -> Iterator[list[str]]:
    """A row for each type, of the targets that name the types they take."""
    for name in NAMES:
        cells = [has_dtype(library, name) for library in TARGETS if library.dtypes]
        if any(cells):
            yield [name, *cells]


def has_dtype(library: Library, name: str) -> str:
    """Whether a target takes a type."""
    for fact in library.dtypes:
        if name in fact.value:
            by_copy = library.copied_dtypes is not None and name in library.copied_dtypes.value
            return "by a copy" if by_copy else f"since {fact.since}" if fact.since else "yes"
    return ""


def reasons() -> Iterator[list[str]]:
    """Every lack that was seen or reported, in words."""
    words = LAYOUTS | RELABELLED | MEMORY | FORMS | {
        "aligned_dtypes": "alignment of complex128", "device_alignment": "alignment on a device"}
    shared = {profiles.NO_PINNED, profiles.NO_UNIFIED}
    for library in TARGETS:
        for field, fact in lacks(library).items():
            if fact not in shared and not fact.evidence.startswith(("dlpack 1.3", "PEP")):
                yield [library.name, words[field], fact.words + bounds(fact), fact.evidence]


TABLES = {
    "sources": lambda: table(
        ["arrays of", "version", "offer", "taken by", "own DLPack export", "memory"], sources()),
    "facts": lambda: table(["arrays of", "what dlbridge does", "since the library", "from"], facts()),
    "targets": lambda: table(["target", "made by", "install"], targets()),
    "layouts": lambda: table(["target", *LAYOUTS.values()], holds(LAYOUTS, "shared", "copied")),
    "memory": lambda: table(["target", *MEMORY.values()], holds(MEMORY, "yes", "no")),
    "dtypes": lambda: table(["dtype", *(library.name for library in TARGETS if library.dtypes)], dtypes()),
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
