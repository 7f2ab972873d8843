"""Libraries that are not there, or must not be imported now."""

import subprocess
import sys

import pytest

from dlbridge.libraries.library import libraries

LIBRARIES = [library for library in libraries().values()
             if library.delivery in ("importer", "importer:prepare_for_capsules") and library.name != "dlbridge"]


@pytest.mark.parametrize("library", LIBRARIES, ids=[library.name for library in LIBRARIES])
def test_missing_library(library):
    top = library.top.partition(".")[0]
    code = f"""if True:
        import sys
        sys.modules[{top!r}] = None
        import dlbridge
        try:
            dlbridge.convert(b"abc", {library.name!r})
        except dlbridge.MissingLibraryError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"is not installed (pip install {library.install or library.name})\n")


def test_paddle_is_not_imported_after_tensorflow():
    code = """if True:
        import tensorflow, dlbridge
        try:
            dlbridge.convert(b"abc", "paddle")
        except dlbridge.MissingLibraryError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == (
        "paddle: import after tensorflow: ends the process (import paddle before tensorflow)\n"), done.stderr[-500:]


def test_it_would_end_the_process():
    """Or the row is to be deleted."""
    done = subprocess.run([sys.executable, "-c", "import tensorflow, paddle"], capture_output=True)
    assert done.returncode < 0


# ---- exports that end the process ------------------------------------------------------------------------------------

STRINGS = ["tf.constant(['a', 'b'])", "tf.Variable(1.0).handle"]


@pytest.mark.parametrize("made", STRINGS)
def test_tensorflow_is_not_asked_for_what_has_no_numbers(made):
    code = f"""if True:
        import tensorflow as tf, dlbridge
        for convert in (dlbridge.convert, lambda x, to: dlbridge.convert_tree([x], to, others="raise")):
            try:
                convert({made}, "numpy")
            except dlbridge.ConversionError as error:
                print(error.field, error.hint.partition(", ")[0])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "element type it has strings\nleaf it has strings\n", done.stderr[-500:]


def test_tensorflow_would_end_the_process():
    """Or the fact is to be deleted."""
    done = subprocess.run([sys.executable, "-c", f"import tensorflow as tf; {STRINGS[0]}.__dlpack__()"],
                          capture_output=True)
    assert done.returncode < 0
