"""The examples of the docstrings run."""

import doctest
import importlib

import pytest

MODULES = ("convert", "explain", "register", "tensor", "testing.producers")


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    # By its full name: dlbridge.convert is the function.
    module = importlib.import_module(f"dlbridge.{name}")
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
