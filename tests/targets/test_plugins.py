"""Entry points: a package's functions are called when its name is first needed, and once."""

import pytest
from support.children import in_child

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
def PYTHONPATH(tmp_path):
    """Where the package is installed."""
    info = tmp_path / "plugged-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "plugged.py").write_text(PLUGIN)
    (tmp_path / "shapes.py").write_text(SHAPES)
    return str(tmp_path)


@in_child(says="before\nloaded\ntarget\n(3,)\n(3,)\n")
def test_target_is_loaded_by_its_name(PYTHONPATH):
    import dlbridge

    assert {"plugged", "broken", "numpy"} <= set(dlbridge.targets())
    dlbridge.convert(b"abc", "numpy")
    print("before")
    for _ in range(2):
        print(dlbridge.convert(b"abc", "plugged"))


@in_child(says="before\nloaded\nsource\n" + 3 * "(9,)\n")
def test_source_is_loaded_by_the_module_of_its_types(PYTHONPATH):
    import shapes

    import dlbridge

    class Derived(shapes.Square):
        pass

    print("before")
    for source in Derived(), shapes.Square(), Derived():
        print(dlbridge.asdlpack(source).shape)


@in_child(says="loaded\nsource\n")
def test_type_that_the_package_does_not_know_is_refused_each_time(PYTHONPATH):
    import pytest
    import shapes

    import dlbridge

    for _ in range(2):
        with pytest.raises(dlbridge.UnsupportedError, match=(
                r"^source: type shapes\.Other: offers no array protocol \(pass something with __dlpack__, "
                r"__array_interface__, __cuda_array_interface__ or the buffer protocol; or register its type\)$")):
            dlbridge.asdlpack(shapes.Other())


@in_child(says="loaded\n")
def test_error_of_a_package_is_its_own(PYTHONPATH):
    import pytest

    import dlbridge

    for _ in range(2):
        with pytest.raises(KeyError, match="the plug-in's own"):
            dlbridge.convert(b"abc", "broken")


@in_child(says="")
def test_what_the_program_registered_is_not_replaced(PYTHONPATH):
    import dlbridge

    dlbridge.register_target("plugged", lambda tensor: "mine")
    assert dlbridge.convert(b"abc", "plugged") == "mine"


@in_child(says="")
def test_metadata_are_not_read_for_what_is_known(PYTHONPATH):
    import sys

    import dlbridge

    dlbridge.convert(b"abc", "numpy")
    dlbridge.convert(bytearray(3), memoryview(b""))
    assert not {"dlbridge._core.plugins", "importlib.metadata"} & set(sys.modules)
