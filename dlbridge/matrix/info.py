"""``dlbridge info``: what is installed here, and, with ``--speaks``, which protocols each library speaks."""

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
import textwrap
from importlib.metadata import PackageNotFoundError, distribution
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any

import numpy as np

import dlbridge
from dlbridge._core.devices.cuda import LIBRARIES as DRIVERS
from dlbridge.libraries.library import applies, library_named
from dlbridge.matrix.children import Call, ask, progress
from dlbridge.matrix.machine import machine
from dlbridge.matrix.pair import in_a_line, supplier
from dlbridge.matrix.report import machine_line
from dlbridge.matrix.rows import TABLE, rows_of, sort_out, version_of
from dlbridge.matrix.terminal import show, width_of, wrapped

SECONDS = 60
# Of each driver, the call that starts it and the call that counts its devices.
COUNTS = {"cuda": ("cuInit", "cuDeviceGetCount"), "rocm": ("hipInit", "hipGetDeviceCount")}
FACES = {
    "exchange API": "__dlpack_c_exchange_api__",
    "array_interface": "__array_interface__",
    "array_struct": "__array_struct__",
    "cuda_array_interface": "__cuda_array_interface__",
    "Arrow": "__arrow_c_array__",
    "Arrow stream": "__arrow_c_stream__",
}

INTERNALS = ("internals: functions of a library that are not public, which dlbridge calls in the versions that "
                 "it was tested with, since they are faster; without them the results are the same")
SPEAKS = "dlbridge info --speaks says which protocols each of them speaks, and whether internals are used"


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return 0, because a missing library is no failure."""
    found, missing = sort_out(rows_of(TABLE).values())
    devices = ask({"": Call(__name__, "count_devices", ())}, lambda done, key: None, SECONDS)[""]
    if arguments.json:
        libraries = {row.name: {"version": version_of(row), "internals": internals(row.name, version_of(row))}
                     for row in found.values()}
        here = about_here() | {"devices": devices.value or devices.trouble, "libraries": libraries}
        print(json.dumps(here, indent=1))
        return 0
    width = width_of(sys.stdout)
    head = [f"dlbridge {dlbridge.__version__}, DLPack {'.'.join(map(str, dlbridge.DLPACK_VERSION))}, "
            f"in {Path(dlbridge.__file__).parent}", machine_line(machine()),
            f"devices: {devices.value or devices.trouble}"]
    print(*(wrapped(text, width) for text in head), "", sep="\n")
    heads = ["library", "version", "as", "internals"]
    targets = set(dlbridge.targets())
    lines = [[row.name, version_of(row) or "-", "source, target" if row.name in targets else "source",
              internals(row.name, version_of(row))] for row in found.values()]
    if arguments.speaks:
        heads += ["DLPack", "on", "other protocols"]
        calls = {(name,): Call(__name__, "look", (TABLE, name)) for name in found}
        answers = ask(calls, progress(len(calls)), SECONDS)
        lines = [line[:3] + (answers[line[0],].value or ["?", "?", "?", answers[line[0],].trouble]) for line in lines]
    first, *rest = columns_of([heads, *lines], width)
    show([[(first, "bold")], *([(line, "")] for line in rest)], sys.stdout)
    if missing:
        print("", wrapped(f"not installed: {', '.join(missing)} (pip install {' '.join(missing.values())})", width),
              sep="\n")
    print("", wrapped(INTERNALS, width), sep="\n")
    if not arguments.speaks:
        print("", wrapped(SPEAKS, width), sep="\n")
    return 0


def about_here() -> dict[str, Any]:
    """What a report of an error is worth little without."""
    return {
        "dlbridge": dlbridge.__version__,
        "commit": commit(),
        "dlpack": ".".join(map(str, dlbridge.DLPACK_VERSION)),
        "folder": str(Path(dlbridge.__file__).parent),
        **machine(),
        "libc": " ".join(platform.libc_ver()),
        "bits": 8 * ctypes.sizeof(ctypes.c_void_p),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "jax_enable_x64": os.environ.get("JAX_ENABLE_X64", ""),
        "report_to": project_url("Issues"),
    }


def commit() -> str:
    """The commit that was installed, or that a checkout is at; empty where neither is known."""
    with contextlib.suppress(PackageNotFoundError):
        installed = json.loads(distribution("dlbridge").read_text("direct_url.json") or "{}")
        if "vcs_info" in installed:
            return str(installed["vcs_info"]["commit_id"])
    checkout = Path(dlbridge.__file__).parents[1]
    if not (checkout / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False)
    except OSError:
        return ""               # there is no git
    return done.stdout.strip()


def project_url(label: str) -> str:
    """An address of the project, as its metadata has it; empty where they do not."""
    with contextlib.suppress(PackageNotFoundError):
        for line in distribution("dlbridge").metadata.get_all("Project-URL") or ():
            name, _, address = line.partition(", ")
            if name == label:
                return str(address)
    return ""


def columns_of(rows: list[list[str]], width: float) -> list[str]:
    """Lay rows out in columns; the last one is broken where the terminal ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    indent = " " * sum(size + 2 for size in widths[:-1])
    lines = []
    for row in rows:
        left = "".join(f"{text:{size}}  " for text, size in zip(row[:-1], widths, strict=False))
        room = max(width - len(indent), 20)
        lines += (left + wrapped(row[-1], room).replace("\n", f"\n{indent}")).split("\n")
    return lines


