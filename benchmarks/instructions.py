"""Counts the instructions of the hottest paths, each beside its C floor: ``python benchmarks/instructions.py``.

valgrind's callgrind runs a process that warms the loop of each statement. It counts all that the thread executes
between two toggles around the loop, with garbage collection off. The cost of a loop that calls a function which does
nothing is subtracted. Counts depend on the interpreter, the libraries and the processor's instruction set, so what is
checked is the ratio to the floor of the same run: a ratio fails if it is more than 5 % above the recorded one.
"""

import argparse
import gc
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from bench import floors as floors_file

import dlbridge

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fake_driver.harness import build as build_driver

PACKAGE = Path(dlbridge.__file__).resolve().parent
RECORD = Path(__file__).with_name("instructions.json")
GROWTH = 0.05
WARM_CALLS = 2000
CALLS = 2000
LOOP = "nothing(ndarray)"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT = {**ONE_THREAD, "PYTHONHASHSEED": "0", "JAX_PLATFORMS": "cpu"}
LIBRARIES = ("numpy", "torch", "jax", "ml_dtypes", "nanobind", "Cython", "numba")
DRIVER = "libcuda: "
NAME_WIDTH = 76


class Case(NamedTuple):
    """A statement of dlbridge, and the statement of its C floor."""

    statement: str
    floor: str
    goal: float | None = None       # the largest ratio to the floor that is wanted


CASES = (
    Case('convert(ndarray, to="torch")', "numpy_to_torch(ndarray)", 1.08),
    Case('convert(tensor, to="numpy")', "torch_to_numpy(tensor)", 1.6),
    Case('convert(buffer, to="torch")', "buffer_to_torch(buffer)"),
    Case('convert(jax_array, to="torch", readonly="share")', "jax_to_torch(jax_array)"),
    Case('convert(bfloat16, to="torch")', "bfloat16_to_torch(bfloat16)"),
    Case("asdlpack(ndarray).__dlpack__(max_version=(1, 1))", "wrap(ndarray).__dlpack__(max_version=(1, 1))"),
    Case("view(ndarray)", "nanobind_view(ndarray)", 0.14),
    Case("view_asked(ndarray)", "nanobind_view_asked(ndarray)", 0.20),
    Case("view(tensor)", "borrow_by_hand(tensor)", 1.6),
    Case("view(jax_array)", "nanobind_view(jax_array)", 0.25),
    Case("view(buffer)", "nanobind_view(buffer)", 0.80),
    Case("view(memory)", "nanobind_view(memory)", 0.80),
    Case("view(wrapped)", "nanobind_view(wrapped)", 0.60),
    Case("view(image)", "cython_view(image)", 0.15),
    Case("deliver(tensor)", "deliver_by_hand(torch.from_dlpack)"),
    # Copies, beside what shares.
    Case('convert(frozen, to="torch")', "buffer_to_torch(buffer)"),
    Case('convert(bools, to="torch", copy=True)', "numpy_to_torch(ndarray)"),
    Case('convert(flipped, to="torch")', "numpy_to_torch(ndarray)"),
    Case("asdlpack(frozen).__dlpack__()", "wrap(ndarray).__dlpack__(max_version=(1, 1))"),
    # On the driver of tests/fake_driver, whose own instructions are not counted, beside Numba's own import.
    Case('convert(on_device, to="numba")', "as_cuda_array(on_device)", 0.45),
    Case('convert(device_tensor, to="numba")', "as_cuda_array(device_tensor)", 0.45),
    Case('convert(numba_array, to="dlbridge")', "as_cuda_array(on_device)", 0.20),
    Case("asdlpack(numba_array, stream=other)", "as_cuda_array(on_device)", 0.30),
)

# Maps "object: function" to the instructions of the function, without those of the functions that it called.
Profile = Counter[str]


class CountError(Exception):
    """Nothing could be counted; the text says why."""


