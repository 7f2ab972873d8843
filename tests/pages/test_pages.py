"""The documentation as a site: ``pytest tests/pages``, with the extra "docs"."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
DOUBLE_UNDERSCORES = re.compile(r"__([a-z]\w*?)__")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every page as HTML, by its path; a warning of Sphinx is an error."""
    folder = tmp_path_factory.mktemp("html")
    done = subprocess.run([sys.executable, "-P", "-m", "sphinx", "-q", "-W", "--keep-going", "docs", folder], cwd=TOP,
                          stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}


def text_of(page):
    """The words of a page's article, without those of its code."""
    article = page.partition('<article')[2].partition("</article>")[0]
    article = re.sub(r"<(pre|code|style)\b.*?</\1>", "", article, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", article))


def test_names_of_methods_are_no_words_in_bold(pages):
    names = {name for path in [*TOP.glob("docs/**/*.md"), *TOP.glob("dlbridge/libraries/*.py")]
             for name in DOUBLE_UNDERSCORES.findall(path.read_text(encoding="utf-8"))}
    assert "dlpack" in names
    # The API's page is of docstrings, where two underscores mean nothing, and parameters are bold.
    bold = {(name, word) for name, page in pages.items() if name != "api.html"
            for word in re.findall(r"<strong>(\w+)</strong>", page)}
    assert [(name, word) for name, word in bold if word in names] == []


def test_nothing_is_left_of_markdown(pages):
    assert "What do I need?" in text_of(pages["index.html"])
    left = {name: re.findall(r"```|\{\w+\}`|\]\(|^\|", text_of(page), re.MULTILINE) for name, page in pages.items()}
    assert {name: found for name, found in left.items() if found} == {}


def test_the_first_page_has_the_readme(pages):
    page = pages["index.html"]
    assert 'src="_images/sharing.svg"' in page
    assert page.count("✓") > 20
    assert 'href="performance.html"' in page