def internals(name: str, version: str) -> str:
    """Tell by the version alone whether dlbridge may use internals of a library (Library.private)."""
    library = library_named(name)
    if library is None or library.private is None:
        return "-"
    if library.versions:
        with contextlib.suppress(PackageNotFoundError):
            version = distribution_version(library.versions)
    return "allowed" if applies(library.private, version) else "not allowed"


# ---- in the children -------------------------------------------------------------------------------------------------

def count_devices() -> str:
    """Count the devices that each driver reports."""
    return "; ".join(["cpu", *map(count, COUNTS)])


def count(family: str) -> str:
    """Count the devices of one driver."""
    start, counter = COUNTS[family]
    for name in DRIVERS[family]:
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        number = ctypes.c_int()
        error = getattr(driver, start)(0) or getattr(driver, counter)(ctypes.byref(number))
        return f"{family}: the driver gives error {error}" if error else f"{family}: {number.value}"
    return f"{family}: no driver"


def look(table: str, name: str) -> list[str]:
    """Find out what a library's array speaks: DLPack's version, its device, and the other protocols."""
    try:
        array = supplier(rows_of(table)[name])()
        device = dlbridge.asdlpack(array).device
    except Exception as error:
        return ["-", "-", "-", textwrap.shorten(in_a_line(error), 90, placeholder=" ...")]
    faces = [face for face, attribute in FACES.items() if hasattr(array, attribute)]
    try:
        memoryview(array)
        faces.append("buffer")
    except (TypeError, ValueError, BufferError):
        pass
    return [internals_in_use(name), dlpack_version(array), device, ", ".join(faces) or "-"]


def internals_in_use(name: str) -> str:
    """Find out whether dlbridge uses internals of a library, by a conversion, which tries them first."""
    library = library_named(name)
    if library is None or library.private is None:
        return "-"
    with contextlib.suppress(Exception):    # with no device for it they are not used
        dlbridge.convert(np.zeros(1, "float32"), name)
    return "used" if importlib.import_module(f"dlbridge.{library.private.value}").in_use() else "not used"


def dlpack_version(array: Any) -> str:
    """Read the version in the capsule of ``__dlpack__``, or in an array that is a capsule; it may be "legacy"."""
    from dlbridge.testing import abi
    from dlbridge.testing.producers import capsule_name, capsule_pointer

    capsule = array
    if hasattr(array, "__dlpack__"):
        try:
            capsule = array.__dlpack__(max_version=dlbridge.DLPACK_VERSION)
        except TypeError:
            capsule = array.__dlpack__()
    if type(capsule).__name__ != "PyCapsule":
        return "-"
    name = capsule_name(capsule)
    if name != abi.VERSIONED_NAME:
        return "legacy"
    version = abi.DLPackVersion.from_address(capsule_pointer(capsule, name))
    return f"{version.major}.{version.minor}"
