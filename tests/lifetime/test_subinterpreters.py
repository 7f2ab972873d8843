"""In a subinterpreter dlbridge is refused, and says so, and the main interpreter has no harm from it.

Needs NumPy and pytest alone: it runs on every version of Python.
"""

import subprocess
import sys

import pytest

PRELUDE = """
import sys
try:
    import _interpreters as interpreters            # from Python 3.13 on
    create, attempt_in = interpreters.create, interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    create, attempt_in = lambda kind: interpreters.create(isolated=kind == "isolated"), interpreters.run_string

ATTEMPT = '''
import sys
try:
    import dlbridge
except ImportError as error:
    print(error.name, error, sep="; ")
refuser = "dlbridge._core", "dlbridge._core.interpreter"
print([name for name in sys.modules if name.startswith(("dlbridge.", "numpy")) and name not in refuser])
'''

def attempt(kind):
    made = create(kind)
    sys.stdout.flush()
    failure = attempt_in(made, ATTEMPT)
    interpreters.destroy(made)
    assert failure is None, failure
"""
REFUSED = (
    "dlbridge; dlbridge: interpreter: is a subinterpreter, which NumPy does not support (import dlbridge in the main "
    "interpreter, or in processes; with mod_wsgi, WSGIApplicationGroup %{GLOBAL})\n[]\n")
CONVERT = """
import numpy, dlbridge
array = numpy.arange(3)
assert dlbridge.convert(dlbridge.convert(array, "memoryview"), "numpy").tolist() == [0, 1, 2]
assert dlbridge.asdlpack(array).shape == (3,)
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("kind", ["legacy", "isolated"])
def test_subinterpreter_is_refused_and_the_main_one_imports_after_it(kind):
    assert run(f"attempt({kind!r})\nattempt({kind!r})\n{CONVERT}") == 2 * REFUSED


@pytest.mark.parametrize("kind", ["legacy", "isolated"])
def test_subinterpreter_is_refused_and_the_main_one_goes_on(kind):
    assert run(f"{CONVERT}\nattempt({kind!r})\nattempt({kind!r})\n{CONVERT}") == 2 * REFUSED
