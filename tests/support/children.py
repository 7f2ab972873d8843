"""What runs in a process of its own: a program, or many cases that could each end the process."""

import os
import subprocess
import sys
import textwrap

import pytest

from support.child import run_in_child


def run_program(program, *options, arguments=(), timeout=300, quiet=False, **environment):
    """What a program writes that must end well, and where it is to be quiet, without a word to standard error.

    ``options`` are Python's; ``environment`` is added to this process's.
    """
    command = [sys.executable, *options, "-c", textwrap.dedent(program), *map(os.fspath, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **environment})
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert not (quiet and done.stderr), done.stderr
    return done.stdout


def each_in_one_child(function, cases):
    """What the function gives for the arguments of each case, by the case's name. The child may write nothing.

    If the child dies, each case runs in a child of its own, so that the error names it.
    """
    outcome = run_in_child(lambda: {name: function(*arguments) for name, arguments in cases.items()})
    try:
        given = outcome.result()
    except BaseException:
        for name, arguments in cases.items():
            try:
                run_in_child(function, *arguments).result()
            except BaseException as error:
                pytest.fail(f"{name}: {error}")
        raise
    assert outcome.stderr == ""
    return given
