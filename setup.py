"""Builds every .pyx into an extension module of its own, and stubs with docstrings; all else is in pyproject.toml."""

import os
import sys
from pathlib import Path

if sys.maxsize < 2**63 - 1 or sys.byteorder == "big":
    raise SystemExit("dlbridge is for 64-bit little-endian machines")

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "tools"))

from stub_docstrings import STUBS, documented

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
WARNINGS = ["-Wall", "-Wextra"]
# The flags of Python's own build, -O3 -g, double the time of compiling. Only what every conversion runs through, and
# the loops of the copies, gain from -O3 (benchmarks/instructions.py); -O1 compiles the rest in half of the time.
# A level of its own in CFLAGS has the last word, since the sanitizers need one. Without a PLT a call of Python's own
# functions is one jump less.
HOT = ["-g0", "-O3", "-fno-plt"]
COLD = ["-g0", "-O1"]
HOT_MODULES = {
    "face", "tensor", "_core.block", "_core.calls", "_core.capsule", "_core.conversion", "_core.copying",
    "_core.decision", "_core.described", "_core.dtypes", "_core.exports", "_core.forms", "_core.indices",
    "_core.narrowing", "_core.route",
    "_core.native.numpy", "_core.native.torch", "_core.sources.arrow", "_core.sources.arrow_array",
    "_core.sources.buffer", "_core.sources.dlpack", "_core.sources.exchange",
    "_core.sources.registry", "_core.steps", "_core.targets.exchange", "_core.targets.numpy", "_core.targets.torch",
    "trees.walk",
}


def extension(path: Path) -> Extension:
    name = ".".join(path.with_suffix("").parts)
    flags = HOT if name.partition(".")[2] in HOT_MODULES else COLD
    chosen = "-O" in os.environ.get("CFLAGS", "")
    return Extension(
        name,
        [path.as_posix()],
        include_dirs=[".", numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION")],
        extra_compile_args=PREFIXES + WARNINGS + ([] if chosen else flags),
    )


# What clang-cl calls them; MSVC's own compiler lacks what dlbridge/_core/compiler.h asks for.
ON_WINDOWS = {"-O3": "/O2", "-O1": "/O1"}


class BuildExt(build_ext):
    """Tells clang-cl its own flags."""

    def build_extensions(self) -> None:
        if self.compiler.compiler_type == "msvc":
            self.compiler.initialize()
            self.compiler.cc = "clang-cl"
            for each in self.extensions:
                each.extra_compile_args = [ON_WINDOWS[flag] for flag in each.extra_compile_args if flag in ON_WINDOWS]
        super().build_extensions()


class BuildPy(build_py):
    """Puts docstrings into the stubs. An editable installation has those of the sources, which have none."""

    def build_package_data(self) -> None:
        super().build_package_data()
        for stub in STUBS:
            text = documented(stub.read_text(encoding="utf-8"))
            Path(self.build_lib, stub).write_text(text, encoding="utf-8", newline="\n")


os.chdir(HERE)
setup(
    ext_modules=cythonize(
        [extension(path) for path in sorted(Path("dlbridge").glob("**/*.pyx"))],
        compiler_directives=DIRECTIVES,
        nthreads=os.cpu_count() or 1,
    ),
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
