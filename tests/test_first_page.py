"""The ticks and crosses on the documentation's first page are what happens."""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

import dlbridge

TOP = Path(__file__).parents[1]
# Each row that can end the process or change memory, as the program that has to print True. f is the column's function.
ROWS = {
    "never ends the process": """
        try:
            f(np.zeros(3)[::-1])
        except (ValueError, TypeError, BufferError):
            pass
        print(True)""",
    "read-only stays so": """
        memory = b"abc"
        for source in memory, np.frombuffer(memory, "u1"):
            try:
                f(source)[0] = 7
            except (ValueError, TypeError, RuntimeError, BufferError, IndexError, AttributeError):
                pass
        print(memory[0] == 97)""",
    "bfloat16, to NumPy too": """
        here = torch.ones(3, dtype=torch.bfloat16) if f is np.asarray else np.ones(3, ml_dtypes.bfloat16)
        print("bfloat16" in str(f(here).dtype))""",
    "negative strides": "print(np.asarray(f(np.arange(3.0)[::-1])).tolist() == [2, 1, 0])",
    "images and tables": """
        shapes = [tuple(f(each).shape) for each in (PIL.Image.new("L", (2, 2)), pyarrow.array([1, 2]))]
        print(shapes == [(2, 2), (2,)])""",
    "bytes": 'print(tuple(f(b"abc").shape) == (3,))',
}
FUNCTIONS = {
    "dlbridge": "lambda source: dlbridge.convert(source, 'torch')",
    "torch.from_numpy": "torch.from_numpy",
    "torch.from_dlpack": "torch.from_dlpack",
    "numpy.asarray": "np.asarray",
    "pydlpack": "lambda source: torch.from_dlpack(dlpack.asdlpack(source))",
}
# One process imports the libraries; each cell is a child of it, since some end.
PROGRAM = """
import os, sys, json, warnings
import numpy as np, torch, ml_dtypes, PIL.Image, pyarrow, dlpack, dlbridge
warnings.simplefilter("ignore")
for code, function in json.loads(sys.stdin.read()):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writer, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            exec(code, {**globals(), "f": eval(function)})
            sys.stdout.flush()
        except Exception:
            pass
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    print(status == 0 and os.read(reader, 100) == b"True\\n", flush=True)
"""


def table():
    """The cells of the page by row and column; True is a tick."""
    text = (TOP / "docs" / "index.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "✓" in line]
    return {row[0]: dict(zip(FUNCTIONS, ("✓" in cell for cell in row[1:]), strict=True)) for row in lines}


@pytest.mark.needs("torch", "ml_dtypes", "PIL", "pyarrow", "dlpack")
def test_the_ticks_and_crosses():
    cells = [(row, column) for row in ROWS for column in FUNCTIONS]
    work = json.dumps([(textwrap.dedent(ROWS[row]), FUNCTIONS[column]) for row, column in cells])
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], input=work, capture_output=True, text=True,
                          check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    found = dict(zip(cells, (line == "True" for line in done.stdout.split()), strict=True))
    page = table()
    assert found == {(row, column): page[row][column] for row, column in cells}


@pytest.mark.needs("torch", "dlpack")
def test_the_cells_about_keywords():
    import dlpack

    functions = {
        "dlbridge": dlbridge.convert, "torch.from_numpy": torch.from_numpy, "torch.from_dlpack": torch.from_dlpack,
        "numpy.asarray": np.asarray, "pydlpack": dlpack.asdlpack,
    }
    assert table()["device, when asked"] == {
        name: has_device(function) and name != "numpy.asarray" for name, function in functions.items()}


def has_device(function):
    try:
        return "device" in inspect.signature(function).parameters
    except ValueError:
        return re.search(r"\bdevice=", function.__doc__ or "") is not None


@pytest.mark.needs("torch")
def test_the_picture_is_that_of_today():
    specification = importlib.util.spec_from_file_location("pictures", TOP / "tools" / "pictures.py")
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    assert tool.PICTURE.read_text() == tool.picture(), "run python tools/pictures.py"
