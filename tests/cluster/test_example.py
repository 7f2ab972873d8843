"""The example of a cluster: the same numbers from every engine and by every way."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "score.py"
IMAGES = 600            # two files that are full, and one that is not


@pytest.fixture(scope="module")
def score(tmp_path_factory):
    folder, home = tmp_path_factory.mktemp("images"), tmp_path_factory.mktemp("home")

    def score(*arguments):
        ran = subprocess.run(
            [sys.executable, "-P", SCRIPT, "--folder", folder, "--images", str(IMAGES), *arguments],
            env={**os.environ, "HOME": str(home), "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"},
            capture_output=True, text=True, timeout=200)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return score


@pytest.fixture(scope="module")
def expected(score):
    return digest(score())


def digest(printed):
    return re.search(r"digest (\w{16})", printed)[1]


@pytest.mark.parametrize("way", ["numpy", "torch"])
def test_every_way_gives_the_same(score, expected, way):
    assert digest(score("--way", way)) == expected


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_every_engine_gives_the_same(score, expected, engine):
    printed = score("--engine", engine)
    assert digest(printed) == expected
    assert "600 images" in printed


def test_a_wrong_number_is_no_traceback():
    ran = subprocess.run([sys.executable, "-P", SCRIPT, "--images", "0"], capture_output=True, text=True)
    assert ran.returncode == 2
    assert "invalid positive value: '0'" in ran.stderr
    assert "Traceback" not in ran.stderr
