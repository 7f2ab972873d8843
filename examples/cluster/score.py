"""Score more images than a worker can hold: in this process, on Dask or on Ray, with the same numbers.

    python examples/cluster/score.py [--engine none|dask|ray] [--workers N] [--address ADDRESS]
                                     [--images N] [--folder FOLDER] [--way dlbridge|numpy|torch]
    python examples/cluster/score.py --compare [--chart chart.png]

The images lie in files of Arrow, which the example writes first. One task maps a file and augments its images with
torch; another scores them with a model of torch, on whichever worker the engine chooses. Between the two the engine
carries a batch as it carries everything, by pickle.

A way is how arrays get from Arrow to torch, and from torch into the engine and out of it again:

    dlbridge    dlbridge.convert, and a dlbridge.Tensor in between
    numpy       to_numpy_ndarray, tensor.numpy() and torch.from_numpy, with an ndarray in between
    torch       torch.tensor, with a torch.Tensor in between

--compare runs every way on both engines with 1, 2 and 4 workers, and measures what each hop copies of a batch.
"""

import argparse
import ctypes
import functools
import hashlib
import itertools
import os
import statistics
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dlbridge

SIZE, WINDOW, CLASSES = 96, 88, 10
IMAGES_PER_FILE = 256           # which is a batch
WORKER_MEMORY = 1 << 30         # what a worker of Dask may hold; 50,000 images have 1.3 GiB
M_MMAP_THRESHOLD = -3           # malloc.h: larger blocks are mapped each by itself
HOPS = ("Arrow to torch", "into the engine", "out of the engine", "to the model")


# ---- the files -------------------------------------------------------------------------------------------------------

def write_files(folder: Path, images: int) -> list[Path]:
    """The paths of files with so many images; those that are there already are kept."""
    paths = []
    for index, start in enumerate(range(0, images, IMAGES_PER_FILE)):
        count = min(IMAGES_PER_FILE, images - start)
        paths.append(folder / f"{index:05}-{count}.arrow")
        if not paths[-1].exists():
            write_file(paths[-1], index, count)
    return paths


def write_file(path: Path, index: int, count: int) -> None:
    tensors = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(painted(np.random.default_rng(index), count))
    batch = pyarrow.record_batch({"image": tensors})
    unfinished = path.with_suffix(".unfinished")
    with pyarrow.OSFile(str(unfinished), "wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    unfinished.rename(path)


def painted(random: np.random.Generator, count: int) -> np.ndarray:
    """Pictures of a disc on a ground, with noise: uint8 of shape (count, SIZE, SIZE, 3)."""
    height, width = np.mgrid[:SIZE, :SIZE]
    centre, radius = random.integers(20, 76, (2, count, 1, 1)), random.integers(8, 32, (count, 1, 1))
    disc = (height - centre[0]) ** 2 + (width - centre[1]) ** 2 < radius**2
    colours = random.integers(0, 224, (2, count, 1, 1, 3), dtype="uint8")
    noise = random.integers(0, 32, (count, SIZE, SIZE, 3), dtype="uint8")
    return np.where(disc[..., None], *colours) + noise


def column_of(path: Path) -> Any:
    """The images of a file as Arrow has them: their memory is the file, which is mapped."""
    return pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).get_batch(0).column("image")


# ---- the ways --------------------------------------------------------------------------------------------------------

