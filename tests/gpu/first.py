"""One library's array as another's first act on the GPU, each in a process of its own: python tests/gpu/first.py

The exit status is 1 where one fails, 2 where no two libraries are here.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAKE = {
    "cupy": "import cupy; array = cupy.arange(16, dtype='int32')",
    "torch": "import torch; array = torch.arange(16, dtype=torch.int32, device='cuda')",
    "numba": "from numba import cuda; array = cuda.to_device(numpy.arange(16, dtype='int32'))",
    "jax": "import jax; array = jax.device_put(numpy.arange(16, dtype='int32'), jax.devices('cuda')[0])",
    "pool": "from gpu import libraries; array = libraries.find('pool').array(numpy.arange(16, dtype='int32'))",
}
PAIRS = (
    ("cupy", "torch"), ("torch", "cupy"), ("cupy", "numba"), ("numba", "torch"), ("torch", "numba"), ("torch", "jax"),
    ("jax", "torch"), ("cupy", "jax"),
)
CODE = """
import os
import sys
import warnings
warnings.simplefilter("ignore")
import numpy
import dlbridge
if os.environ.get("FAKE_DRIVER"):
    import gpu.libraries
try:
    {make}
    __import__({target!r})
except Exception as error:
    sys.exit(f"not run: {{type(error).__name__}}: {{error}}")
made = dlbridge.convert(array, {target!r}, readonly="share")
assert dlbridge.asdlpack(made).data_ptr == dlbridge.asdlpack(array).data_ptr, "another memory"
found = dlbridge.convert(made, "numpy", device="cpu").tolist()
assert found == list(range(16)), found
"""


def main():
    sys.path.insert(0, str(ROOT / "tests"))
    from gpu.libraries import cases

    ran = failed = 0
    for source, target in cases(*PAIRS):
        child = subprocess.run([sys.executable, "-P", "-c", CODE.format(make=MAKE[source], target=target)],
                               capture_output=True, text=True)
        said = (child.stderr.strip().splitlines() or [f"ended with {child.returncode}"])[-1]
        missing = child.returncode and said.startswith("not run")
        print(f"{source} -> {target}: {'passed' if not child.returncode else said if missing else f'FAILED: {said}'}",
              flush=True)
        ran += not missing
        failed += bool(child.returncode) and not missing
    return 1 if failed else 0 if ran else 2


if __name__ == "__main__":
    sys.exit(main())
