"""Builds every .pyx into an extension module of its own; all else stands in pyproject.toml."""

import os
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = Path(__file__).parent
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    # Plain C functions, which the interpreter calls without a detour; inspect.signature() reads the text.
    "binding": False,
    "embedsignature": True,
    "embedsignature.format": "clinic",
    "always_allow_keywords": False,
    "freethreading_compatible": True,
}

# Where it was built must not show in what was built, or no two builds are the same.
PREFIXES = [f"-ffile-prefix-map={HERE.resolve()}=.", f"-ffile-prefix-map={numpy.get_include()}=numpy/include"]
# The flags of Python's own build (-O3 -g) double the time of compiling and give no faster conversion. The loops of the
# copies alone gain from -O3. CFLAGS in the environment has the last word: the sanitizers need their own.
OPTIMISED = ["-g0", "-O2"]
LOOPS = ["-g0", "-O3"]


def extension(path: Path) -> Extension:
    flags = [] if "CFLAGS" in os.environ else LOOPS if path.stem == "copying" else OPTIMISED
    return Extension(
        ".".join(path.with_suffix("").parts),
        [path.as_posix()],
        include_dirs=[numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION")],
        extra_compile_args=PREFIXES + flags,
    )


os.chdir(HERE)
setup(
    ext_modules=cythonize(
        [extension(path) for path in sorted(Path("dlbridge").glob("**/*.pyx"))],
        compiler_directives=DIRECTIVES,
        nthreads=os.cpu_count() or 1,
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
