"""What importing dlbridge adds to importing NumPy, in fresh interpreters."""

import os
import subprocess
import sys

from dlbridge.bench.rows import Group, Names, Row, Sample, Settings

CHILD = "import time; begun = time.perf_counter(); {}; print(time.perf_counter() - begun)"


def in_child(statement: str, names: Names, settings: Settings) -> Sample:
    """Nanoseconds of a statement in an interpreter of its own, without what that takes to start."""
    # Not from the folder that one stands in.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", CHILD.format(statement)]

    def sample() -> float:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout) * 1e9

    sample()                # the files are in the system's cache from here on
    return sample


GROUP = Group("import", (
    Row("import dlbridge", "import dlbridge", {"import numpy": "import numpy"}, sampler=in_child, share=0.1),
))
