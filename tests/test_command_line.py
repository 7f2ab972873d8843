"""The command line, as a user sees it: exit status, standard output, standard error."""

import os
import re
import subprocess
import sys
import sysconfig
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import dlbridge
from dlbridge.demo import Step, report

SCRIPT = Path(sysconfig.get_path("scripts")) / "dlbridge"
PROGRAMS = {"script": [str(SCRIPT)], "module": [sys.executable, "-m", "dlbridge"]}
# Imports as on a machine that has numpy only.
NUMPY_ALONE = """
import sys
sys.modules.update(torch=None, jax=None, ml_dtypes=None, array_api_strict=None)
from dlbridge.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
ROW = re.compile(r"^ +(?:-> )?([\w.]+) +0x([0-9a-f]+) *(shared|copied)?(?: \[\d+\])? *(\w*)$", re.MULTILINE)


@pytest.fixture(params=PROGRAMS)
def dlbridge_command(request, tmp_path):
    """Run one of the two spellings of the program, away from the checkout."""
    def run(*words):
        return subprocess.run([*PROGRAMS[request.param], *words], cwd=tmp_path, capture_output=True, text=True)

    return run


def numpy_alone(*words):
    return subprocess.run([sys.executable, "-c", NUMPY_ALONE, *words], capture_output=True, text=True)


def journeys(text):
    """The tables of the demonstration: for each input its rows of (name, address, memory, values)."""
    tables = [ROW.findall(block) for block in text.split("\n\n")]
    return [[(name, int(address, 16), memory, values) for name, address, memory, values in rows]
            for rows in tables if rows]


def test_demo_shows_by_pointer_what_is_shared(dlbridge_command):
    done = dlbridge_command("demo")
    assert (done.returncode, done.stderr) == (0, "")
    tables = journeys(done.stdout)
    assert [[row[0] for row in rows] for rows in tables] == [
        [source, "numpy", "torch", "jax", "numpy", "memoryview"] for source in ("bytes", "array.array", "mmap")]
    for rows in tables:
        for before, row in pairwise(rows):
            assert row[2] == ("shared" if row[1] == before[1] else "copied")
            assert row[3] == "equal"
    memory = [row[2] for rows in tables for row in rows]
    assert f"{memory.count('shared')} hand-overs shared the memory, {memory.count('copied')} copied it" in done.stdout
    assert done.stdout.count("copied [") == len(re.findall(r"^\[\d+\] ", done.stdout, re.MULTILINE))


def test_demo_copies_read_only_bytes_for_torch_and_shares_a_mapping_with_all(dlbridge_command):
    photograph, sound, mapped = journeys(dlbridge_command("demo").stdout)
    assert photograph[2][:1] + photograph[2][2:] == ("torch", "copied", "equal")
    assert sound[2][:1] + sound[2][2:] == ("torch", "shared", "equal")
    assert {row[1] for row in mapped} == {mapped[0][1]}


def test_demo_with_numpy_alone():
    done = numpy_alone("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert [[row[0] for row in rows] for rows in journeys(done.stdout)] == [
        [source, "numpy", "memoryview"] for source in ("bytes", "array.array", "mmap")]
    assert "pip install torch" in done.stdout
    assert "pip install jax" in done.stdout


def test_demo_would_notice_a_changed_value():
    steps = [Step("numpy", np.array([1, 2])), Step("numpy", np.array([1, 3]))]
    rows, differing = report(steps, [])
    assert (rows[1][2:], differing) == (("copied", "DIFFERENT"), 1)


def test_demo_into_a_closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run([*PROGRAMS["script"], "demo"], stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "")


def test_selftest_passes(dlbridge_command):
    done = dlbridge_command("selftest")
    assert (done.returncode, done.stderr) == (0, "")
    passed, failed = re.search(r"(\d+) passed, (\d+) failed, \d+ skipped", done.stdout.splitlines()[-1]).groups()
    assert int(passed) > 0
    assert failed == "0"


def test_selftest_verbose_says_more(dlbridge_command):
    assert len(dlbridge_command("selftest", "-v").stdout) > len(dlbridge_command("selftest").stdout)


def test_selftest_with_numpy_alone_says_what_it_skips():
    done = numpy_alone("selftest")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(re.search(r"(\d+) skipped", done.stdout.splitlines()[-1])[1]) > 0
    for library in ("torch", "jax", "ml_dtypes", "array_api_strict"):
        assert f"{library} is not installed" in done.stdout


def test_help_names_every_command(dlbridge_command):
    done = dlbridge_command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("demo", "selftest"):
        assert re.search(rf"^ +{command} +\w", done.stdout, re.MULTILINE)
        assert dlbridge_command(command, "--help").stdout.startswith(f"usage: dlbridge {command}")


def test_version(dlbridge_command):
    assert dlbridge_command("--version").stdout == f"dlbridge {dlbridge.__version__}\n"


@pytest.mark.parametrize("words", [[], ["sing"], ["demo", "now"], ["selftest", "--loud"]], ids=" ".join)
def test_mistakes_are_answered_with_usage(dlbridge_command, words):
    done = dlbridge_command(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: dlbridge")
    assert "Traceback" not in done.stderr
