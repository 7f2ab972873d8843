"""Refuses subinterpreters before anything is loaded.

Modules that a subinterpreter had loaded could no longer be loaded in the main interpreter.
"""

import importlib


def _is_main() -> bool:
    """Whether this is the interpreter that the process began with."""
    for name in ("_interpreters", "_xxsubinterpreters"):    # from Python 3.13 on; before that
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True


if not _is_main():
    raise ImportError(
        "dlbridge: interpreter: is a subinterpreter, which NumPy does not support (import dlbridge in the main "
        "interpreter, or in processes; with mod_wsgi, WSGIApplicationGroup %{GLOBAL})", name="dlbridge")
