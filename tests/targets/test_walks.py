"""Random walks through the libraries: values, read-only memory and lifetimes hold at every step.

``tools/with_libraries.sh walks`` walks longer.
"""

import subprocess
import sys
from pathlib import Path

import pytest

WALKS = Path(__file__).parents[1] / "support" / "walks.py"


@pytest.mark.needs("torch", "jax", "pyarrow", "PIL")
def test_walks():
    """In a child, since memory that is gone ends the process."""
    done = subprocess.run([sys.executable, str(WALKS), "0", "600"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["600 walks"]), done.stdout + done.stderr[-3000:]
