"""Many cases that could each end the process, in one child."""

import pytest

from dlbridge.testing.child import run_in_child


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