def quietly_from_numpy(array: np.ndarray) -> torch.Tensor:
    """torch.from_numpy shares read-only memory, and warns that the tensor can be written all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


@dataclass(frozen=True)
class Way:
    """How images get from Arrow to torch, and how a tensor of torch goes through an engine."""

    read: Callable[[Any], torch.Tensor]
    pack: Callable[[torch.Tensor], Any]
    unpack: Callable[[Any], torch.Tensor]


def shared(array: Any) -> torch.Tensor:
    """The model and the augmentation do not write into what they are given, so read-only memory can be shared."""
    return dlbridge.convert(array, to="torch", readonly="share")


def way_named(name: str) -> Way:
    ways = {
        "dlbridge": Way(shared, dlbridge.asdlpack, shared),
        "numpy": Way(lambda column: quietly_from_numpy(column.to_numpy_ndarray()), torch.Tensor.numpy,
                     quietly_from_numpy),
        "torch": Way(lambda column: torch.tensor(column.to_numpy_ndarray()), lambda tensor: tensor,
                     lambda tensor: tensor),
    }
    return ways[name]


WAYS = ("dlbridge", "numpy", "torch")


# ---- the two tasks ---------------------------------------------------------------------------------------------------

def augmented(way: str, path: Path, index: int) -> Any:
    """A batch of a file: a window of each image, half of them mirrored, each with a brightness of its own."""
    torch.set_num_threads(1)            # a worker uses one core; else the threads of all workers compete
    images = way_named(way).read(column_of(path))
    return way_named(way).pack(augment(images, torch.Generator().manual_seed(index)))


def augment(images: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Float32 of shape (count, 3, WINDOW, WINDOW); the channels stay next to each other in memory."""
    top, left = torch.randint(0, SIZE - WINDOW + 1, (2,), generator=random).tolist()
    window = images[:, top:top + WINDOW, left:left + WINDOW]
    mirrored = torch.rand(len(images), 1, 1, 1, generator=random) < 0.5
    brightness = 0.8 + 0.4 * torch.rand(len(images), 1, 1, 1, generator=random)
    return (torch.where(mirrored, window.flip(2), window) * (brightness / 255)).permute(0, 3, 1, 2)


def scores(way: str, weights: dict[str, Any], batch: Any) -> np.ndarray:
    """The probability of each class: float32 of shape (count, CLASSES)."""
    torch.set_num_threads(1)
    with torch.device("meta"):
        model = network()
    model.load_state_dict({name: way_named(way).unpack(weight) for name, weight in weights.items()}, assign=True)
    with torch.inference_mode():
        # Dask loses an ndarray's strides. With the same strides for all, the numbers are the same in every bit.
        pixels = way_named(way).unpack(batch).contiguous(memory_format=torch.channels_last).sub(0.45).div_(0.25)
        return dlbridge.convert(model(pixels).softmax(1), to="numpy", detach=True)


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(8, 16, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(256, CLASSES),
    )


def initial_weights(way: str) -> dict[str, Any]:
    torch.manual_seed(0)
    return {name: way_named(way).pack(weight) for name, weight in network().state_dict().items()}


# ---- the engines: submit() begins a task, result() waits for it, and put() sends what every task needs ---------------

class Here:
    """No engine: the tasks run in this process."""

    def __init__(self, workers: int, address: str | None) -> None:
        self.under_way = 1

    def put(self, value: Any) -> Any:
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def result(self, task: Any) -> Any:
        return task

    def close(self) -> None:
        pass


class Dask:
    """Processes of Dask that speak TCP: of this machine, or a cluster's."""

    def __init__(self, workers: int, address: str | None) -> None:
        from distributed import Client, LocalCluster

        self.under_way = 2 * workers
        self.opened = ExitStack()
        cluster = address or self.opened.enter_context(LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=WORKER_MEMORY, host="127.0.0.1",
            dashboard_address=None))
        self.client = self.opened.enter_context(Client(cluster))

    def put(self, value: Any) -> Any:
        return self.client.scatter([value], broadcast=True, hash=False)[0]

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.client.submit(function, *arguments, pure=False)

    def result(self, task: Any) -> Any:
        return task.result()

    def close(self) -> None:
        self.opened.close()