def namespace() -> dict[str, Any]:
    """Make the names that the statements use."""
    import jax.numpy
    import ml_dtypes
    import numpy
    import torch

    torch.set_num_threads(1)
    ndarray = numpy.ones((3, 4), "f4")
    views = floors_file.load_views()
    views["dlbridge"].find_table(torch.Tensor)
    return {
        **vars(floors_file.load(callgrind=True)),
        **vars(views["dlbridge"]),
        **{f"{kind.lower()}_{name}": getattr(views[kind], name) for kind in ("nanobind", "Cython")
           for name in ("view", "view_asked")},
        "convert": dlbridge.convert,
        "asdlpack": dlbridge.asdlpack,
        "torch": torch,
        "numpy": numpy,
        "ndarray": ndarray,
        "tensor": torch.ones(3, 4),
        "integers": torch.ones(3, 4, dtype=torch.int64),
        "buffer": bytearray(48),
        "frozen": bytes(48),
        "bools": ndarray > 0,
        "flipped": ndarray[::-1],
        "image": numpy.ones((3, 4), "f4"),
        "memory": memoryview(bytearray(48)),
        "wrapped": dlbridge.asdlpack(ndarray),
        "jax_array": jax.numpy.ones((3, 4), "f4"),
        "bfloat16": ndarray.astype(ml_dtypes.bfloat16),
        "bfloat16_tensor": torch.ones(3, 4, dtype=torch.bfloat16),
        "repeat": repeat,
        **device_names(),
    }


def device_names() -> dict[str, Any]:
    """The names of memory on a device."""
    from numba import cuda

    own, other = cuda.stream(), cuda.stream()
    array = cuda.device_array((3, 4), "f4", stream=own)

    class OnDevice:
        def __init__(self) -> None:
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    return {"numba_array": array, "on_device": OnDevice(), "device_tensor": dlbridge.asdlpack(array, stream=own),
            "as_cuda_array": cuda.as_cuda_array, "other": other}


