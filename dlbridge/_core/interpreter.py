"""Refuses subinterpreters before anything is loaded.

Modules that a subinterpreter had loaded could no longer be loaded in the main interpreter.
"""

from ctypes import PYFUNCTYPE, c_void_p, pythonapi


def _is_main() -> bool:
    """Whether this is the interpreter that the process began with."""
    ask = PYFUNCTYPE(c_void_p)
    return bool(ask(("PyInterpreterState_Get", pythonapi))() == ask(("PyInterpreterState_Main", pythonapi))())


if not _is_main():
    raise ImportError(
        "dlbridge: interpreter: is a subinterpreter, which NumPy does not support (import dlbridge in the main "
        "interpreter, or in processes; with mod_wsgi, WSGIApplicationGroup %{GLOBAL})", name="dlbridge")
