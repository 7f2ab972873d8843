"""Refuses a subinterpreter, before anything is loaded, and then a checkout that is not compiled.

Modules that a subinterpreter had loaded could no longer be loaded in the main interpreter.
"""

import importlib
import sys


def _is_main() -> bool:
    """Whether this is the interpreter that the process began with."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    try:
        interpreters = importlib.import_module(name)
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


if not _is_main():
    raise ImportError(
        "dlbridge: interpreter: is a subinterpreter, which NumPy does not support (import dlbridge in the main "
        "interpreter, or in processes; with mod_wsgi, WSGIApplicationGroup %{GLOBAL})", name="dlbridge")

try:
    importlib.import_module("dlbridge._core.layout")
except ModuleNotFoundError as error:
    if error.name != "dlbridge._core.layout":
        raise
    raise ImportError(
        "dlbridge: checkout: is not compiled (run pip install -e . in it, or Python outside of it)", name="dlbridge",
    ) from None
