"""Write docs/libraries.md and a page for each library: from its file, and a look at every library that is installed.

``PYTHONPATH=tests python tools/pages libraries``, with the extra "all". What stands outside of the marks of a page is
written by hand, and kept.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
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
from marks import coded, put

import dlbridge
from dlbridge._core.dtypes import NAMES
from dlbridge.libraries import dlpack, profiles
from dlbridge.libraries.library import Arrays, Fact, Library, files, in_file, is_one_array, libraries
from dlbridge.matrix.info import dlpack_version

OVERVIEW = pathlib.Path(__file__).parents[2] / "docs" / "libraries.md"
# Pages of several libraries, by their files; each other library has a page of its own.
SHARED = {"others": "Other libraries", "own": "memoryview, capsules and Tensor"}
OWN = ("memoryview", "dlbridge", "dlpack")
TITLES = {
    "array_api_strict": "array-api-strict", "cupy": "CuPy", "jax": "JAX", "litert": "LiteRT", "mindspore": "MindSpore",
    "mlx": "MLX", "numba": "Numba", "numpy": "NumPy", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO",
    "paddle": "Paddle", "pillow": "Pillow", "tensorflow": "TensorFlow", "tvm_ffi": "tvm-ffi", "warp": "Warp", **SHARED,
}
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
}
LIMITS = {
    "alignment": "alignment", "aligned_dtypes": "alignment of complex128", "device_alignment": "alignment on a device",
    "fewest_axes": "fewest axes", "most_axes": "most axes",
}
RELABELLED = {"LENGTH_1_STRIDES": "the strides of an axis of one element"}
MEMORY = {
    "SHARING": "shares memory of others", "READ_ONLY": "leaves read-only memory unwritten",
    "WRITABLE": "its arrays can be written to", "HOST": "takes the host's memory",
    "OTHER_DEVICES": "takes a device's memory",
}
FORMS = {
    "PINNED": "pinned memory", "UNIFIED": "managed memory", "PACKED": "packed elements below a byte",
    "PADDED": "padded elements below a byte", "BOOLS": "bools",
}
# What makes a target's arrays, by its name, by its delivery, or by the first part of that.
DELIVERIES = {
    "numpy": "NumPy's C API", "torch": "its C exchange API; before 2.10 a capsule", "exchange": "its C exchange API",
    "cupy": "its constructor, over memory that a `Tensor` keeps",
    "jax": "jaxlib's importer, with a legacy capsule; otherwise by `jax.dlpack.from_dlpack`",
    "numba": "its `DeviceNDArray`; otherwise by `numba.cuda.from_cuda_array_interface`",
    "onnxruntime": "`OrtValue`'s importer, with a legacy capsule",
    "pyarrow": "an `Array` where there is one axis, by `Array.from_buffers`; else a `Tensor`, by `Tensor.from_numpy`",
    "tensor": "a `Tensor`", "tensor:prepare_memoryview": "a memoryview over a `Tensor`",
    "tensor:prepare_legacy": "a capsule", "tensor:prepare_versioned": "a capsule",
    "importer": "its `{importer}`, with a `Tensor`",
    "importer:prepare_for_capsules": "its `{importer}`, with a legacy capsule",
    "importer:prepare_for_ndarrays": "its own constructor, over an ndarray",
}
# What the fields of libraries/library.Arrays say.
SOURCE_FACTS = {
    "preferred": "is read by {}", "exchange": "its exchange table is used as it is",
    "gives": "is read by its own function",
    "unflagged": "has read-only memory", "constant": "its read-only memory is constant",
    "forgets": "the array is kept alive beside its export",
    "element_type": "its own word for the type counts", "gradient_free": "`{}` is asked",
    "copies": "reading copies", "arrow_form": "is shared so with copy=False",
    "masked": "is refused where its mask hides a value",
    "no_memory": "is refused", "unasked": "is refused", "partial": "is no table, and is handed on in batches",
    "shells": "is refused where it has such a type", "owned_on": "only its managed export is used on {}",
    "columns": "is a dictionary of its columns in batches",
    "container": "is a dictionary of its arrays in batches",
    "without_rows": "is left unread where a type is refused",
    "replicas": "is read on one of its devices",
    "host_number": "is asked which device of the host it is on", "refused": "is refused",
    "names_stream": "names its stream",
    "none_is_unordered": "takes None for no order", "stream_object": "its stream is known",
    "unordered_export": "its `__dlpack__` is told to order nothing", "interface": "its interface is corrected",
    "rearranged": "its kernels make compact copies on a device",
    "about_values": "explain() says what its values are",
    "declines": "what its `__dlpack__` refuses is asked of the next protocol",
    "ambiguous": "the next protocol is asked for some types that its buffer names",
    "made_like": 'results are like it with `returns="like"`',
    "bytes_in_buffer": "its buffer is read with dtype= and shape=",
    "pinned_memory": "is asked whether it is in pinned memory",
    "has_mask": "may have a mask, for types that are named",
    "shards": "its parts are given by `dlbridge.shards`",
    "form_name": "may be several arrays, each of which is converted",
}
# Those whose arrays are several arrays each have a page of their own, docs/jobs/several_arrays.md.
TARGETS = [library for library in (*libraries().values(), dlpack.VERSIONED) if library.delivery not in ("", "forms")]


def lacks(library: Library) -> dict[str, Fact]:
    """What a target does not support, by the name that the tables have for it, limits included."""
    limits = {name: getattr(library, name) for name in (
        "alignment", "device_alignment", "aligned_dtypes", "fewest_axes", "most_axes")}
    return {fact.value: fact for fact in library.lacks} | {name: fact for name, fact in limits.items() if fact}


def bounds(fact: Fact) -> str:
    """The versions that a fact holds for, in words."""
    return "".join([f", since {fact.since}" if fact.since else "", f", before {fact.below}" if fact.below else ""])


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Lay cells out as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def points(lines: Iterable[str]) -> str:
    """A list, each line once."""
    return "".join(f"- {line}\n" for line in dict.fromkeys(lines))


def offers(array: Any) -> str:
    """The protocols that an array has on the host."""
    found = [words for name, words in PROTOCOLS.items() if hasattr(array, name)]
    try:
        memoryview(array)
        found.append("buffer")
    except (TypeError, BufferError, ValueError):
        pass
    return ", ".join(found) or "no protocol"


# ---- a page for each library -----------------------------------------------------------------------------------------

def pages() -> dict[str, list[Library]]:
    """The libraries of each page, by the name of the page."""
    found: dict[str, list[Library]] = {}
    for name in sorted(files() | {"others"}):
        for library in in_file(name):
            if library.delivery != "forms" and (library.delivery or any(facts(library))):
                found.setdefault("own" if library.name in OWN else name, []).append(library)
    found["own"].sort(key=lambda library: OWN.index(library.name))
    found["own"].append(dlpack.VERSIONED)
    return dict(sorted(found.items(), key=lambda item: (item[0] in SHARED, title(item[0]).lower())))


def title(page: str) -> str:
    return TITLES.get(page, page)


def looked_at() -> dict[str, list[str]]:
    """What was seen of an array of each kind, by the name of its library."""
    several = {name.partition(",")[0] for name in SOURCES}
    made = {row.name: (DISTRIBUTIONS.get(row.name, row.name), lambda row=row: row.make(MATRIX))
            for row in ROWS if row.name not in several}
    found: dict[str, list[str]] = {}
    for name, (distribution, make) in (made | SOURCES).items():
        library, _, kind = name.partition(", ")
        array = make()
        tensor = dlbridge.asdlpack(array)
        export = f", and exports DLPack {dlpack_version(array)}" if hasattr(array, "__dlpack__") else ""
        name = f"`{kind}`" if kind else "an array"
        found.setdefault(library.lower(), []).append(
            f"{name} of version {version(distribution)} offers {offers(array)}{export}; it is read by "
            f"{tensor.protocol}, {'read-only' if tensor.readonly else 'writable'}")
    return found


def facts(library: Library) -> Iterator[str]:
    """A line for each fact about a type as a source."""
    for record in library.arrays:
        for field in Arrays._fields:
            value = getattr(record, field)
            for fact in (value,) if isinstance(value, Fact) else value if field == "refused" else ():
                if fact.value is is_one_array:
                    continue            # it is kept from being asked what its base is asked
                name = "all its types" if record.name == "*" else f"`{record.name}`"
                why = f", since it {coded(fact.text)}{bounds(fact)}" if fact.text else bounds(fact)
                where = f" where `{fact.value}`" if field == "refused" and isinstance(fact.value, str) else ""
                yield f"{name}: {SOURCE_FACTS[field].format(fact.value)}{where}{why} ({fact.evidence})"


def made_by(library: Library) -> str:
    """How a target's arrays are made."""
    keys = library.name, library.delivery, library.delivery.partition(":")[0]
    return next(DELIVERIES[key] for key in keys if key in DELIVERIES).format(importer=library.importer)


