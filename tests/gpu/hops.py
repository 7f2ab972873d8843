"""Random chains of hand-overs through all libraries, every value checked: python tests/gpu/hops.py [--seconds N].

Each hop converts an array to another library, or to a Tensor first, on the streams that its thread has for each of
them; lets it go at once; has its consumer read it late; and writes other values into memory that was let go. The exit
status is 1 where a value is wrong, 2 where nothing could be run.
"""

import argparse
import os
import random
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POISON = -1
LONGEST = 6                     # hops of a chain
SIZES = (4, 1000, 1 << 16, 1 << 20)
TORCH_LIKE = ("torch", "cupy", "numba", "pool")     # whose arrays may be written to


class Thread(threading.Thread):
    """The chains of one thread, with streams of its own."""

    def __init__(self, libraries, seed, until):
        super().__init__(daemon=True)
        self.libraries, self.until = libraries, until
        self.choice = random.Random(seed)
        self.hops, self.wrong, self.errors, self.unordered = 0, Counter(), [], Counter()

    def run(self):
        try:
            self.streams = {library.name: library.new_stream() for library in self.libraries}
            while time.monotonic() < self.until and len(self.errors) < 3:
                self.chain(self.choice.randrange(1 << 30))
        except Exception:
            self.errors.append(traceback.format_exc())

    def chain(self, value):
        """One value, from library to library; the names of the way are counted where it arrives as another one."""
        from dlbridge.testing import unordered_releases

        producer = self.choice.choice(self.libraries)
        count, way = self.choice.choice(SIZES), [producer.name]
        held = [self.made(producer, count, value)]          # nothing else has a reference to it
        for _ in range(self.choice.randint(1, LONGEST)):
            consumer = self.choice.choice(self.libraries)
            before = unordered_releases()
            try:
                held.append(self.hop(producer, consumer, held, way))
                self.unordered[f"{producer.name} -> {way[-1]}"] += unordered_releases() - before
            except Exception:
                self.errors.append(f"{' -> '.join(way)}\n{traceback.format_exc()}")
                return
            self.hops += 1
            producer = consumer
        with producer.current(self.streams[producer.name]):
            found = producer.values(held.pop())
        if not (found == value).all():
            self.wrong[" -> ".join(way)] += 1

    def made(self, library, count, value):
        import numpy as np

        stream = self.streams[library.name]
        if library.name == "jax":
            return library.module.numpy.full(count, value, np.int32, device=library.devices[0])
        array = library.empty(count, stream)
        if self.choice.random() < 0.3:
            library.spin(stream)
        library.fill(array, value, stream)
        return array.bind(stream) if library.name == "numba" else array

    def hop(self, producer, consumer, held, way):
        """Hand the array over, read it late, and let it go; its memory is written again as soon as it comes back."""
        import dlbridge

        array = held.pop()
        reading, count = self.streams[consumer.name], array.size if isinstance(array.size, int) else array.numel()
        keywords = {"readonly": "share"} if consumer.name in TORCH_LIKE else {}
        if self.choice.random() < 0.2:
            keywords["copy"] = True
        # Numba has no current stream; and of pool's dlbridge knows the handle alone, which could be stale.
        if consumer.name in ("numba", "pool") or (reading is not None and self.choice.random() < 0.5):
            keywords["stream"] = reading
        through = self.choice.random() < 0.2
        way.append(f"Tensor -> {consumer.name}" if through else consumer.name)
        with producer.current(self.streams[producer.name]), consumer.current(reading):
            if through:
                array = dlbridge.asdlpack(array)
            received = dlbridge.convert(array, consumer.name, **keywords)
            del array
            if consumer.name in TORCH_LIKE and self.choice.random() < 0.5:
                consumer.spin(reading)
            copy = consumer.copied(received, reading)
            del received
        for library in (producer, consumer):
            if library.name in TORCH_LIKE and library.name != "numba":      # whose memory is the driver's
                stream = self.streams[library.name]
                library.fill(library.empty(count, stream), POISON, stream)
        if producer.name == "jax":
            self.made(producer, count, POISON)
        return copy.bind(reading) if consumer.name == "numba" else copy


def chains(libraries, threads, seconds, seed):
    """Run chains in so many threads, and say what came of them."""
    from gpu.libraries import races

    from dlbridge.testing import unordered_releases

    before, until = unordered_releases(), time.monotonic() + seconds
    running = [Thread(libraries, seed + index, until) for index in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    wrong = sum((each.wrong for each in running), Counter())
    errors = [error for each in running for error in each.errors]
    print(f"{threads} {'thread ' if threads == 1 else 'threads'} {sum(each.hops for each in running):8} hops, "
          f"{sum(wrong.values())} chains wrong, {len(errors)} errors, "
          f"{unordered_releases() - before} releases without an order", flush=True)
    if threads == 1:
        for way, count in running[0].unordered.most_common(5):
            if count:
                print(f"  {count} without an order: {way}")
    for way, count in wrong.most_common(5):
        print(f"  WRONG {count}: {way}")
    for error in list(dict.fromkeys(errors))[:3]:
        print(f"  ERROR {error}")
    found = races()
    for race in found[:5]:
        print(f"  {race}")
    return bool(wrong or errors or found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--seconds", type=float, default=30, help="of each run (default: %(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 8], help="a run for each (default: 1 8)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    os.environ.setdefault("DLBRIDGE_GPU_SPIN_MS", "0.5")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sys.path.insert(0, str(ROOT / "tests"))
    from gpu import driver
    from gpu import libraries as known

    if reason := driver.why_no_gpu():
        print(f"nothing was run: {reason}")
        return 2
    warnings.simplefilter("ignore")
    found = []
    for name in known.CLASSES:
        try:
            library = known.find(name)
            if getattr(library, "why_no_kernels", ""):
                raise known.Unusable(library.why_no_kernels)
            found.append(library)
        except known.Unusable as reason:
            print(f"without {name}: {reason}")
    if len(found) < 2:
        return 2
    failed = [chains(found, threads, options.seconds, options.seed) for threads in options.threads]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