def execute(statements: list[str]) -> None:
    """Run under valgrind: collect each warm loop under the number of its statement."""
    names = namespace()
    loops = []
    for statement in statements:
        exec(f"def loop(calls):\n    for _ in repeat(None, calls):\n        {statement}\n", names)
        loops.append(names["loop"])
    for loop in loops:
        loop(WARM_CALLS)
    gc.collect()
    gc.disable()
    names["start_instrumentation"]()
    for number, loop in enumerate(loops):
        loop(WARM_CALLS // 10)
        names["collect"](loop, CALLS, str(number))


def count(statements: list[str], folder: Path) -> dict[str, Profile]:
    """Count each statement's profile, for all of its calls together; callgrind writes its files to the folder."""
    if shutil.which("valgrind") is None:
        raise CountError("instructions: valgrind: is not installed (apt-get install valgrind)")
    missing = [library for library in LIBRARIES if not importlib.util.find_spec(library)]
    if missing:
        raise CountError(f"instructions: {', '.join(missing)}: not installed (pip install {' '.join(missing)})")
    try:
        floors_file.load(callgrind=True)        # builds them outside valgrind
        floors_file.load_views()
    except floors_file.FloorsError as error:
        raise CountError(str(error)) from error
    command = [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--dump-line=no",
        f"--callgrind-out-file={folder}/callgrind.out", sys.executable, __file__, "--execute", *statements,
    ]
    build_driver(folder / "driver", "cuda", "-DSILENT")
    environment = {**os.environ, **ENVIRONMENT, "LD_LIBRARY_PATH": str(folder / "driver")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CountError(f"instructions: valgrind: failed with {done.returncode}:\n{done.stderr[-4000:]}")
    profiles = {}
    for path in folder.glob("callgrind.out.*"):
        text = path.read_text(errors="replace")
        found = re.search(r"^desc: Trigger: Client Request: (\d+)$", text, re.MULTILINE)
        if found:
            profiles[statements[int(found[1])]] = read_profile(text)
    if profiles.keys() != set(statements):
        raise CountError(f"instructions: callgrind: {len(profiles)} of {len(statements)} profiles were written")
    return profiles


def short_name(path: str) -> str:
    """Name a shared object without its version and platform; one of dlbridge's is named as a module."""
    stem = Path(path).name.partition(".")[0]
    if Path(path).is_relative_to(PACKAGE):
        return ".".join((*Path(path).parent.relative_to(PACKAGE.parent).parts, stem))
    return "floors" if stem.startswith("floors-") else stem


def read_profile(text: str) -> Profile:
    """Read the exclusive cost of each function; callgrind writes a name once, and refers to it by number afterwards."""
    profile: Profile = Counter()
    names: dict[tuple[str, str], str] = {}
    current = {"ob": "", "fn": ""}
    after_calls = False
    for line in text.splitlines():
        specification = re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$", line)
        if specification:
            called, kind, number, name = specification.groups()
            name = names.setdefault((kind, number), name)
            if not called:
                current[kind] = name
        elif line.startswith("calls="):
            after_calls = True          # the next line is the cost of the function that was called
        elif re.match(r"[\d+*-]", line):
            if not after_calls:
                function = current["fn"].partition("'")[0]      # f'2 is f within f
                profile[f"{short_name(current['ob'])}: {function}"] += int(line.split()[1])
            after_calls = False
    return profile


def per_call(profile: Profile, loop: Profile) -> Profile:
    """Divide by the calls, without the loop's own instructions; functions without any are left out."""
    difference = Counter({name: round((profile[name] - loop[name]) / CALLS) for name in profile | loop})
    return Counter({name: cost for name, cost in difference.items() if cost})


def net(profile: Profile, loop: Profile) -> float:
    """Divide all instructions by the calls, without the loop's own, and those of the driver."""
    driver = sum(cost for name, cost in profile.items() if name.startswith(DRIVER))
    return (profile.total() - driver - loop.total()) / CALLS


def versions() -> dict[str, str]:
    """Name the versions that the counts depend on."""
    return {
        "machine": platform.machine(), "python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES if importlib.util.find_spec(library)},
    }


def print_counts(profiles: dict[str, Profile], cases: tuple[Case, ...], others: list[str], record: dict) -> None:
    """Print a line for each path."""
    ratios = record.get("ratios", {})
    loop = profiles[LOOP]
    print(f"{'instructions per call':50} {'count':>7} {'floor':>7} {'ratio':>7} {'recorded':>9} {'goal':>6}")
    for case in cases:
        ours, floor = net(profiles[case.statement], loop), net(profiles[case.floor], loop)
        goal = "" if case.goal is None else f"{case.goal:.2f}"
        recorded = f"{ratios[case.statement]:.3f}" if case.statement in ratios else ""
        print(f"{case.statement:50} {ours:7.0f} {floor:7.0f} {ours / floor:7.3f} {recorded:>9} {goal:>6}")
    for statement in others:
        print(f"{statement:50} {net(profiles[statement], loop):7.0f}")


def print_functions(title: str, profile: Profile, floor: Profile, limit: int) -> None:
    """Print the functions with the most instructions, beside the instructions of the floor in the same function."""
    print(f"\n{title}\n{'here':>8} {'floor':>8} {'above':>8}  function, without those that it calls")
    ordered = sorted(profile | floor, key=lambda name: (floor[name] - profile[name], name))
    by_cost = sorted(ordered, key=lambda name: -max(profile[name], floor[name]))[:limit]
    for name in sorted(by_cost, key=ordered.index):
        shown = name if len(name) <= NAME_WIDTH else f"{name[:NAME_WIDTH - 1]}…"
        print(f"{profile[name]:8} {floor[name]:8} {profile[name] - floor[name]:+8}  {shown}")


def print_objects(profile: Profile, floor: Profile) -> None:
    """Print the instructions of each shared object."""
    here, below = (Counter[str](), Counter[str]())
    for counter, source in ((here, profile), (below, floor)):
        for name, cost in source.items():
            counter[name.partition(":")[0]] += cost
    print(f"\n{'here':>8} {'floor':>8} {'above':>8}  shared object")
    for name in sorted(here | below, key=lambda name: below[name] - here[name]):
        print(f"{here[name]:8} {below[name]:8} {here[name] - below[name]:+8}  {name}")


def grown(ratios: dict[str, float], record: dict) -> list[str]:
    """Describe each path that costs more than was recorded."""
    recorded = record.get("ratios", {})
    command = "python benchmarks/instructions.py --record"
    advice = f"find it with --functions 30; if it must be, record it: {command}"
    problems = []
    for statement, ratio in ratios.items():
        if statement not in recorded:
            problems.append(f"instructions: {statement}: {ratio:.3f} of its C floor, and none is recorded ({command})")
        elif ratio > recorded[statement] * (1 + GROWTH):
            growth = ratio / recorded[statement] - 1
            problems.append(
                f"instructions: {statement}: {ratio:.3f} of its C floor, where {recorded[statement]:.3f} is recorded: "
                f"{growth:.1%} more, and {GROWTH:.0%} is allowed ({advice})")
    if problems and record.get("versions", {}) != versions():
        problems.append(f"instructions: recorded with {record.get('versions')}, counted with {versions()}")
    return problems


def fallen(ratios: dict[str, float], record: dict) -> list[str]:
    """List the paths that cost much less than was recorded, and so could grow unnoticed."""
    recorded = record.get("ratios", {})
    return [name for name, ratio in ratios.items() if name in recorded and ratio < recorded[name] * (1 - GROWTH)]


def missed(ratios: dict[str, float], cases: tuple[Case, ...]) -> list[str]:
    """Describe each path that has a goal and misses it."""
    return [
        f"instructions: {case.statement}: {ratios[case.statement]:.3f} of its C floor, and the goal is {case.goal:.2f}"
        for case in cases if case.goal is not None and ratios[case.statement] > case.goal
    ]


def read_command_line() -> tuple[argparse.Namespace, tuple[Case, ...]]:
    """Read the options, and select the cases that they ask for."""
    parser = argparse.ArgumentParser(description="Count instructions per call beside the C floors.")
    parser.add_argument("--functions", type=int, metavar="N", help="show where each path's N largest costs are")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the paths whose statement has this text")
    parser.add_argument("--also", metavar="STATEMENT", action="append", default=[], help="count this one too")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="an empty folder for callgrind's own files")
    parser.add_argument("--goals", action="store_true", help="fail also where a goal is not reached")
    parser.add_argument("--record", action="store_true", help=f"write the ratios to {RECORD.name}")
    parser.add_argument("--execute", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = tuple(case for case in CASES if options.only in case.statement)
    if not cases:
        parser.error(f"--only {options.only!r}: no path has this text (there are {[case.statement for case in CASES]})")
    if options.keep and (not options.keep.is_dir() or any(options.keep.iterdir())):
        parser.error(f"--keep {options.keep}: is no empty folder")
    return options, cases


def count_all(cases: tuple[Case, ...], others: list[str], keep: Path | None) -> dict[str, Profile]:
    """Count the loop, the cases, their floors and other statements."""
    statements = [LOOP, *(text for case in cases for text in case[:2]), *others]
    with tempfile.TemporaryDirectory() as folder:
        return count(statements, keep or Path(folder))


def print_details(profiles: dict[str, Profile], cases: tuple[Case, ...], others: list[str], limit: int) -> None:
    """Print the functions of each path."""
    loop = profiles[LOOP]
    for case in cases:
        ours, floor = per_call(profiles[case.statement], loop), per_call(profiles[case.floor], loop)
        print_functions(case.statement, ours, floor, limit)
        print_objects(ours, floor)
    for statement in others:
        print_functions(statement, per_call(profiles[statement], loop), Counter(), limit)


def write_record(ratios: dict[str, float], record: dict) -> None:
    """Write the new ratios, and keep the recorded ratios of paths that were not counted."""
    every = record.get("ratios", {}) | {name: round(ratio, 4) for name, ratio in ratios.items()}
    kept = {case.statement: every[case.statement] for case in CASES if case.statement in every}
    RECORD.write_text(json.dumps({"versions": versions(), "ratios": kept}, indent=4) + "\n")


def main() -> int:
    """Count, print and check; return 1 if a path costs more than it may, or if nothing could be counted."""
    options, cases = read_command_line()
    if options.execute:
        execute(options.execute)
        return 0
    try:
        profiles = count_all(cases, options.also, options.keep)
    except CountError as error:
        print(error, file=sys.stderr)
        return 1
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    print_counts(profiles, cases, options.also, record)
    if options.functions:
        print_details(profiles, cases, options.also, options.functions)
    loop = profiles[LOOP]
    ratios = {case.statement: net(profiles[case.statement], loop) / net(profiles[case.floor], loop) for case in cases}
    if options.record:
        write_record(ratios, record)
        return 0
    for statement in fallen(ratios, record):
        print(f"{statement} has become cheaper: --record keeps it so")
    problems = grown(ratios, record) + (missed(ratios, cases) if options.goals else [])
    print(*problems, sep="\n", file=sys.stderr, end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
