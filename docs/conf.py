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
html_static_path = ["_static"]
html_extra_path = ["matrix.svg"]        # of an image in HTML, which Sphinx does not look into
html_css_files = ["style.css"]


# Pages are read on code hosts too, so they have links and names that mean something there; Sphinx is told more.
REWRITTEN = (
    # Pages outside of this folder are included by one that has their name in lower case.
    (re.compile(r"\]\(\.\./([A-Z]+)\.md\)"), lambda found: f"]({found[1].lower()}.md)"),
    # A public name leads to the API page.
    (re.compile(rf"(?<!`)`(dlbridge\.(?:{'|'.join(dlbridge.__all__)}))`(?!`)"), r"{obj}`\1`"),
)


def rewrite(app, document, source):
    for pattern, replacement in REWRITTEN:
        source[0] = pattern.sub(replacement, source[0])


def keep_signature(app, what, name, obj, options, signature, returns):
    """As Python tells it; numpydoc would read the text of a compiled function's own, and drop the slash."""
    return (signature, returns) if signature else None


def break_names(app, page, template, context, doctree):
    """Let names in a narrow column break behind a dot, a bracket, a comma or an underscore, and not inside a word."""
    if "body" in context:
        context["body"] = re.sub(r'(?<=<span class="pre">)[^<]+', lambda found: re.sub(
            r"(?<=[.(,_])(?=[a-zA-Z0-9\[])", "<wbr>", found[0]), context["body"])


def setup(app):
    app.connect("html-page-context", break_names)
    app.connect("source-read", rewrite)
    app.connect("autodoc-process-signature", keep_signature, priority=400)     # before numpydoc's, of 500
