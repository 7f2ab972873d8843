"""The extension of face.c: dlbridge's C API as its users have it."""

import atexit
import functools
import pathlib
import shutil
import tempfile

from support.compiling import compiled_extension

FACE = "the C face"


@functools.cache
def load_face():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dlbridge_face_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return compiled_extension("face", folder, "-std=c11", "-Wpedantic")
