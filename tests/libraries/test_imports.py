"""Libraries that are not there, or must not be imported now."""

import subprocess
import sys

import pytest
from support.children import in_child

from dlbridge.libraries.library import libraries

LIBRARIES = [library for library in libraries().values()
             if library.delivery in ("importer", "importer:prepare_for_capsules") and library.name != "dlbridge"]
assert LIBRARIES


@pytest.mark.parametrize("library", LIBRARIES, ids=[library.name for library in LIBRARIES])
def test_missing_library(library):
    convert_without(package=library.top.partition(".")[0], name=library.name, install=library.install or library.name)


@in_child(warnings="default")
def convert_without(package, name, install):
    import re
    import sys

    import pytest

    sys.modules[package] = None
    import dlbridge

    said = rf"^{re.escape(name)}: .* is not installed \(pip install {re.escape(install)}\)$"
    with pytest.raises(dlbridge.MissingLibraryError, match=said):
        dlbridge.convert(b"abc", name)


@in_child(warnings="default")
def test_paddle_is_not_imported_after_tensorflow():
    import pytest
    import tensorflow  # noqa: F401

    import dlbridge

    with pytest.raises(dlbridge.MissingLibraryError, match=(
            r"^paddle: import after tensorflow: ends the process \(import paddle before tensorflow\)$")):
        dlbridge.convert(b"abc", "paddle")


def test_it_would_end_the_process():
    """Or the row is to be deleted."""
    done = subprocess.run([sys.executable, "-c", "import tensorflow, paddle"], capture_output=True)
    assert done.returncode < 0


# ---- exports that end the process ------------------------------------------------------------------------------------

STRINGS = ["tf.constant(['a', 'b'])", "tf.Variable(1.0).handle"]


@pytest.mark.parametrize("made", STRINGS)
@in_child(warnings="default")
def test_tensorflow_is_not_asked_for_what_has_no_numbers(made):
    import pytest
    import tensorflow as tf  # noqa: F401 (it is made of it)

    import dlbridge

    tensor = eval(made)
    with pytest.raises(dlbridge.ConversionError) as one:
        dlbridge.convert(tensor, "numpy")
    with pytest.raises(dlbridge.ConversionError) as leaf:
        dlbridge.convert_tree([tensor], "numpy", others="raise")
    assert [error.value.field for error in (one, leaf)] == ["element type", "leaf"]
    assert [error.value.hint.partition(", ")[0] for error in (one, leaf)] == ["it has strings"] * 2


def test_tensorflow_would_end_the_process():
    """Or the fact is to be deleted."""
    done = subprocess.run([sys.executable, "-c", f"import tensorflow as tf; {STRINGS[0]}.__dlpack__()"],
                          capture_output=True)
    assert done.returncode < 0
