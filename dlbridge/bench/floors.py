"""The C floors: the least that C can do for each path. Only a checkout has their source."""

import importlib.util
from pathlib import Path

from dlbridge.bench.measure import Floors
from dlbridge.bench.rows import BESIDE


def build_floors() -> Floors:
    """Build and import them, or say why not."""
    folders = (BESIDE, *(parent / "benchmarks" for parent in (Path.cwd(), *Path.cwd().parents) if is_checkout(parent)))
    source = next((path for path in (folder / "floors.py" for folder in folders) if path.is_file()), None)
    spec = importlib.util.spec_from_file_location("dlbridge.bench.built_floors", source) if source else None
    if spec is None or spec.loader is None:
        return Floors(None, "their C source is in a checkout of dlbridge only")
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    reasons: list[str] = []
    module = builder.build(reasons.append)
    return Floors(module, "" if module else " ".join(" ".join(reasons).split()))


def is_checkout(folder: Path) -> bool:
    """Whether a folder is dlbridge's own tree, whose code may be run."""
    try:
        lines = (folder / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return False
    return 'name = "dlbridge"' in lines and (folder / "benchmarks" / "floors.c").is_file()
