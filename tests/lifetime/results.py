"""Results of every kind, for programs that end while they are alive."""

import jax.numpy
import numpy
import torch

from dlbridge import convert
from dlbridge.testing.producers import Producer

settled = jax.numpy.zeros(64, "float32")
MAKERS = {
    "numpy": lambda: numpy.zeros(64, "float32"),
    "read-only": lambda: bytes(64),
    "buffer": lambda: bytearray(64),
    "torch": lambda: torch.zeros(64),
    "jax": lambda: settled,
    "producer": lambda: Producer(numpy.zeros(64)),
    "capsule": lambda: Producer(numpy.zeros(64)).capsule(),
}
TARGETS = "numpy", "torch", "memoryview", "dlpack", "dlbridge"


def convert_all(without=(), convert=convert, makers=MAKERS, targets=TARGETS):
    """As defaults, so that they are there until the end."""
    return [convert(make(), target) for name, make in makers.items() if name not in without
            for target in targets if target not in without]


convert_all()
convert(settled, "jax")
