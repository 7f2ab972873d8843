"""The scripts of tools/, as modules."""

import importlib.util
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"


def load_tool(name):
    """A script, which finds those in its folder."""
    path = TOOLS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
