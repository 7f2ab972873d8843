"""The decision itself, which no function of Python shows."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.compiling import compiled_extension

HERE = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="session")
def deciding(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deciding")
    subprocess.run([sys.executable, "-m", "cython", "-3", "-I", HERE.parents[1], HERE / "deciding.pyx",
                    "-o", folder / "deciding.c"], check=True, timeout=100)
    return compiled_extension("deciding", folder, "-Wno-missing-field-initializers", f"-I{HERE.parents[1]}",
                              source=folder / "deciding.c")
