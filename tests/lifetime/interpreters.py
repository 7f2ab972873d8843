"""Subinterpreters of every Python, for the bodies of tests."""

import sys

try:
    import _interpreters as interpreters  # from Python 3.13 on
    create, run_in = interpreters.create, interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    create, run_in = lambda kind: interpreters.create(isolated=kind == "isolated"), interpreters.run_string

ATTEMPT = """
import sys
try:
    import dlbridge
except ImportError as error:
    print(error.name, error, sep="; ")
refuser = "dlbridge._core", "dlbridge._core.loading"
print([name for name in sys.modules if name.startswith(("dlbridge.", "numpy")) and name not in refuser])
"""


def attempt(kind, code=ATTEMPT):
    """Run code in a new interpreter; by default it is dlbridge's import, of which it says what becomes."""
    made = create(kind)
    sys.stdout.flush()
    failure = run_in(made, code)
    interpreters.destroy(made)
    assert failure is None, failure


def convert():
    import numpy

    import dlbridge

    array = numpy.arange(3)
    assert dlbridge.convert(dlbridge.convert(array, "memoryview"), "numpy").tolist() == [0, 1, 2]
    assert dlbridge.asdlpack(array).shape == (3,)
