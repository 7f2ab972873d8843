"""The examples of the docstrings, the README and the documentation's pages run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from support.optional import CONDITIONS, NAMES, marked

import dlbridge

TOP = Path(__file__).parents[2]
MODULES = ("convert", "explain", "register", "tensor", "testing.producers",
           pytest.param("shards", marks=pytest.mark.needs("jax")))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    # By its full name: dlbridge.convert is the function.
    module = importlib.import_module(f"dlbridge.{name}")
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def examples_of(page):
    """The examples of a page in Markdown; doctest would take the end of a code block for output."""
    text = re.sub(r"^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return doctest.DocTestParser().get_doctest(text, {"dlbridge": dlbridge}, page.name, str(page), 0)


# Of these pages every library is needed: tests/libraries runs them.
OF_ALL_LIBRARIES = ("tables.md", "estimators.md", "train.md")


def pages():
    """Each page that has examples; it needs what they name."""
    for page in sorted((TOP / "README.md", *(TOP / "docs").rglob("*.md"))):
        code = "".join(example.source for example in examples_of(page).examples)
        if code and page.name not in OF_ALL_LIBRARIES:
            named = [name for name in (*NAMES, *CONDITIONS) if re.search(rf"\b{re.escape(name)}\b", code)]
            yield marked(page, *named, id=page.relative_to(TOP).as_posix())


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")      # of the page about torch.compile
@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")      # … about sparse arrays
@pytest.mark.parametrize("page", [*pages()])
def test_examples_of_a_page_run(page):
    # The names stay: torch.compile takes its own out of them at the end.
    outcome = doctest.DocTestRunner().run(examples_of(page), clear_globs=False)
    assert outcome.attempted > 0
    assert outcome.failed == 0