class Ray:
    """Processes of Ray that share a store of objects: of this machine, or a cluster's."""

    def __init__(self, workers: int, address: str | None) -> None:
        # Ray reads these as it is imported. By the first, it listens on the loopback alone if it starts a node itself.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray = ray
        self.remote = functools.cache(ray.remote)       # a remote function is sent to the workers each time it is made
        self.under_way = 2 * workers
        own = {} if address else {"num_cpus": workers, "object_store_memory": 512 << 20, "include_dashboard": False,
                                  "_node_ip_address": "127.0.0.1"}
        # The workers import from the current folder. At the top of a checkout that is a dlbridge which is not built.
        before = Path.cwd()
        os.chdir(Path(__file__).parent)
        ray.init(address=address or "local", logging_level="ERROR", log_to_driver=False, **own)
        os.chdir(before)

    def put(self, value: Any) -> Any:
        return self.ray.put(value)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.remote(function).remote(*arguments)

    def result(self, task: Any) -> Any:
        return self.ray.get(task)

    def close(self) -> None:
        self.ray.shutdown()


ENGINES: dict[str, Callable[[int, str | None], Any]] = {"none": Here, "dask": Dask, "ray": Ray}


# ---- the run ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Run:
    engine: str
    workers: int
    way: str


@dataclass(frozen=True)
class Scored:
    """What came out of a run: scores of shape (images, CLASSES), and how long the tasks took."""

    run: Run
    scores: np.ndarray
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.scores) / self.seconds

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.scores).hexdigest()[:16]


def started(engine: str, workers: int, address: str | None = None) -> AbstractContextManager[Any]:
    return closing(ENGINES[engine](workers, address))


def score(engine: Any, run: Run, paths: list[Path]) -> Scored:
    weights = engine.put(initial_weights(run.way))
    deque(results(engine, run.way, weights, paths[:run.workers]), maxlen=0)     # new workers import torch, for seconds
    start = perf_counter()
    batches = track(results(engine, run.way, weights, paths), f"{run.engine}, {run.way}, {run.workers} workers",
                    total=len(paths), console=Console(stderr=True), transient=True)
    return Scored(run, np.concatenate(list(batches)), perf_counter() - start)


def results(engine: Any, way: str, weights: Any, paths: list[Path]) -> Iterator[np.ndarray]:
    """The scores of each file in turn. A few files are under way at a time, so that few batches are in memory."""
    waiting: deque[Any] = deque()
    for index, path in enumerate(paths):
        waiting.append(engine.submit(scores, way, weights, engine.submit(augmented, way, path, index)))
        if len(waiting) >= engine.under_way:
            yield engine.result(waiting.popleft())
    while waiting:
        yield engine.result(waiting.popleft())


# ---- the comparison --------------------------------------------------------------------------------------------------

def copied_bytes(name: str, path: Path) -> dict[str, int]:
    """The bytes by which this process grows in each hop of a batch through Dask, without the connection."""
    from distributed.protocol import deserialize, serialize

    way, column = way_named(name), column_of(path)
    int(column.storage.flatten().to_numpy().sum())          # the file's pages are in memory then, and are not counted
    images, read = growth(way.read, column)
    batch = augment(images, torch.Generator().manual_seed(0))
    frames, packed = growth(lambda: serialize(way.pack(batch)))
    received, arrived = growth(deserialize, *frames)
    _, unpacked = growth(way.unpack, received)
    return dict(zip(HOPS, (read, packed, arrived, unpacked), strict=True))


def typical_bytes(name: str, path: Path) -> dict[str, float]:
    """The median of some batches, since the first imports what is needed, and the system may take pages in between."""
    batches = [copied_bytes(name, path) for _ in range(7)]
    return {hop: statistics.median(batch[hop] for batch in batches) for hop in HOPS}


