"""Builds the extension in place from C that Cython made elsewhere: setup.py itself, with a stand-in for Cython."""

import runpy
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def cythonize(extensions, **_):
    for extension in extensions:
        extension.sources = [str(Path(source).with_suffix(".c")) for source in extension.sources]
    return extensions


def main():
    package, build = ModuleType("Cython"), ModuleType("Cython.Build")
    package.__path__ = []
    build.cythonize = cythonize
    sys.modules |= {"Cython": package, "Cython.Build": build}
    sys.argv = ["setup.py", "build_ext", "--inplace"]
    runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")


if __name__ == "__main__":
    main()
