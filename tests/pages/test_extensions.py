"""The modules of docs/jobs/extensions.md are built by its commands, and do what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dlbridge

PAGE = Path(__file__).parents[2] / "docs" / "jobs" / "extensions.md"


def section(title):
    """A section's blocks of code, by their language, in their order."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = {}
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found.setdefault(language, []).append(code)
    return found


@pytest.mark.parametrize(("title", "language", "file"), [
    ("A whole module in C", "c", "means.c"), ("The same in Cython", "cython", "means.pyx")])
def test_a_whole_module(title, language, file, tmp_path):
    blocks = section(title)
    (tmp_path / file).write_text(blocks[language][0], encoding="utf-8")
    (tmp_path / "setup.py").write_text(blocks["python"][0], encoding="utf-8")
    site = tmp_path / "site"
    command = blocks["sh"][0].replace("--no-build-isolation", f"--no-build-isolation --no-deps --target {site}")
    # Where dlbridge is installed to be edited, its folder is on no path that Cython searches.
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                                "PYTHONPATH": str(Path(dlbridge.__file__).parents[1])}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=tmp_path, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, done.stdout
    use = section("A whole module in C")["python"][1]
    subprocess.run([sys.executable, "-P", "-c", use], check=True, timeout=100,
                   env=environment | {"PYTHONPATH": f"{site}:{environment['PYTHONPATH']}"})
