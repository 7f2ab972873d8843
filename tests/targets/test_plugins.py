"""Entry points: a package's functions are called when its name is first needed, and once."""

import textwrap

import pytest
from support.children import run_program

METADATA = "Metadata-Version: 2.1\nName: plugged\nVersion: 1\n"
ENTRIES = """
[dlbridge.targets]
plugged = plugged:add_target
broken = plugged:fail

[dlbridge.sources]
shapes = plugged:add_source
"""
PLUGIN = """
import dlbridge

print("loaded")


def add_target():
    print("target")
    dlbridge.register_target("plugged", lambda tensor: tensor.shape)


def add_source():
    print("source")
    import shapes
    dlbridge.register_source(shapes.Square, lambda square: square.memory)


def fail():
    raise KeyError("the plug-in's own")
"""
SHAPES = """
class Square:
    memory = bytearray(9)


class Other:
    pass
"""


@pytest.fixture
def run(tmp_path):
    """Run a program where the package is installed; gives what it writes, line by line."""
    info = tmp_path / "plugged-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "plugged.py").write_text(PLUGIN)
    (tmp_path / "shapes.py").write_text(SHAPES)

    def run(program):
        code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + textwrap.dedent(program)
        return run_program(code, "-W", "error", quiet=True).splitlines()

    return run


def test_target_is_loaded_by_its_name(run):
    assert run("""
        import dlbridge
        assert {"plugged", "broken", "numpy"} <= set(dlbridge.targets())
        dlbridge.convert(b"abc", "numpy")
        print("before")
        for _ in range(2):
            print(dlbridge.convert(b"abc", "plugged"))
    """) == ["before", "loaded", "target", "(3,)", "(3,)"]


def test_source_is_loaded_by_the_module_of_its_types(run):
    assert run("""
        import dlbridge, shapes

        class Derived(shapes.Square):
            pass

        print("before")
        for source in Derived(), shapes.Square(), Derived():
            print(dlbridge.asdlpack(source).shape)
    """) == ["before", "loaded", "source", "(9,)", "(9,)", "(9,)"]


def test_type_that_the_package_does_not_know_is_refused_each_time(run):
    assert run("""
        import dlbridge, shapes
        for _ in range(2):
            try:
                dlbridge.asdlpack(shapes.Other())
            except dlbridge.UnsupportedError as error:
                print(error)
    """) == ["loaded", "source"] + 2 * [
        "source: type shapes.Other: offers no array protocol (pass something with __dlpack__, __array_interface__, "
        "__cuda_array_interface__ or the buffer protocol; or register its type)"]


def test_error_of_a_package_is_its_own(run):
    assert run("""
        import dlbridge
        for _ in range(2):
            try:
                dlbridge.convert(b"abc", "broken")
            except (KeyError, dlbridge.UnsupportedError) as error:
                print(type(error).__name__)
    """) == ["loaded", "KeyError", "KeyError"]


def test_what_the_program_registered_is_not_replaced(run):
    assert run("""
        import dlbridge
        dlbridge.register_target("plugged", lambda tensor: "mine")
        print(dlbridge.convert(b"abc", "plugged"))
    """) == ["mine"]


def test_metadata_are_not_read_for_what_is_known(run):
    assert run("""
        import dlbridge
        dlbridge.convert(b"abc", "numpy")
        dlbridge.convert(bytearray(3), memoryview(b""))
        print("dlbridge._core.plugins" in sys.modules, "importlib.metadata" in sys.modules)
    """) == ["False False"]
