"""The time to import dlbridge, beside the time to import NumPy, in fresh interpreters."""

import os
import subprocess
import sys

from bench.rows import Group, Names, Row, Sample, Settings

CHILD = "import time; begun = time.perf_counter(); {}; print(time.perf_counter() - begun)"


def in_child(statement: str, names: Names, settings: Settings) -> Sample:
    """Make a sampler of the nanoseconds of a statement in a new interpreter, without the interpreter's start."""
    # The child finds the modules that this process finds, and none in the working directory.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    # Packages that pip installs have their bytecode; a checkout gets it with the first import, unless this forbids it.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", CHILD.format(statement)]

    def sample() -> float:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout) * 1e9

    sample()                # afterwards the system has the files in its cache
    return sample


GROUP = Group("import", (
    Row("import dlbridge", "import dlbridge", {"import numpy": "import numpy"}, sampler=in_child, share=0.1),
))
