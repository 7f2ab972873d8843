"""Write the tables of docs/jobs/several_arrays.md: which parts are shared, from a run of every conversion."""

from __future__ import annotations

import importlib
import os
import pathlib
import warnings

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import pyarrow
import scipy.sparse
from marks import put

import dlbridge
from dlbridge.libraries.library import Library, libraries

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "jobs" / "several_arrays.md"
FORMS = ("csr", "csc", "coo", "bsr", "bsc")


def aligned(array: np.ndarray) -> np.ndarray:
    """The same in memory that JAX can share."""
    made = dlbridge.convert(dlbridge.empty(array.shape, str(array.dtype)), "numpy")
    made[...] = array
    return made


def matrix(form: str) -> object:
    """A matrix of SciPy, or of torch where SciPy lacks the form, all of whose memory is aligned."""
    made = scipy.sparse.csr_array(np.kron(np.eye(4), np.ones((2, 2))).astype("float32"))
    if form == "bsc":
        return dlbridge.convert(made, "torch").to_sparse_bsc((2, 2))
    made = scipy.sparse.bsr_array(made, blocksize=(2, 2)) if form == "bsr" else made.asformat(form)
    if form == "coo":
        made.coords = tuple(map(aligned, made.coords))
    else:
        made.indices, made.indptr = aligned(made.indices), aligned(made.indptr)
    made.data = aligned(made.data)
    return made


def lists() -> object:
    """Rows of any length, all of whose memory is aligned."""
    offsets, values = aligned(np.array([0, 2, 2, 5])), aligned(np.arange(5.0))
    return pyarrow.LargeListArray.from_arrays(*map(pyarrow.array, (offsets, values)))


def outcome(source: object, to: str) -> str:
    """One cell, which both explain() and the conversion say."""
    plan = dlbridge.explain(source, to, readonly="share")
    dlbridge.convert(source, to, readonly="share")
    copied = dict.fromkeys(name.partition("[")[0] for name, part in plan.leaves.items() if part.action == "copy")
    return f"copies {', '.join(copied)}" if copied else "shared"


def having(forms: tuple[str, ...]) -> dict[str, Library]:
    """The libraries that have arrays of these forms in the host's memory, by name."""
    return {name: library for name, library in sorted(libraries().items())
            if library.delivery and not library.forms.keys().isdisjoint(forms)
            and all(fact.value != "HOST" for fact in library.lacks)}


def table(forms: tuple[str, ...]) -> str:
    found = having(forms)
    for library in found.values():
        importlib.import_module(library.top)
    lines = ["| form | from | " + " | ".join(found) + " |\n", "|---" * (2 + len(found)) + "|\n"]
    with warnings.catch_warnings(), jax.enable_x64(False):
        warnings.simplefilter("ignore")         # torch says that its tensors of rows are new
        for form in forms:
            first = lists() if form == "ragged" else matrix(form)
            for name in (name for name, library in found.items() if form in library.forms):
                source = dlbridge.convert(first, name)
                if (form, name) == ("coo", "sparse"):
                    source.coords = aligned(source.coords)
                cells = ["" if to == name or form not in found[to].forms else outcome(source, to) for to in found]
                if any(cells):
                    words = form if form == "ragged" else form.upper()
                    lines.append(f"| {words} | {name} | " + " | ".join(cells) + " |\n")
    return "".join(lines)


def page() -> str:
    return put(put(PAGE.read_text(encoding="utf-8"), "sparse", table(FORMS)), "ragged", table(("ragged",)))


def main(words: list[str]) -> None:
    PAGE.write_text(page(), encoding="utf-8")
