"""A prefetching pipeline on two streams: one fills buffers while the other works on those before.

    python examples/pipeline.py [--ahead] [--batches N] [--buffers N] [--elements N] [--consumer NAME]

The producer is numba-cuda: its stream copies batch after batch from pinned host memory into a few device buffers. The
consumer is torch, CuPy or Numba, on a stream of its own. dlbridge.convert(lent, library, stream=consumer) hands a
filled buffer over: the consumer's stream waits until the copy is done. When the consumer lets go, the producer's stream
waits until the work is done, and the buffer can be filled again. Both wait on the device, while the host goes on
queueing; so a few buffers are enough for any number of batches.

With --ahead, dlbridge.prefetch does all of this: its thread uploads the next batches, and their memory goes back to the
pool of the device when the work on it is done. By hand, the buffers are yours, and their addresses never change.

Without a GPU it says so, in one line, and ends well.
"""

import argparse
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import numpy as np

import dlbridge

ROUNDS = 50         # how often a batch is read: a buffer that is overwritten meanwhile shows in the sum
WOULD = "a stream fills a few buffers while torch, CuPy or Numba works, on another one, on those that are full"


class Buffer:
    """Device memory of Numba's, which is filled on the producer's stream, lent, and filled again."""

    def __init__(self, cuda: Any, elements: int, stream: Any) -> None:
        self.stream = stream
        self.staging = cuda.pinned_array(elements, "int32")     # else the host would wait for each copy
        self.memory = cuda.device_array(elements, "int32", stream=stream)
        self.copied = cuda.event(timing=False)
        self.borrowed: Callable[[], Any] = lambda: None

    def fill(self, batch: np.ndarray) -> None:
        """Queue the copy of a batch, which the device makes after all that the borrower had queued."""
        assert self.borrowed() is None, "the buffer is still lent: its borrower would read the next batch"
        self.copied.synchronize()       # the host waits here only, for a copy of some batches ago to leave the staging
        self.staging[:] = batch
        self.memory.copy_to_device(self.staging, stream=self.stream)
        self.copied.record(self.stream)

    def lend(self) -> Any:
        """An array that names the producer's stream; dlbridge keeps it until the last consumer lets go."""
        lent = self.memory[:]
        self.borrowed = weakref.ref(lent)
        return lent


# ---- consumers: take() a lent buffer, work() on it in the order of a stream; what is expected is in NumPy's words ----

class Torch:
    def __init__(self) -> None:
        import torch

        self.library, self.stream = torch, torch.cuda.Stream()

    @staticmethod
    def sees_gpu() -> bool:
        import torch

        return torch.cuda.is_available()

    def on_stream(self) -> AbstractContextManager[Any]:
        return self.library.cuda.stream(self.stream)

    def take(self, lent: Any) -> Any:
        return dlbridge.convert(lent, self.library, stream=self.stream, copy=False)

    def address(self, taken: Any) -> int:
        return taken.data_ptr()

    def work(self, taken: Any) -> Any:
        total = self.library.zeros_like(taken)
        for _ in range(ROUNDS):
            total += taken
        return total

    def expected(self, batch: np.ndarray) -> np.ndarray:
        return batch * ROUNDS


class CuPy(Torch):          # in CuPy, take() and work() read the same
    def __init__(self) -> None:
        import cupy

        self.library, self.stream = cupy, cupy.cuda.Stream(non_blocking=True)

    @staticmethod
    def sees_gpu() -> bool:
        import cupy

        return cupy.cuda.is_available()

    def on_stream(self) -> AbstractContextManager[Any]:
        return self.stream

    def address(self, taken: Any) -> int:
        return taken.data.ptr


class Copies:
    """Numba without a kernel, so that no compiler is needed: the work is a copy on the device."""

    def __init__(self) -> None:
        from numba import cuda

        self.library, self.stream = cuda, cuda.stream()

    @staticmethod
    def sees_gpu() -> bool:
        return True         # the producer is Numba too

    def on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext()        # Numba has no current stream: each call is told

    def take(self, lent: Any) -> Any:
        # convert() returns an array of the target's own type as it is; the Tensor is what is put in order here.
        tensor = dlbridge.asdlpack(lent, stream=self.stream, copy=False)
        return dlbridge.convert(tensor, "numba", stream=self.stream, copy=False)

    def address(self, taken: Any) -> int:
        return taken.__cuda_array_interface__["data"][0]

    def work(self, taken: Any) -> Any:
        result = self.library.device_array(taken.shape, taken.dtype, stream=self.stream)
        result.copy_to_device(taken, stream=self.stream)
        return result

    def expected(self, batch: np.ndarray) -> np.ndarray:
        return batch


