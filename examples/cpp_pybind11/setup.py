"""pybind11 is headers alone; see its documentation for CMake and Meson."""

import pybind11
from setuptools import Extension, setup

import dlbridge

setup(ext_modules=[Extension(
    "clamping", ["clamping.cpp"], include_dirs=[dlbridge.get_include(), pybind11.get_include()],
    extra_compile_args=["-std=c++17", "-fvisibility=hidden"])])
