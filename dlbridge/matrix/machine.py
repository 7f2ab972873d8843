"""The machine and the interpreter that something ran on."""

import os
import platform
from typing import Any


def machine() -> dict[str, Any]:
    """Describe the machine and the interpreter."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpus": cpus(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def cpus() -> int:
    """Count the CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Name the processor as the system does."""
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            names = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown"
