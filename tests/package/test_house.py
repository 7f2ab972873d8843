"""The house: floors, circles, names of libraries, and functions that fit on a screen, read from the code."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.tools import load_tool

import dlbridge
from dlbridge.libraries.library import libraries, roots_of

ROOT = Path(__file__).parents[2]


house = load_tool("pages/house_page")          # the table of the rooms, with the functions that read the imports
MODULES = house.modules()
IMPORTS = house.imports(MODULES)
SCREEN = 45             # lines of a function without its docstring
# What the code of a floor that serves every library may not name.
LIBRARIES = {name for library in libraries().values() for name in (library.name, *roots_of(library))} - {
    "builtins", "cuda", "dlbridge", "dlpack", "memoryview"}


def test_every_module_has_one_room():
    assert [name for name in MODULES if house.room_of(name) is None] == []
    rooms = [room for floor in house.FLOORS for room in floor.rooms]
    assert [room.label for room in rooms if not any(house.room_of(name)[1] is room for name in MODULES)] == []


def test_no_room_imports_from_a_floor_above_it():
    upward = [f"{name} imports {other}" for name, others in IMPORTS.items() for other in others
              if house.room_of(other)[0] > house.room_of(name)[0]]
    assert upward == []


def circle(name, path=()):
    """The modules of a circle that a module is part of, or nothing."""
    if name in path:
        return (*path[path.index(name):], name)
    if name in circle.clean:
        return ()
    for other in sorted(IMPORTS[name]):
        found = circle(other, (*path, name))
        if found:
            return found
    circle.clean.add(name)
    return ()


circle.clean = set()


def test_nothing_is_imported_in_a_circle():
    # The package itself hands on names of the rooms below; the command line's rooms import it by its name.
    assert [found for name in MODULES if (found := circle(name))] == []


def test_the_reader_of_imports_sees_them():
    assert {"_core.plan", "_core.place", "errors"} <= IMPORTS["_core.steps"]
    assert {"_core.decision", "_core.place"} <= IMPORTS["_core.plan"]           # from … cimport (several)
    assert "_core.devices.transfers" in IMPORTS["_core.devices.operations"]     # by its name, in a .pxd
    assert "_core.sources.dlpack" in IMPORTS["_core.sources.registry"]          # by its name
    assert "trees.containers" in IMPORTS["register"]                            # in a function
    assert "errors" in IMPORTS["libraries.tinygrad"]                            # in a function of Python


def test_gradients_cross_by_convert_alone():
    """So the streams of a device are ordered as convert() orders them."""
    files = [*(house.PACKAGE / "gradients").glob("*.py")]
    assert sum("import convert" in path.read_text(encoding="utf-8") for path in files) >= 3
    others = re.compile(r"from_dlpack|from_numpy|__dlpack__|frombuffer|asarray|\.numpy\(")
    assert [path.name for path in files if others.search(path.read_text(encoding="utf-8"))] == []


def test_each_label_fits_into_its_box():
    letter = 7.8            # pixels, of a wide font
    assert [room.label for floor in house.FLOORS for room, width in zip(floor.rooms, house.widths(floor), strict=True)
            if len(room.label) * letter > width] == []


def test_the_picture_is_that_of_the_table():
    assert house.PICTURE.read_text(encoding="utf-8") == house.picture()


# ---- names -----------------------------------------------------------------------------------------------------------

def names_in(path):
    """The identifiers of Cython code, and its strings that are nothing but a dotted name."""
    code = house.code_of(path.read_text(encoding="utf-8"))
    strings = re.findall(r"\"([^\"\n]*)\"|'([^'\n]*)'", code)
    dotted = [text for pair in strings for text in pair if re.fullmatch(r"[\w.]+", text)]
    code = re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", '""', code)
    return {part for name in (*re.findall(r"[\w.]+", code), *dotted) for part in name.split(".")}


GENERAL = [path for name, paths in MODULES.items() for path in paths
           if name.startswith("_core.sources.") or name in ("convert", *(f"_core.{room}" for room in (
               "calls", "conversion", "cache", "route", "decision", "plan", "steps", "place", "exports")))]


@pytest.mark.parametrize("path", GENERAL, ids=lambda path: path.relative_to(house.PACKAGE).as_posix())
def test_code_that_serves_every_library_names_none(path):
    # The order of the sources begins with the two that know a library by its C.
    listed = {"numpy", "torch"} if path.stem == "registry" else set()
    assert names_in(path) & LIBRARIES - listed == set()


def test_the_reader_of_names_sees_them():
    assert "torch" in names_in(house.PACKAGE / "_core" / "native" / "torch.pyx")
    assert "numpy" not in names_in(house.PACKAGE / "_core" / "plan.pyx")         # only in the text of an error


def test_the_architecture_page_names_what_is_there():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z][\w/]*)\.(\w+)(?:\(\))?`", text)
    found = {f"{room}.{name}": [path for module in (room.replace("/", "."), f"_core.{room.replace('/', '.')}")
                                for path in MODULES.get(module, ())] for room, name in named}
    rooms = {full: paths for full, paths in found.items() if paths}
    assert len(rooms) > 20
    assert [full for full, paths in rooms.items() if full.rpartition(".")[2] not in ("pyx", "pxd", "py") and not any(
        re.search(rf"\b{full.rpartition('.')[2]}\b", path.read_text(encoding="utf-8")) for path in paths)] == []


def test_the_architecture_page_says_of_every_step_who_waits():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = text.partition("| step |")[2].partition("\n\n")[0].splitlines()[2:]
    decision = (ROOT / "dlbridge" / "_core" / "decision.pxd").read_text(encoding="utf-8")
    steps = decision.partition("cdef enum Step:\n")[2].partition("    # how a copy is made\n")[0]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(re.findall(r"^    (\w+) = 1 <<", steps, re.MULTILINE))


def test_the_architecture_page_has_every_room():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    named = {(int(floor), name) for floor, rooms, what in rows for name in re.findall(r"`([\w/]+)`", rooms + what)}
    wanted = {(floor.number, module.removeprefix("_core.").replace(".", "/"))
              for floor in house.FLOORS for room in floor.rooms for module in room.modules}
    assert {(floor, name) for floor, name in wanted if "__init__" not in name} - named == set()


def test_scripts_that_are_named_are_there():
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("tools/*.sh"),
             *ROOT.glob(".ci/*"), *ROOT.glob(".github/**/*.yml")]
    named = {name for path in texts for name in re.findall(r"\btools/\w+\.\w+", path.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_offers_is_of_one_type_in_every_source():
    """For Cython checks that only of what it imports."""
    core = [importlib.import_module(f"dlbridge.{name}") for name, paths in MODULES.items()
            if name.startswith("_core.") and ".pyx" in [path.suffix for path in paths]]
    tables = [vars(module).get("__pyx_capi__", {}) for module in core]
    types = [repr(table["offers"]).partition(" at 0x")[0] for table in tables if "offers" in table]
    assert len(types) > 5
    assert len(set(types)) == 1


# ---- functions -------------------------------------------------------------------------------------------------------

def functions(path):
    """Each function of a file, as its first line and how many lines it has without its docstring."""
    lines = path.read_text(encoding="utf-8").split("\n")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                documentation = first.end_lineno - first.lineno + 1 if documented else 0
                yield lines[node.lineno - 1].strip(), node.end_lineno - node.lineno + 1 - documentation
        return
    code = re.sub(r'""".*?"""', "", "\n".join(lines), flags=re.DOTALL).split("\n")
    for number, line in enumerate(code):
        if re.match(r" *(cdef [^=(]*|def )\w+\(", line) and "class " not in line:
            margin = len(line) - len(line.lstrip())
            body = number + 1
            while body < len(code) and (not code[body].strip() or code[body][margin:margin + 1] in (" ", ")")):
                body += 1
            yield line.strip(), len("\n".join(code[number:body]).rstrip().split("\n"))


def test_functions_fit_on_a_screen():
    long = [f"{path.relative_to(house.ROOT)}: {name}: {length} lines" for paths in MODULES.values() for path in paths
            for name, length in functions(path) if length > SCREEN]
    assert long == []


def test_the_reader_of_functions_counts_lines():
    found = dict(functions(house.PACKAGE / "_core" / "layout.pyx"))
    assert 20 < found["cdef LayoutFault settle("] < SCREEN


# ---- a checkout ------------------------------------------------------------------------------------------------------

def test_a_checkout_that_is_not_compiled_says_what_to_do(tmp_path):
    shutil.copytree(ROOT / "dlbridge", tmp_path / "dlbridge", ignore=shutil.ignore_patterns("*.so", "*.c"))
    done = subprocess.run([sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import dlbridge
    """)], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: dlbridge: checkout: is not compiled (run pip install -e . in it, or Python outside of it)")


def test_the_package_shows_what_is_public():
    program = "import dlbridge; print(*[name for name in dir(dlbridge) if not name.startswith('_')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {name for name in dlbridge.__all__ if not name.startswith("_")}


# ---- tools -----------------------------------------------------------------------------------------------------------

def test_the_page_has_the_last_nightly_runs():
    made = load_tool("pages/reliability_page")
    assert made.PAGE.read_text() == made.page(), "run python tools/pages reliability"


def test_every_fault_can_be_seeded():
    faults = load_tool("faults").FAULTS
    assert [fault.name for fault in faults if (ROOT / fault.file).read_text().count(fault.old) != 1] == []
