"""Refuses a checkout that is not compiled, in one sentence."""

import importlib

try:
    importlib.import_module("dlbridge._core.layout")
except ModuleNotFoundError as error:
    if error.name != "dlbridge._core.layout":
        raise
    raise ImportError(
        "dlbridge: checkout: is not compiled (run pip install -e . in it, or Python outside of it)", name="dlbridge",
    ) from None
