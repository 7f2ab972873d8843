"""The C floors: the least that C can do for each path. Only a checkout has their source."""

import importlib.util
from pathlib import Path

from dlbridge.bench.measure import Floors

# The folder that dlbridge lies in. It is a checkout where dlbridge was built in place, and not installed.
TOP = Path(__file__).resolve().parents[2]


def build_floors() -> Floors:
    """Build and import the floors, or say why there are none."""
    folder = checkout()
    return Floors(None, "their C source is in a checkout of dlbridge only") if folder is None else build_in(folder)


def checkout() -> Path | None:
    """Find dlbridge's own source tree, if there is one here."""
    return next((folder for folder in (TOP, Path.cwd(), *Path.cwd().parents) if is_checkout(folder)), None)


def is_checkout(folder: Path) -> bool:
    """Tell whether a folder is dlbridge's own source tree, so that its code may be run."""
    try:
        lines = (folder / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return False
    return 'name = "dlbridge"' in lines and (folder / "benchmarks" / "floors.c").is_file()


def build_in(checkout: Path) -> Floors:
    """Build the floors by the script ``benchmarks/floors.py`` of a checkout."""
    script = checkout / "benchmarks" / "floors.py"
    spec = importlib.util.spec_from_file_location("dlbridge.bench.built_floors", script)
    if spec is None or spec.loader is None or not script.is_file():
        return Floors(None, f"{script} is missing")
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    reasons: list[str] = []
    module = builder.build(reasons.append)
    return Floors(module, "" if module else " ".join(" ".join(reasons).split()))
