"""A million hand-overs, and nothing is left behind: python tests/gpu/soak.py [--count N] [--json FILE].

After a warm-up the device's free memory, the libraries' allocators, the process's resident memory and, where a C
compiler can build ``events.c``, the number of live CUDA events are the same at the end as before. The exit status is 1
where they are not, 2 where nothing could be run.
"""

import argparse
import gc
import json
import os
import resource
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAIRS = (
    ("cupy", "torch"), ("torch", "cupy"), ("numba", "torch"), ("torch", "numba"), ("cupy", "numba"), ("numba", "cupy"),
    ("cupy", "jax"), ("torch", "jax"),
)
BATCH = 200             # hand-overs between two waits for the device
# An event that is left behind takes some hundreds of bytes of the host's memory.
HOST_BYTES_A_CALL = 16
HOST_BYTES = 8 << 20    # allocators of the libraries grow by themselves


def resident():
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def live_events():
    """CUDA events that were made and not destroyed, where the counting library stands before the driver; else None."""
    import ctypes

    try:
        return ctypes.CDLL("libcuda.so.1").dlbridge_live_events()
    except (OSError, AttributeError):
        return None


def readings(*libraries):
    from gpu import driver

    gc.collect()
    driver.synchronize()
    return {
        "device memory free": driver.free_memory(),
        "live events": live_events(),
        **{f"{library.name} allocated": library.allocated() for library in libraries},
    }


def soak(producer, consumer, count):
    """Convert to and fro on two streams, keeping the last few results, as users do."""
    from gpu import driver, libraries

    import dlbridge

    writing, reading = producer.new_stream(), consumer.new_stream()
    array = producer.array(libraries.sample("float32", (64,)))
    if producer.name == "numba":
        array = array.bind(writing)
    held = [None] * 8
    with producer.current(writing), consumer.current(reading):
        for i in range(count):
            held[i % 8] = dlbridge.convert(array, consumer.name, readonly="share")
            if i % BATCH == 0:
                driver.synchronize()


def measure(source, target, count):
    """Soak one pair; what changed is in ``changed``."""
    from gpu import libraries

    producer, consumer = libraries.find(source), libraries.find(target)
    soak(producer, consumer, max(1000, count // 20))
    before, host = readings(producer, consumer), resident()
    start = time.perf_counter()
    soak(producer, consumer, count)
    seconds = time.perf_counter() - start
    after, grown = readings(producer, consumer), resident() - host
    changed = [f"{name}: {before[name]} -> {after[name]}" for name in before if before[name] != after[name]]
    if grown > HOST_BYTES + HOST_BYTES_A_CALL * count:
        changed.append(f"resident memory grew by {grown} bytes")
    return {"count": count, "seconds": seconds, "host_bytes": grown, "events_counted": after["live events"] is not None,
            "changed": changed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(",")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--count", type=int, default=1_000_000, help="hand-overs in all (default: %(default)s)")
    options = parser.parse_args()

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sys.path.insert(0, str(ROOT / "tests"))
    from gpu import driver, libraries

    if reason := driver.why_no_gpu():
        print(f"nothing was soaked: {reason}")
        return 2
    results = {}
    warnings.simplefilter("ignore")
    pairs = libraries.cases(*PAIRS)
    for source, target in pairs:
        name = f"{source} -> {target}"
        try:
            result = measure(source, target, options.count // len(pairs))
        except libraries.Unusable as reason:
            result = {"missing": str(reason)}
        except Exception as error:          # one pair that fails leaves the others to be soaked
            result = {"changed": [f"{type(error).__name__}: {error}"]}
        results[name] = result
        print(f"{name:18} {described(result)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if all("missing" in result for result in results.values()):
        return 2
    return int(any(result.get("changed") for result in results.values()))


def described(result):
    if "missing" in result:
        return f"not run: {result['missing']}"
    if result["changed"]:
        return f"CHANGED: {'; '.join(result['changed'])}"
    events = "" if result["events_counted"] else " (events not counted)"
    return f"{result['count']} hand-overs in {result['seconds']:.1f} s, nothing left behind{events}"


if __name__ == "__main__":
    sys.exit(main())
