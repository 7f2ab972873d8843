"""The throughput of a Tensor through each engine, beside an ndarray's in the same run.

    python benchmarks/engines.py [--paths pickle pipe loky dask ray argument] [--rounds N] [--mebibytes N]

Each round sends two ndarrays and a Tensor, in random order. "Tensor" is its speed as a multiple of the first ndarray's.
"ndarray again" is the same for the second ndarray, so its distance from 1 is the noise. Through a pipe, loky and Dask
an array goes there and back. Ray puts it into its store and gets it, or sends it to a task. Needs the extra "cluster".
"""

import argparse
import multiprocessing
import os
import pickle
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dlbridge

Send = Callable[[Any], Any]


@contextmanager
def by_pickle() -> Iterator[Send]:
    yield lambda array: pickle.loads(pickle.dumps(array, 5))


def echo(connection: Any) -> None:
    while (array := connection.recv()) is not None:
        connection.send(array)


@contextmanager
def by_pipe() -> Iterator[Send]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=echo, args=(theirs,))
    process.start()

    def send(array: Any) -> Any:
        ours.send(array)
        return ours.recv()

    try:
        yield send
        ours.send(None)
    finally:
        ours.close()
        process.join()


def same(array: Any) -> Any:
    return array


@contextmanager
def by_loky() -> Iterator[Send]:
    from joblib.externals import loky

    with loky.ProcessPoolExecutor(max_workers=1) as executor:
        yield lambda array: executor.submit(same, array).result()


@contextmanager
def by_dask() -> Iterator[Send]:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster, \
            Client(cluster) as client:
        yield lambda array: client.gather(client.scatter(array, hash=False, direct=True), direct=True)


@contextmanager
def started_ray() -> Iterator[Any]:
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"       # Ray then listens on the loopback alone
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(address="local", num_cpus=1, object_store_memory=4 << 30, include_dashboard=False,
             logging_level="ERROR", log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def by_ray() -> Iterator[Send]:
    with started_ray() as ray:
        yield lambda array: ray.get(ray.put(array))


@contextmanager
def by_argument() -> Iterator[Send]:
    with started_ray() as ray:
        last = ray.remote(lambda array: float(np.asarray(array).flat[-1]))
        yield lambda array: ray.get(last.remote(array))


PATHS = {"pickle": by_pickle, "pipe": by_pipe, "loky": by_loky, "dask": by_dask, "ray": by_ray,
         "argument": by_argument}


def measured(path: str, rounds: int, nbytes: int) -> dict[str, float]:
    """The median seconds of a round for each of the three."""
    arrays = {"first": np.ones(nbytes // 8), "second": np.ones(nbytes // 8),
              "Tensor": dlbridge.asdlpack(np.ones(nbytes // 8))}
    seconds: dict[str, list[float]] = {name: [] for name in arrays}
    order = random.Random(0)
    with PATHS[path]() as send:
        for name in arrays:
            send(arrays[name])
        for _ in track(range(rounds), path, console=Console(stderr=True), transient=True):
            for name in order.sample(list(arrays), len(arrays)):
                start = perf_counter()
                received = send(arrays[name])
                seconds[name].append(perf_counter() - start)
                del received
    return {name: statistics.median(each) for name, each in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--mebibytes", type=int, default=256)
    given = parser.parse_args()
    table = Table("path", "Tensor", "ndarray again", "ndarray, seconds",
                  title=f"{given.mebibytes} MiB, {given.rounds} rounds: the speed of an ndarray is 1")
    for path in given.paths:
        seconds = measured(path, given.rounds, given.mebibytes << 20)
        table.add_row(path, f"{seconds['first'] / seconds['Tensor']:.2f}",
                      f"{seconds['first'] / seconds['second']:.2f}",
                      f"{seconds['first']:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
