"""Whatever fails on the way, an allocation or a call into Python: nothing is lost, nothing is let go twice.

The counting wrapper of malloc() is failing.c, what runs under it failing.py. It is compiled for the test, and is for
glibc alone, whose own functions it stands before.
"""

import json
import os
import subprocess
import sys

import pytest
from compiling import HERE, compiled


@pytest.fixture(scope="module")
def wrapper(tmp_path_factory):
    return compiled("failing.c", tmp_path_factory.mktemp("failing"))


def run(wrapper, program, *arguments):
    """What a program prints that runs under the wrapper."""
    environment = {
        **os.environ,
        "LD_PRELOAD": os.fspath(wrapper),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, HERE / program, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    return json.loads(done.stdout)


# ---- allocations -----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def failed(wrapper):
    return run(wrapper, "failing.py")


def test_every_allocation_of_every_path_fails(failed):
    """Or what follows would speak of nothing."""
    assert len(failed) >= 30
    for source, (paths, _) in failed.items():
        assert len(paths) >= 30, source
    outcomes = [sum(outcomes.values()) for paths, _ in failed.values() for outcomes, _ in paths.values()]
    assert sum(outcomes) > 20_000
    assert outcomes.count(0) < len(outcomes) / 20, "of few paths the interpreter has all memory in stock"


def test_nobody_is_killed_and_nothing_is_written(failed):
    assert {source: said for source, (_, said) in failed.items() if said} == {}


def test_without_memory_nothing_is_lost_nor_let_go_twice(failed):
    wrong = {
        f"{source} {path}": wrong
        for source, (paths, _) in failed.items() for path, (_, wrong) in paths.items() if wrong
    }
    assert wrong == {}
