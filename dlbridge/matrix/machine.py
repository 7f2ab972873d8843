"""The machine and the interpreter that something ran on."""

import os
import platform
from typing import Any


def machine() -> dict[str, Any]:
    """Describe the machine and the interpreter."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpus": len(cpus),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def cpu_name() -> str:
    """Name the processor as the system does."""
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            names = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown"