def growth(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a function returns, and the most bytes that it added to the resident memory, which Linux keeps track of."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    result = function(*arguments)
    return result, resident("VmHWM") - before


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def compare(paths: list[Path], workers: list[int], chart: Path | None) -> str:
    """Run every way, print what is measured, and give the digest that all have in common."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)    # else memory that was freed before hides a copy
    copied = {way: typical_bytes(way, paths[0]) for way in WAYS}
    rates: dict[Run, float] = {}
    digests = set()
    for name, count in [("none", 1), *itertools.product(("dask", "ray"), workers)]:
        runs = [Run(name, count, way) for way in WAYS]
        with started(name, count) as engine:
            rounds = [score(engine, run, paths) for run in runs + runs[::-1] + runs]    # no way is always the first
        digests |= {scored.digest for scored in rounds}
        rates |= {run: statistics.median(scored.rate for scored in rounds if scored.run == run) for run in runs}
    print_comparison(rates, copied)
    if chart is not None:
        draw(rates, copied, chart)
    if len(digests) != 1:
        raise SystemExit(f"the numbers differ: {digests}")
    return digests.pop()


def print_comparison(rates: dict[Run, float], copied: dict[str, dict[str, float]]) -> None:
    rate_table = Table("engine", "workers", *WAYS, title="images per second")
    for engine, workers in dict.fromkeys((run.engine, run.workers) for run in rates):
        rate_table.add_row(engine, str(workers), *[f"{rates[Run(engine, workers, way)]:,.0f}" for way in WAYS])
    copy_table = Table("hop", *WAYS, title=f"MB that each hop copies, of {IMAGES_PER_FILE} images")
    for hop in HOPS:
        copy_table.add_row(hop, *[f"{copied[way][hop] / 1e6:.1f}" for way in WAYS])
    for table in (rate_table, copy_table):
        Console().print(table)


def draw(rates: dict[Run, float], copied: dict[str, dict[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = dict(zip(WAYS, ("#1b6ca8", "#e08e2b", "#8a8a8a"), strict=True))
    for way in WAYS:
        for engine, style in (("dask", "o-"), ("ray", "s--")):
            points = {run.workers: rate for run, rate in rates.items() if (run.engine, run.way) == (engine, way)}
            left.plot(points.keys(), points.values(), style, color=colours[way], label=f"{way}, {engine.capitalize()}")
    left.axhline(rates[Run("none", 1, "dlbridge")], color="#33383d", linewidth=0.8, linestyle=":", label="no engine")
    left.set(title="Images per second", xlabel="workers", ylim=(0, None), xticks=sorted({run.workers for run in rates}))
    left.legend(frameon=False, fontsize=8)
    height = 0.26
    for place, way in enumerate(WAYS):
        bars = right.barh([hop + (place - 1) * height for hop in range(len(HOPS))],
                          [copied[way][hop] / 1e6 for hop in HOPS], height, color=colours[way], label=way)
        right.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    right.set(title="MB that each hop through Dask copies per batch", yticks=range(len(HOPS)), yticklabels=HOPS)
    right.invert_yaxis()
    right.margins(x=0.12)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


# ---- the command -----------------------------------------------------------------------------------------------------

def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default="none")
    parser.add_argument("--way", choices=WAYS, default="dlbridge")
    parser.add_argument("--workers", type=positive, nargs="+",
                        help="how many are kept busy: 2 by default; --compare takes several, by default 1 2 4")
    parser.add_argument("--address", help="of a running cluster, all of whose nodes see --folder; else one starts here")
    parser.add_argument("--images", type=positive, default=50_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dlbridge-images")
    parser.add_argument("--compare", action="store_true", help="every way, on both engines")
    parser.add_argument("--chart", type=Path, help="where --compare draws what it measured")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    paths = write_files(given.folder.absolute(), given.images)
    if given.compare:
        print(f"digest {compare(paths, given.workers or [1, 2, 4], given.chart)}")
        return
    workers = 1 if given.engine == "none" else (given.workers or [2])[0]
    with started(given.engine, workers, given.address) as engine:
        scored = score(engine, Run(given.engine, workers, given.way), paths)
    classes = np.bincount(scored.scores.argmax(1), minlength=CLASSES)
    print(f"{len(scored.scores):,} images in {scored.seconds:.1f} s, {scored.rate:,.0f} per second")
    print(f"classes {' '.join(map(str, classes))}, digest {scored.digest}")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    main()
