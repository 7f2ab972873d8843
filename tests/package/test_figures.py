"""The figures of the README and of the documentation are those of one run."""

import re
from pathlib import Path

import pytest
from support.tools import load_tool

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    return load_tool("pages/performance_page")


def test_every_page_has_the_figures_that_are_kept(tool):
    for path, page in tool.pages():
        assert path.read_text(encoding="utf-8") == page, f"{path}: run python tools/pages performance"


def test_the_chart_has_the_ratios_of_the_first_table(tool):
    drawn = re.findall(r">([\d.]+)</text>", tool.CHART.read_text(encoding="utf-8"))
    page = dict(tool.pages())[TOP / "docs" / "performance.md"]
    table = page.partition("<!-- begin: headlines -->")[2].partition("<!-- end: headlines -->")[0]
    assert drawn == re.findall(r"\| ([\d.]+) \|$", table, re.MULTILINE)
    assert len(drawn) == len(tool.HEADLINES)
