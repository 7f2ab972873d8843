"""The demonstration that ``dlbridge demo`` prints: real data goes through the libraries that are installed."""

import os
import re
import string
import sys
from collections.abc import Callable
from importlib.metadata import version
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

import dlbridge
from dlbridge.demo.inputs import INPUTS, Input
from dlbridge.matrix.terminal import Segment, show, styled, width_of, wrapped

ROUTE = ("numpy", "torch", "jax", "numpy", "memoryview")
INTRODUCTION = (
    "Memory that no array library made goes from library to library; a row is the array that a library then has. "
    "The same letter is the same memory: nothing was copied. Values are compared with those of the first row.")
# Nothing here writes to the memory, so that JAX can share it.
PROMISES: dict[str, dict[str, Any]] = {"jax": {"readonly": "share"}}
WIDTH = 100
HEADINGS = ("", "memory", "", "values")


class Step(NamedTuple):
    """One library on the route, with its array; ``reason`` says why the memory was copied, if it was."""

    name: str
    array: Any
    reason: str = ""


# Each library is asked for its address itself; the buffer protocol is asked for all other memory.
ADDRESSES: dict[str, Callable[[Any], int]] = {
    "numpy": lambda array: array.ctypes.data,
    "torch": lambda tensor: tensor.data_ptr(),
    "jax": lambda array: array.unsafe_buffer_pointer(),
}


def address(step: Step) -> int:
    """Find the address of a step's array."""
    return ADDRESSES.get(step.name, lambda buffer: np.frombuffer(buffer, "u1").ctypes.data)(step.array)


def run() -> int:
    """Print the demonstration; return 0 if every value arrived unchanged, and 1 if one did not."""
    # All memory here is the host's, so jax is kept from starting an accelerator.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    names, missing = installed()
    versions = ", ".join(f"{name} {version(name)}" for name in dict.fromkeys(names) if name in ADDRESSES)
    width = width_of(sys.stdout)
    print(wrapped(f"dlbridge {dlbridge.__version__} with {versions}", width))
    print("", wrapped(INTRODUCTION, min(width, WIDTH)), sep="\n")
    for name in names:
        if name in PROMISES:
            options = ", ".join(f'{keyword}="{value}"' for keyword, value in PROMISES[name].items())
            print(wrapped(f'Arrays of {name} never change, so memory is shared with them by convert(x, "{name}", '
                          f"{options}), which promises that nobody writes to it.", min(width, WIDTH)))
    print()
    reasons: list[str] = []
    shared = copied = wrong = 0
    for source in (make() for make in INPUTS):
        steps = journey(source, names)
        rows, differing = report(steps, reasons)
        shared += sum(row[2] == "shared" for row in rows)
        copied += sum(row[2].startswith("copied") for row in rows)
        wrong += differing
        print(f"{source.title}: {describe(steps[0].array)}")
        show([*table(rows), []], sys.stdout)
    for number, reason in enumerate(reasons, 1):
        print(wrapped(f"[{number}] {reason}", min(width, WIDTH), "    "))
    print(*(wrapped(text, width) for text in missing), sep="\n")
    print(f"{shared} hand-overs shared the memory, {copied} copied it, {wrong} changed a value.")
    return 1 if wrong else 0


def installed() -> tuple[tuple[str, ...], list[str]]:
    """List the libraries of the route that are installed, and dlbridge's messages about the others."""
    missing = {}
    for name in ROUTE:
        try:
            dlbridge.convert(np.zeros(1, "u1"), name)
        except dlbridge.MissingLibraryError as error:
            missing[name] = str(error)
    return tuple(name for name, _ in groupby(name for name in ROUTE if name not in missing)), list(missing.values())


def journey(source: Input, names: tuple[str, ...]) -> list[Step]:
    """Convert from one library to the next, and note dlbridge's reason where it copies."""
    steps = [Step(source.holder, source.memory)]
    for name in names:
        array = steps[-1].array
        promise = PROMISES.get(name, {})
        plan = dlbridge.explain(array, name, **promise)
        text = re.sub(r" at 0x[0-9a-f]+", "", plan.reason)      # the address differs from run to run
        reason = f"{name}: {text} ({plan.hint})" if plan.action == "copy" else ""
        steps.append(Step(name, dlbridge.convert(array, name, **promise), reason))
    return steps


def report(steps: list[Step], reasons: list[str]) -> tuple[list[tuple[str, ...]], int]:
    """Make the rows of the table, and count those in which a value differs from the source's."""
    letters = dict(zip(dict.fromkeys(map(address, steps)), string.ascii_uppercase, strict=False))
    rows: list[tuple[str, ...]] = [(steps[0].name, "A", "", "")]
    differing = 0
    for before, step in pairwise(steps):
        equal = np.array_equal(np.asarray(step.array), np.asarray(steps[0].array))
        memory = "shared" if address(step) == address(before) else "copied"
        if step.reason:
            reasons.append(step.reason)
            memory += f" [{len(reasons)}]"
        differing += not equal
        rows.append((f"-> {step.name}", letters[address(step)], memory, "equal" if equal else "DIFFERENT"))
    return rows, differing


def describe(array: Any) -> str:
    """Write the type, the shape and the size of a buffer."""
    view = np.asarray(array)
    return f"{view.dtype} {view.shape}, {view.nbytes:,} bytes"


def table(rows: list[tuple[str, ...]]) -> list[list[Segment]]:
    """Lay rows out in columns that are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    return [[("    ", ""), *(styled(cell.partition(" ")[0], f"{cell:{size}}  ")
                             for cell, size in zip(row, widths, strict=True))] for row in (HEADINGS, *rows)]
