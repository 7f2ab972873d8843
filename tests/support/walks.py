"""Random walks: an array goes through libraries by convert(), and is written, let go and changed on the way.

``python tests/support/walks.py FIRST COUNT`` walks by the seeds from FIRST on, and ends at the first that goes wrong.
"""

import array
import contextlib
import gc
import random
import sys

import jax.numpy as jnp
import numpy as np
import PIL.Image
import pyarrow
import torch

import dlbridge
from dlbridge.libraries.library import applies, library_named

KEYWORDS = ({}, {}, {"copy": True}, {"copy": False}, {"readonly": "error"}, {"detach": True})
TARGETS = ("numpy", "torch", "jax", "pyarrow", "memoryview", "dlbridge", "dlpack")
DTYPES = ("uint8", "int16", "int32", "float16", "float32")
STEPS = 12
# How a source of each kind is made of an ndarray.
SOURCES = {
    "numpy": np.array,
    "read-only numpy": lambda values: np.frombuffer(values.tobytes(), values.dtype).reshape(values.shape),
    "backwards": lambda values: values[::-1].copy()[::-1],
    "torch": lambda values: torch.from_numpy(values.copy()),
    "Parameter": lambda values: torch.nn.Parameter(torch.from_numpy(values.copy()), requires_grad=False),
    "jax": lambda values: jnp.array(values),
    "pyarrow": lambda values: pyarrow.Tensor.from_numpy(values.copy()),
    "Tensor": lambda values: dlbridge.asdlpack(values.copy()),
    "bytes": lambda values: values.astype("uint8").tobytes(),
    "bytearray": lambda values: bytearray(values.astype("uint8").tobytes()),
    "array.array": lambda values: array.array("f", values.astype("float32").ravel().tolist()),
    "Pillow": lambda values: PIL.Image.fromarray(values.astype("uint8")),
}


def change_storage(source):
    """Put other memory under a source that allows it."""
    if isinstance(source, torch.Tensor):
        storage = source.untyped_storage()
        source.data = torch.zeros(1, dtype=source.dtype)
        with contextlib.suppress(RuntimeError):         # a storage that is shared keeps its size
            storage.resize_(0)
    elif isinstance(source, (bytearray, array.array)):
        with contextlib.suppress(BufferError):          # so does a buffer
            del source[:]


def look(result):
    """A read-only ndarray over a result, by the library's own means."""
    if isinstance(result, torch.Tensor):
        return result.detach().numpy()
    return result.to_numpy() if isinstance(result, pyarrow.Tensor) else np.asarray(result)


def is_writable(result):
    """Whether users of its library can write it."""
    if isinstance(result, np.ndarray):
        return result.flags.writeable
    if isinstance(result, (memoryview, dlbridge.Tensor)):
        return not result.readonly
    return isinstance(result, torch.Tensor)


def write(result, value):
    """Put a value into the first element, where a library can."""
    if isinstance(result, (torch.Tensor, np.ndarray)):
        result[(0,) * result.ndim] = value
        return True
    return False


def has_dtype(target, dtype):
    """Whether a library has a type."""
    library = library_named(target)
    return not library.dtypes or any(dtype in fact.value for fact in library.dtypes if applies(fact, library.version))


class Walk:
    """One source, and what came of it: groups of results over one memory each."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.log = []
        shape = self.chance.choice([(3,), (1, 4), (2, 3), (5, 1, 2), (64, 64)])
        values = np.arange(1, 1 + np.prod(shape)).reshape(shape) % 100
        self.name = self.chance.choice(list(SOURCES))
        self.source = SOURCES[self.name](values.astype(self.chance.choice(DTYPES)))
        first = dlbridge.asdlpack(self.source)
        # Each result, the values that it has to have, and whether its memory is one that nobody may write.
        self.expected = np.array(np.asarray(first))
        self.alive = [(first, self.expected, first.readonly)]
        self.say(self.name, self.expected.dtype, self.expected.shape)

    def say(self, *words):
        self.log.append(" ".join(map(str, words)))

    def hop(self):
        source, values, frozen = self.chance.choice(self.alive)
        target = self.chance.choice(TARGETS)
        keywords = self.chance.choice(KEYWORDS)
        self.say("convert", type(source).__name__, target, keywords)
        plan = dlbridge.explain(source, target, **keywords)
        try:
            result = dlbridge.convert(source, target, **keywords)
        except dlbridge.DLBridgeError:
            assert plan.action == "refuse"
            assert keywords.get("copy") is False or "readonly" in keywords or not has_dtype(target, values.dtype.name)
            return
        assert plan.action != "refuse"
        if target == "dlpack":
            result = dlbridge.convert(result, "dlbridge")
        elif target == "pyarrow" and not isinstance(result, pyarrow.Tensor):
            result = dlbridge.asdlpack(result)
        shared = np.shares_memory(look(result), look(source))
        if keywords.get("copy") is not None:
            assert shared is (not keywords["copy"]) or result is source or not values.size
        self.alive.append((result, values if shared else values.copy(), frozen and shared))

    def write(self):
        result, values, _ = self.chance.choice(self.alive)
        if is_writable(result) and write(result, 7):
            self.say("write", type(result).__name__)
            values.reshape(-1)[0] = 7       # seen by all that share these values

    def let_go(self):
        self.say("let go")
        change_storage(self.source)
        self.source = None
        if len(self.alive) > 1:
            del self.alive[self.chance.randrange(len(self.alive))]
        gc.collect(0)

    def check(self):
        for result, values, frozen in self.alive:
            seen = look(result)
            assert (seen.dtype, seen.shape) == (values.dtype, values.shape)
            assert seen.tobytes() == values.tobytes()
            assert not (frozen and is_writable(result))

    def take(self):
        try:
            for _ in range(STEPS):
                self.chance.choices([self.hop, self.write, self.let_go], [6, 3, 1])[0]()
                self.check()
        except BaseException:
            print("\n".join(self.log))
            raise


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        Walk(seed).take()
    print(f"{count} walks")
