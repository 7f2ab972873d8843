"""An extension in C needs the folder of dlbridge's header, and nothing else."""

from setuptools import Extension, setup

import dlbridge

setup(
    ext_modules=[Extension(
        "running", ["running.c"], include_dirs=[dlbridge.get_include()], py_limited_api=True,
        define_macros=[("Py_LIMITED_API", "0x030A0000")])],
    options={"bdist_wheel": {"py_limited_api": "cp310"}})