def reasons(library: Library) -> Iterator[str]:
    """Every lack that was seen or reported, in words."""
    words = LAYOUTS | RELABELLED | MEMORY | FORMS | LIMITS
    shared = {profiles.NO_PINNED, profiles.NO_UNIFIED}
    for field, fact in lacks(library).items():
        if fact not in shared and not fact.evidence.startswith(("dlpack 1.3", "PEP")):
            yield f"{words[field]}: it {coded(fact.text)}{bounds(fact)} ({fact.evidence})"


def as_target(library: Library) -> str:
    """What is known of a library as a target."""
    name = "to_dlpack(x, max_version=(1, 0))" if library is dlpack.VERSIONED else f'convert(x, "{library.name}")'
    install = "" if library.name.startswith(OWN) else f", `pip install {library.install or library.name}`"
    lines = [f"made by {made_by(library)}{install}", f"copied for it: {copied(library) or 'no layout'}",
             f"axes: {limits(library)}", *memory(library), f"types: {types(library)}"]
    lacking = points(reasons(library))
    why = f"What it lacks, and what happens without dlbridge:\n\n{lacking}\n" if lacking else ""
    return f"## `{name}`\n\n{points(lines)}\n{why}"


def copied(library: Library) -> str:
    """The layouts that are copied for a target; one that shares nothing shares no layout."""
    rows = lacks(library)
    found = [f"{words}{f' ({bounds(fact)[2:]})' if bounds(fact) else ''}" for field, words in LAYOUTS.items()
             if (fact := rows.get(field) or rows.get("SHARING"))]
    if "alignment" in rows:
        found.append(f"what is not aligned to {rows['alignment'].value} bytes")
    return ", ".join(found)


