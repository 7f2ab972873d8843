"""The cases that the fuzzer kept, on an ordinary build: what holds of any input holds of these."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import corpus

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", corpus.names())
def test_corpus(name, tmp_path):
    """In a process of its own, which may die, and where no real library is imported that an exporter poses as."""
    board = tmp_path / "case"
    child = subprocess.run(
        [sys.executable, "-W", "error", "-m", "fuzz.corpus", "replay", name, board], cwd=HERE, capture_output=True,
        text=True, timeout=300, env={**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONSAFEPATH": ""})
    case = board.read_text().splitlines()[:1] if board.exists() else "none"
    assert child.returncode == 0, f"case {case}\n{child.stderr}"
    assert child.stderr == ""
    assert int(child.stdout) == len(corpus.cases(name)) > 100


def test_every_target_has_a_corpus():
    targets = {path.stem for path in HERE.glob("fuzz/*.py") if "\ndef run(source" in path.read_text()}
    assert targets == set(corpus.names())
    assert len(targets) >= 9
