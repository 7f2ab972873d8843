"""nanobind's own sources are compiled with the extension, by sources.cpp; see its documentation for CMake and Meson."""

from pathlib import Path

import nanobind
from setuptools import Extension, setup

import dlbridge

NANOBIND = Path(nanobind.source_dir())

setup(ext_modules=[Extension(
    "clamping", ["clamping.cpp", "sources.cpp"],
    include_dirs=[
        dlbridge.get_include(), nanobind.include_dir(), str(NANOBIND), str(NANOBIND.parent / "ext/robin_map/include")],
    extra_compile_args=["-std=c++17", "-fvisibility=hidden", "-fno-strict-aliasing"])])