def limits(library: Library) -> str:
    """How many axes a target's arrays have."""
    rows = lacks(library)
    least = rows["fewest_axes"].value if "fewest_axes" in rows else 0
    most = rows["most_axes"].value if "most_axes" in rows else 64
    return "any" if (least, most) == (0, 64) else str(least) if least == most else f"{least} to {most}"


def memory(library: Library) -> Iterator[str]:
    """What memory a target takes."""
    rows = lacks(library)
    for field, words in MEMORY.items():
        yield f"{words}: {'yes' if field not in rows else 'no' + bounds(rows[field])}"


def types(library: Library) -> str:
    """The types that a target takes."""
    if not library.dtypes:
        return "all that it has, and ml_dtypes for the rest" if library.name == "numpy" else "all"
    return ", ".join(f"{name}{mark}" for name in NAMES if (mark := has_dtype(library, name)) is not None)


def has_dtype(library: Library, name: str) -> str | None:
    """How a target takes a type: "" as it is; None where it does not."""
    for fact in library.dtypes:
        if name in fact.value:
            by_copy = library.copied_dtypes is not None and name in library.copied_dtypes.value
            return " (by a copy)" if by_copy else f" (since {fact.since})" if fact.since else ""
    return None


def page(members: list[Library], seen: dict[str, list[str]]) -> str:
    """What a page has between its marks."""
    sources = points([*(line for library in members for line in seen.get(library.name, ())),
                      *(f"{library.name}, {line}" if len(members) > 1 else line
                        for library in members for line in facts(library))])
    parts = [f"## As a source\n\n{sources}\n"] if sources else []
    return "".join([*parts, *(as_target(library) for library in members if library.delivery)])


# ---- for who comes to a page first -----------------------------------------------------------------------------------

