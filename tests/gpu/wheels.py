"""Which wheels of a folder are wanted: those whose package is missing here or too old. wheels.py FOLDER prints them.

The folder decides what can be added; where a package is there, in a version that will do, it stays.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# What the build and the tests cannot do with less.
AT_LEAST = {"cython": (3, 3), "setuptools": (77,), "numpy": (2,), "pytest": (8,)}
# Made from this checkout: build.sh says when they are taken.
OWN = ("dlbridge",)


def numbers(text):
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", text)[0].split("."))


def wanted(package):
    try:
        return numbers(version(package)) < AT_LEAST.get(package, ())
    except PackageNotFoundError:
        return True


def main():
    if sys.argv[1] == "--has":          # wheels.py --has PACKAGE: the exit status says whether it will do
        sys.exit(int(wanted(sys.argv[2])))
    for wheel in sorted(Path(sys.argv[1]).glob("*.whl")):
        package = re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
        if package not in OWN and wanted(package):
            print(wheel)


if __name__ == "__main__":
    main()