class Numba(Copies):
    def __init__(self) -> None:
        super().__init__()

        @self.library.jit
        def add(total, batch):
            index = self.library.grid(1)
            if index < batch.size:
                total[index] += batch[index]

        self.add = add

    def work(self, taken: Any) -> Any:
        total = self.library.to_device(np.zeros(taken.shape, taken.dtype), stream=self.stream)
        blocks = (taken.size + 255) // 256
        for _ in range(ROUNDS):
            self.add[blocks, 256, self.stream](total, taken)
        return total

    def expected(self, batch: np.ndarray) -> np.ndarray:
        return batch * ROUNDS


CONSUMERS = {"torch": Torch, "cupy": CuPy, "numba": Numba, "copies": Copies}


def first_that_sees_a_gpu() -> str:
    for name, consumer in CONSUMERS.items():
        try:
            if consumer.sees_gpu():
                return name
        except ImportError:
            continue
    raise AssertionError("Numba sees a GPU, or nothing would run")


# ---- the pipeline ----------------------------------------------------------------------------------------------------

def run(cuda: Any, consumer: Any, batches: Sequence[np.ndarray], buffers: int) -> list[Any]:
    """Take all batches through a few buffers; the results will be ready on the consumer's stream."""
    producer = cuda.stream()
    free = deque(Buffer(cuda, batches[0].size, producer) for _ in range(buffers))
    filled: deque[Buffer] = deque()
    coming = iter(batches)
    results: list[Any] = []
    while len(results) < len(batches):
        while free and (batch := next(coming, None)) is not None:
            free[0].fill(batch)
            filled.append(free.popleft())
        buffer = filled.popleft()
        taken = consumer.take(buffer.lend())
        assert consumer.address(taken) == buffer.memory.__cuda_array_interface__["data"][0], "the batch was copied"
        results.append(consumer.work(taken))
        del taken           # all work that reads the buffer is queued: now the producer's stream waits for it
        free.append(buffer)
    return results


def run_ahead(consumer: Any, batches: Sequence[np.ndarray], depth: int) -> list[Any]:
    """The same by prefetch(), without buffers of our own."""
    with dlbridge.prefetch(batches, consumer.library, device="cuda", depth=depth, stream=consumer.stream) as uploaded:
        return [consumer.work(taken) for taken in uploaded]


def check(consumer: Any, results: Sequence[Any], batches: Sequence[np.ndarray]) -> None:
    """Fetch each result, which waits for it alone, and compare."""
    for index, (result, batch) in enumerate(zip(results, batches, strict=True)):
        values = dlbridge.convert(result, "numpy", device="cpu")
        assert np.array_equal(values, consumer.expected(batch)), f"batch {index} was read too early or too late"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        from numba import cuda
    except ImportError:
        print(f"Nothing to run: numba-cuda is not installed. With it, and a GPU, {WOULD}.")
        return 0
    if not cuda.is_available():
        print(f"Nothing to run: there is no GPU here. On one, {WOULD}.")
        return 0
    name = options.consumer or first_that_sees_a_gpu()
    consumer = CONSUMERS[name]()
    batches = [np.arange(options.elements, dtype="int32") % 1000 + index for index in range(options.batches)]
    with consumer.on_stream():
        start = perf_counter()
        results = run_ahead(consumer, batches, options.buffers) if options.ahead else run(
            cuda, consumer, batches, options.buffers)
        queued = perf_counter()
        check(consumer, results, batches)
    way = f"{options.buffers} ahead" if options.ahead else f"in {options.buffers} buffers of Numba's"
    print(f"{len(batches)} batches of {batches[0].nbytes} bytes {way}, to {name} and back: "
          f"{'' if options.ahead else 'every pointer shared, '}every value right; "
          f"queued in {1000 * (queued - start):.1f} ms, checked after {1000 * (perf_counter() - start):.1f} ms")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ahead", action="store_true", help="let dlbridge.prefetch do it, without buffers of Numba's")
    parser.add_argument("--batches", type=positive, default=32, help="how many to take through (%(default)s)")
    parser.add_argument("--buffers", type=positive, default=3, help="how many may be in flight (%(default)s)")
    parser.add_argument("--elements", type=positive, default=1 << 20, help="int32, of a batch (%(default)s)")
    parser.add_argument("--consumer", choices=CONSUMERS, help="else the first that sees a GPU")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: is not positive")
    return value


if __name__ == "__main__":
    sys.exit(main())