def in_short(library: Library, seen: dict[str, list[str]], name: str) -> str:
    """What becomes of arrays into a library and out of it, in a few sentences and lines of code."""
    access = {line.rpartition(", ")[2] for line in seen.get(library.name, ())}
    memory = f", as {access.pop()} memory" if len(access) == 1 else ""
    if library.delivery:
        other = "numpy" if library.name == "torch" else "torch"
        words = [*into_words(library, name), f"Arrays of {name} go to every target{memory}."]
        code = [f'array = dlbridge.convert(x, "{library.name}")', f'tensor = dlbridge.convert(array, "{other}")']
    else:
        taken = [record for record in library.arrays if any(
            getattr(record, field) for field in Arrays._fields if field not in ("name", "hints", *REFUSING))]
        kinds = ", ".join(f"`{record.name}`" for record in taken)
        words = [f"{name} is a source: the memory of {kinds} goes to every target{memory}. Nothing is converted to it."]
        code = ['tensor = dlbridge.convert(x, "torch")'] if not all(record.container for record in taken) else []
        if any(record.container or record.columns for record in taken):
            code.append('tensors = dlbridge.convert_tree(x, "torch")')
    return f"{' '.join(words)}\n\n```python\n{chr(10).join(code)}\n```"


# Fields of what is not taken.
REFUSING = "refused", "unasked", "partial", "no_memory"


def into_words(library: Library, name: str) -> Iterator[str]:
    rows, layouts = lacks(library), copied(library)
    where = " of a device" if "HOST" in rows else " of the host" if "OTHER_DEVICES" in rows else ""
    what = "which is always a copy" if "SHARING" in rows else f"over the memory of `x`, if that is memory{where}" if (
        where) else "over the memory of `x`"
    yield f'`dlbridge.convert(x, "{library.name}")` gives an array of {name}, {what}.'
    if "SHARING" in rows:
        return
    if layouts:
        yield f"What it does not support as it is, is copied first: {layouts}."
    access = "memory that somebody can write to" if "WRITABLE" in rows else "read-only memory" if (
        "READ_ONLY" in rows) else ""
    if access:
        yield f'So is {access}, unless you pass `readonly="share"` and nobody writes to it.'


# ---- the overview ----------------------------------------------------------------------------------------------------

def overview(found: dict[str, list[Library]]) -> Iterator[list[str]]:
    """A row for each page."""
    for name, members in found.items():
        targets = [library for library in members if library.delivery and library is not dlpack.VERSIONED]
        yield [f"[{title(name)}](libraries/{name}.md)", ", ".join(f'`"{library.name}"`' for library in targets),
               ", ".join(map(made_by, targets)) or "a source only"]


def layouts() -> Iterator[list[str]]:
    """A row for each target, of what is copied for it."""
    for library in TARGETS:
        name = "a versioned capsule" if library is dlpack.VERSIONED else library.name
        yield [name, copied(library) or "nothing", limits(library)]


def write(path: pathlib.Path, text: str, name: str, made: str) -> None:
    """Write a page with a part between its marks, which a page that is not there yet gets."""
    begin = f"<!-- begin: {name} -->\n"
    text = text if begin in text else f"{text.rstrip()}\n\n{begin}<!-- end: {name} -->\n"
    path.write_text(put(text, name, f"\n{made.rstrip()}\n\n"), encoding="utf-8")


def main(words: list[str]) -> None:
    """Write all pages."""
    seen, found = looked_at(), pages()
    assert seen.keys() <= {library.name for members in found.values() for library in members}
    folder = OVERVIEW.with_suffix("")
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in found:
            path.unlink()
    for name, its_libraries in found.items():
        path = folder / f"{name}.md"
        text = path.read_text(encoding="utf-8") if path.exists() else f"# {title(name)}\n"
        if name not in SHARED:
            head, _, rest = text.partition("\n")
            if "<!-- begin: short -->" not in text:
                text = f"{head}\n\n<!-- begin: short -->\n<!-- end: short -->\n{rest}"
            text = put(text, "short", f"\n{in_short(its_libraries[0], seen, title(name))}\n\n")
        write(path, text, "facts", page(its_libraries, seen))
    rows = {"libraries": table(["library", "target", "made by"], overview(found)),
            "layouts": table(["target", "what is copied for it", "axes"], layouts())}
    for name, made in rows.items():
        write(OVERVIEW, OVERVIEW.read_text(encoding="utf-8"), name, made)
