"""An extension that cimports dlbridge needs the folder of its header, and nothing else."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import dlbridge

setup(ext_modules=cythonize([Extension(
    "smoothing", ["smoothing.pyx"], include_dirs=[dlbridge.get_include()],
    extra_compile_args=["-fopenmp"], extra_link_args=["-fopenmp"])]))
