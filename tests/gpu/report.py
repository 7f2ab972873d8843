"""What is on this machine, and what was found: report.py inventory FILE; report.py summary PARTS OUT."""

import datetime
import json
import platform
import shutil
import subprocess
import sys
import sysconfig
import xml.etree.ElementTree as ElementTree
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gpu import driver

PACKAGES = (
    "dlbridge", "numpy", "torch", "numba", "numba-cuda", "llvmlite", "cuda-bindings", "cuda-core", "jax", "jaxlib",
    "ml_dtypes", "pytest", "Cython", "setuptools", "pip",
)
# Packages whose name tells the CUDA version.
FAMILIES = ("cupy", "jax-cuda", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")
GPU_FIELDS = ("name", "memory.total", "driver_version", "compute_cap")


def installed(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def families():
    found = {}
    for distribution in distributions():
        name = distribution.metadata["Name"] or ""
        if name.startswith(FAMILIES):
            found[name] = distribution.version
    return found | {family: "missing" for family in FAMILIES[:2] if not any(name.startswith(family) for name in found)}


def gpus():
    """One line for each, as nvidia-smi tells; or why it does not."""
    command = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"nvidia-smi: {error}"]
    return told.stdout.splitlines() if told.returncode == 0 else [f"nvidia-smi: {(told.stdout + told.stderr).strip()}"]


def inventory():
    header = Path(sysconfig.get_path("include"), "Python.h")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": f"{platform.python_version()} at {sys.executable}",
        "GPUs": gpus(),
        "GPU usable": driver.why_no_gpu() or "yes",
        "CUDA of the driver": driver.version() or "missing",
        "C compiler": shutil.which("cc") or "missing",
        "Python.h": str(header) if header.exists() else "missing",
        "packages": {package: installed(package) for package in PACKAGES} | families(),
    }


def shown(facts):
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += [f"{package:24}{number}" for package, number in value.items()]
        else:
            lines.append(f"{name:24}{'; '.join(value) if isinstance(value, list) else value}")
    return "\n".join(lines)


def tests(paths):
    """Counts, and what failed and what was skipped with its reason, from pytest's XML."""
    found = {"passed": 0, "failed": [], "skipped": {}}
    for case in (case for path in paths for case in ElementTree.parse(path).iter("testcase")):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            found["failed"].append(name)
        elif skipped is not None:
            reason = (skipped.get("message") or "").removeprefix("Skipped: ")
            found["skipped"][reason] = found["skipped"].get(reason, 0) + 1
        else:
            found["passed"] += 1
    return found


def loaded(path):
    return json.loads(path.read_text()) if path.exists() else {}


def summary(folder, out):
    """Write report.json and report.txt into ``out``, from what the parts left in a folder."""
    parts = dict(line.split("\t") for line in (folder / "parts").read_text().splitlines())
    found = {
        "machine": loaded(folder / "inventory.json"),
        "parts": parts,
        "tests": tests(sorted(out.glob("*.xml"))),
        "latency": loaded(out / "latency.json"),
        "soak": loaded(out / "soak.json"),
    }
    lines = [shown(found["machine"]), ""]
    lines += [f"{part:24}{became}" for part, became in parts.items()]
    counts = found["tests"]
    if counts["passed"] or counts["failed"] or counts["skipped"]:
        skipped = sum(counts["skipped"].values())
        lines += ["", f"tests: {counts['passed']} passed, {len(counts['failed'])} failed, {skipped} not run"]
        lines += [f"  FAILED {name}" for name in counts["failed"]]
        lines += [f"  not run ({count}): {reason}" for reason, count in sorted(counts["skipped"].items())]
    for part in ("first", "pointers", "calls", "latency", "hops", "soak"):
        log = out / f"{part}.log"
        if log.exists():
            lines += ["", f"{part}:", log.read_text().rstrip()]
    text = "\n".join(lines) + "\n"
    (out / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "report.txt").write_text(text)


def main():
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "inventory":
        facts = inventory()
        where.write_text(json.dumps(facts, indent=1) + "\n")
        print(shown(facts))
    else:
        summary(where, Path(sys.argv[3]))


if __name__ == "__main__":
    main()
