"""Sphinx's settings: ``sphinx-build -W docs docs/_build/html``, with ``dlbridge[docs]`` installed."""

import re

import dlbridge

project = author = "dlbridge"
project_copyright = "dlbridge developers"
release = version = dlbridge.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_build"]
highlight_language = "default"
myst_heading_anchors = 3

autodoc_preserve_defaults = True
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"dlbridge {release}"
html_show_sphinx = False


def link_included(app, document, source):
    """Pages outside of this folder are included by one that has their name in lower case."""
    source[0] = re.sub(r"\]\(\.\./([A-Z]+)\.md\)", lambda found: f"]({found[1].lower()}.md)", source[0])


def setup(app):
    app.connect("source-read", link_included)
