"""In a subinterpreter dlbridge is refused, and says so, and the main interpreter has no harm from it.

Needs NumPy and pytest alone: it runs on every version of Python.
"""

import pytest
from support.children import in_child

REFUSED = (
    "dlbridge; dlbridge: interpreter: is a subinterpreter, which NumPy does not support (import dlbridge in the main "
    "interpreter, or in processes; with mod_wsgi, WSGIApplicationGroup %{GLOBAL})\n[]\n")
each_kind = pytest.mark.parametrize("kind", ["legacy", "isolated"])


@each_kind
@in_child(says=2 * REFUSED)
def test_subinterpreter_is_refused_and_the_main_one_imports_after_it(kind):
    from lifetime.interpreters import attempt, convert

    attempt(kind)
    attempt(kind)
    convert()


@each_kind
@in_child(says=2 * REFUSED)
def test_subinterpreter_is_refused_and_the_main_one_goes_on(kind):
    from lifetime.interpreters import attempt, convert

    convert()
    attempt(kind)
    attempt(kind)
    convert()
