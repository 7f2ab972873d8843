"""The examples of the docstrings run."""

import doctest
import importlib
from pathlib import Path

import pytest

import dlbridge

MODULES = ("convert", "explain", "register", "tensor", "testing.producers")


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    # By its full name: dlbridge.convert is the function.
    module = importlib.import_module(f"dlbridge.{name}")
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.needs("torch")
def test_example_of_the_readme_runs():
    readme = Path(__file__).parents[1] / "README.md"
    outcome = doctest.testfile(str(readme), module_relative=False, globs={"dlbridge": dlbridge})
    assert outcome.attempted > 0
    assert outcome.failed == 0
