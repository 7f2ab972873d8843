"""The examples of the documentation's pages about libraries that only this environment has."""

import doctest
from pathlib import Path

import pytest
from package.test_doctests import OF_ALL_LIBRARIES, examples_of
from support.exporters import enable_x64

PAGES = Path(__file__).parents[2] / "docs" / "jobs"


@pytest.mark.parametrize("name", OF_ALL_LIBRARIES)
def test_examples_of_a_page_run(name):
    with enable_x64(False):         # as JAX begins
        outcome = doctest.DocTestRunner().run(examples_of(PAGES / name))
    assert outcome.attempted > 0
    assert outcome.failed == 0
