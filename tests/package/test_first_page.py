"""What the first page says of the libraries' own functions, and of dlbridge beside them, is what happens."""

import re
from pathlib import Path

import numpy as np
import pytest
from support import first_page
from support.child import run_in_child
from support.exporters import aligned
from support.tools import load_tool

import dlbridge

TOP = Path(__file__).parents[2]


@pytest.mark.needs("torch", "jax", "ml_dtypes", "PIL", "pyarrow", "dlpack", "tvm_ffi")
def test_the_ticks_and_crosses():
    cells = [(column, row, function) for column, functions in first_page.COLUMNS.items()
             for row in first_page.ROWS for function in functions]
    found = first_page.run([(first_page.ROWS[row], function) for _, row, function in cells])
    happened = {column: dict.fromkeys(first_page.ROWS, True) for column in first_page.COLUMNS}
    for (column, row, _), tick in zip(cells, found, strict=True):
        happened[column][row] &= tick
    page = first_page.table()
    assert {column: page[column] for column in happened} == happened


# ---- their own functions, and dlbridge's beside them -----------------------------------------------------------------

def frozen():
    return np.frombuffer(bytes(bytearray(b"abc")), "u1")


def shares(array, copy):
    """Whether a copy has the value that is written into its source afterwards."""
    array[:] = float(copy[0]) + 1
    return float(copy[0]) == array[0]


def beside():
    """The codes of the page's table: a library's own, and dlbridge's."""
    text = first_page.README.read_text(encoding="utf-8").partition("| their own |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|.*\| `([^`]+)`", text, re.MULTILINE)


def test_the_codes_are_those_that_are_run():
    assert beside() == [
        ("torch.from_dlpack(image[:, ::-1])", 'convert(image[:, ::-1], "torch")'),
        ("torch.from_dlpack(frozen)[0] = 7", 'convert(frozen, "torch")'),
        ("jax.numpy.from_dlpack(array, copy=True)", 'convert(array, "jax", copy=True)'),
        ("jax.numpy.asarray(cupy_array)", 'convert(cupy_array, "jax")'),       # tests/gpu/test_readme.py
    ]


@pytest.mark.needs("torch")
def test_a_flipped_image():
    import torch

    image = np.arange(12.0).reshape(3, 4)
    assert run_in_child(lambda: torch.from_dlpack(image[:, ::-1])).signal == "SIGABRT"
    assert dlbridge.convert(image[:, ::-1], "torch").tolist() == image[:, ::-1].tolist()


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_read_only_memory():
    import torch

    theirs, mine = frozen(), frozen()
    torch.from_dlpack(theirs)[0] = 7
    assert theirs[0] == 7
    dlbridge.convert(mine, "torch")[0] = 7
    assert mine[0] == ord("a")
    assert dlbridge.convert(mine, "torch", readonly="share").data_ptr() == mine.ctypes.data


@pytest.mark.needs("jax 0.10")
def test_a_copy_for_jax():
    import jax.numpy

    array = aligned((64,), "f4")
    assert shares(array, jax.numpy.from_dlpack(array, copy=True))
    array = aligned((64,), "f4")
    assert not shares(array, dlbridge.convert(array, "jax", copy=True))


# ---- the pictures ----------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
def test_the_pictures_are_those_of_today():
    tool = load_tool("pages/pictures_page")
    for name, draw in tool.PICTURES.items():
        assert (tool.DOCS / name).read_text(encoding="utf-8") == draw(), "run python tools/pages pictures"
