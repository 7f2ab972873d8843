"""The cases that the fuzzer kept, on an ordinary build: what holds of any input holds of these."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import corpus
from support.optional import marked

HERE = Path(__file__).parents[1]


@pytest.mark.parametrize("name", [
    marked(name, *["ml_dtypes 0.6"] * (name == "copies")) for name in corpus.names()])
def test_corpus(name, tmp_path):
    """In a process of its own, which may die, and where no real library is imported that an exporter poses as."""
    board = tmp_path / "case"
    board.touch()
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    child = subprocess.run(
        [sys.executable, "-W", "error", "-m", "fuzz.corpus", "replay", name, board], capture_output=True, text=True,
        timeout=300, env={**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"})
    assert child.returncode == 0, f"{board.read_text().partition(chr(10))[0]}\n{child.stderr}"
    assert child.stderr == ""
    assert int(child.stdout) == len(corpus.cases(name)) > 100


def test_every_target_has_a_corpus():
    targets = {path.stem for path in HERE.glob("fuzz/*.py") if "\ndef run(source" in path.read_text()}
    assert targets == set(corpus.names())
    assert len(targets) >= 9
