"""What runs in a process of its own: the body of a test, a program, or many cases that could each end the process."""

import ast
import builtins
import dis
import functools
import inspect
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from support.child import run_in_child

TESTS = Path(__file__).parents[1]


def in_child(test=None, *, says=None, complains=None, run=None, **options):
    """
    A decorator: the body of a test is a program, which an interpreter of its own runs; ``options`` are run_script()'s.

    Parameters of the test are variables of the program; those of run_script() and those in capital letters, which are
    in its environment, are passed on. ``says`` is all that the program writes, or ``complains`` is in what it writes
    to standard error. The body sees nothing of the file around it.
    """
    if test is None:
        return functools.partial(in_child, says=says, complains=complains, run=run, **options)
    code, run = body_of(test), run or run_script
    program = compile(code, test.__name__, "exec")
    bound = names(program, "STORE").union(inspect.signature(test).parameters, vars(builtins))
    missing = names(program, "LOAD") - bound
    assert not missing, f"{test.__name__} runs by itself, and has no {', '.join(missing)}"
    known = inspect.signature(run).parameters

    @functools.wraps(test)
    def child(**given):
        given_first = "".join(f"{name} = {value!r}; " for name, value in given.items())
        passed = {name: value for name, value in given.items() if name in known or name.isupper()}
        ended = run(given_first + code, **{**options, **passed})
        assert says is None or (ended.stdout, ended.stderr) == (says, "")
        assert complains is None or complains in ended.stderr

    return child


def names(code, operation):
    """The names of a program that it reads ("LOAD") or binds ("STORE"), but for those of its functions alone."""
    found = {each.argval for each in dis.get_instructions(code)
             if each.opname in (f"{operation}_NAME", f"{operation}_GLOBAL")}
    return found.union(*[names(each, operation) for each in code.co_consts if inspect.iscode(each)])


def body_of(test):
    """The lines of a function's body, after so many empty ones that a traceback names the lines of its file."""
    lines, first = inspect.getsourcelines(test)
    function, = ast.parse(textwrap.dedent("".join(lines))).body
    body = function.body[ast.get_docstring(function) is not None:]
    begin, end = body[0].lineno - 1, body[-1].end_lineno
    return "\n" * (first + begin - 1) + textwrap.dedent("".join(lines[begin:end]))


def run_script(code, *, returns=0, timeout=300, warnings="error", by=(), **environment):
    """Run code that must end with ``returns`` (a negative number is a signal's).

    ``warnings`` is Python's -W; the command ``by`` starts Python; ``environment`` is added to this process's.
    """
    paths = os.pathsep.join(filter(None, [environment.pop("PYTHONPATH", ""), str(TESTS), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "PYTHONPATH": paths, "PYTHONFAULTHANDLER": "1", **environment}
    with tempfile.TemporaryDirectory(prefix="child_") as where:
        script = Path(where, "child.py")        # a file, so that a traceback shows the line
        script.write_text(textwrap.dedent(code), encoding="utf-8")
        command = [*by, sys.executable, "-W", warnings, script]
        child = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout)
    if child.returncode != returns:
        raise AssertionError(f"the child {ending(child.returncode)}\n{child.stdout}\n{child.stderr}")
    return child


def ending(returncode):
    return f"died of {signal.Signals(-returncode).name}" if returncode < 0 else f"returned {returncode}"


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
                raise AssertionError(f"{name}: {error}") from error
        raise
    assert outcome.stderr == ""
    return given
