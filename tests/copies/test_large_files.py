"""The example of files that are larger than memory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.needs("plain memory")

EXAMPLE = Path(__file__).parents[2] / "examples" / "large_files.py"
BLOCK = 32.0            # MiB
SLACK = 16.0            # what torch's and JAX's threads take beside it


@pytest.mark.needs("torch", "jax", "pyarrow", "rich", "safetensors")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the example prints what Linux counts")
def test_no_more_than_a_block_is_in_memory(tmp_path):
    printed = subprocess.run(
        [sys.executable, "-P", EXAMPLE, "--mebibytes", "96", "--folder", tmp_path], check=True, text=True,
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}).stdout
    assert load_file(tmp_path / "rows.safetensors")["rows"].tobytes() == np.load(tmp_path / "rows.npy").tobytes()
    rows = {tuple(cells[:2]): cells[2:] for cells in table(printed)}
    assert len(rows) == 6
    assert len({longest for *_, longest in rows.values()}) == 1
    for (file, target), (shared, anonymous, resident, _) in rows.items():
        copied = 0 if target == "torch" or file == "npy" else BLOCK      # the others begin at no multiple of 64 bytes
        assert shared == "3 of 3" or copied
        assert float(anonymous) <= copied + SLACK
        assert float(resident) <= BLOCK + copied + SLACK


def table(printed):
    lines = [re.split(r" *│ *", line)[1:-1] for line in printed.splitlines() if line.startswith("│")]
    assert lines, printed
    return lines
