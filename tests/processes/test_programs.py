"""The programs of the pages about processes, and the example."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command, cwd):
    done = subprocess.run([sys.executable, "-W", "error", *command], capture_output=True, text=True, timeout=300,
                          cwd=cwd, env={**os.environ, "PYTHONPATH": str(cwd)})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def code_of(page):
    code, = re.findall(r"^```python\n(import .*?)^```$", (ROOT / "docs" / "jobs" / page).read_text(encoding="utf-8"),
                       re.MULTILINE | re.DOTALL)
    return code


@pytest.mark.needs("torch")
def test_the_program_of_the_page(tmp_path):
    (tmp_path / "program.py").write_text(code_of("processes.md"), encoding="utf-8")
    assert run("program.py", cwd=tmp_path) == "2.0\n"


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_the_recipe_for_loaders(tmp_path, start):
    (tmp_path / "recipe.py").write_text(code_of("loaders.md"), encoding="utf-8")
    (tmp_path / "program.py").write_text(f"""
import warnings

import numpy as np
from recipe import batches

if __name__ == "__main__":
    warnings.filterwarnings("ignore", ".*os.fork.*")        # JAX has threads
    samples = [np.full(64, index, "float32") for index in range(6)]
    print([batch[:, 0].tolist() for batch in batches(samples, {start!r})])
""", encoding="utf-8")
    assert run("program.py", cwd=tmp_path) == "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]\n"


@pytest.mark.needs("torch", "PIL")
def test_the_camera(tmp_path):
    size = "--frames", "25", "--width", "160", "--height", "90"
    printed = run(ROOT / "examples" / "camera.py", *size, cwd=tmp_path)
    first, *processes, last = printed.splitlines()
    assert first.startswith("25 frames, 1,440,000 bytes, in ")
    assert processes == [f"{name}: {library} had the frames in the ring, 0 bytes were copied" for name, library in (
        ("camera", "NumPy"), ("scorer", "torch"), ("artist", "Pillow"))]
    assert (last, os.listdir(tmp_path)) == ("sheet.png: the sharpest frames", ["sheet.png"])
