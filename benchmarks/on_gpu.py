"""What people feel on a GPU, beside each library's own way: python benchmarks/on_gpu.py [GROUP …] [--json FILE].

The groups are uploads, downloads, copies, into_jax, trees, gradients and prefetch. The two statements of a row take
turns in one run; what counts is the ratio of their medians. The device is empty before a statement begins, and what it
gives is there before it ends. "Back" is when the host goes on, which for gradients is long before the device is done.
"""

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
from gpu import driver

import dlbridge

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"1 KiB": KIB, "1 MiB": MIB, "4 MiB": 4 * MIB, "16 MiB": 16 * MIB, "64 MiB": 64 * MIB, "256 MiB": 256 * MIB}


@dataclass
class Row:
    name: str
    ours: Callable[[], Any]
    own: Callable[[], Any]
    nbytes: int = 0


@dataclass
class Measured:
    name: str
    ours_us: float
    own_us: float
    ours_back_us: float
    own_back_us: float
    gigabytes: float        # a second, by dlbridge; 0 where no bytes are counted


def library(name: str) -> Any:
    try:
        return __import__({"numba": "numba.cuda"}.get(name, name), fromlist=["_"])
    except ImportError:
        return None


def measure(row: Row, rounds: int) -> Measured:
    ways = {"ours": row.ours, "own": row.own}
    there: dict[str, list[float]] = {name: [] for name in ways}
    back: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):
        for way in ways.values():
            way()
    for _ in range(rounds):
        for name in random.sample(sorted(ways), 2):
            driver.synchronize()
            begin = perf_counter()
            result = ways[name]()
            back[name].append(perf_counter() - begin)
            driver.synchronize()
            there[name].append(perf_counter() - begin)
            del result
    median = {name: statistics.median(each) * 1e6 for name, each in there.items()}
    host = {name: statistics.median(each) * 1e6 for name, each in back.items()}
    return Measured(row.name, median["ours"], median["own"], host["ours"], host["own"],
                    row.nbytes / median["ours"] / 1e3 if row.nbytes else 0)


# ---- groups ----------------------------------------------------------------------------------------------------------

def uploads() -> Iterator[Row]:
    for size, nbytes in SIZES.items():
        array = np.ones(nbytes // 4, "f4")
        for name in "torch", "cupy", "numba", "jax":
            if (module := library(name)) is not None:
                own = {
                    "torch": lambda module, array: module.from_numpy(array).to("cuda"),
                    "cupy": lambda module, array: module.asarray(array),
                    "numba": lambda module, array: module.to_device(array),
                    "jax": lambda module, array: module.device_put(array, module.devices("gpu")[0]).block_until_ready(),
                }[name]
                yield Row(f"NumPy -> {name}, {size}",
                          lambda array=array, name=name: dlbridge.convert(array, name, device="cuda"),
                          lambda own=own, module=module, array=array: own(module, array), nbytes)
    wide = np.ones((8192, 16384), "f4")
    torch = library("torch")
    if torch is not None:
        for title, source in {"every second column": wide[:, ::2], "transposed": wide.T, "reversed": wide[:, ::-1],
                              "big-endian": wide.astype(">f4")}.items():
            yield Row(f"NumPy -> torch, {title}, {source.nbytes // MIB} MiB",
                      lambda source=source: dlbridge.convert(source, "torch", device="cuda"),
                      lambda source=source: torch.from_numpy(np.ascontiguousarray(source, "f4")).to("cuda"),
                      source.nbytes)
    jax = library("jax")
    if jax is not None:
        source = np.ones(16 * MIB)
        yield Row(f"NumPy float64 -> jax, narrow=True, {source.nbytes // MIB} MiB",
                  lambda: dlbridge.convert(source, "jax", device="cuda", narrow=True),
                  lambda: jax.device_put(source.astype("f4"), jax.devices("gpu")[0]).block_until_ready(), source.nbytes)


def downloads() -> Iterator[Row]:
    for size, nbytes in SIZES.items():
        array = np.ones(nbytes // 4, "f4")
        for name in "torch", "cupy", "numba", "jax":
            if (module := library(name)) is not None:
                source = dlbridge.convert(array, name, device="cuda")
                own = {
                    "torch": lambda source: source.cpu().numpy(),
                    "cupy": lambda source: source.get(),
                    "numba": lambda source: source.copy_to_host(),
                    "jax": lambda source: np.asarray(source.copy()),        # an array keeps what it gave once
                }[name]
                yield Row(f"{name} -> NumPy, {size}",
                          lambda source=source: dlbridge.convert(source, "numpy", device="cpu"),
                          lambda own=own, source=source: own(source), nbytes)
                if name == "torch":
                    into = np.empty_like(array)
                    yield Row(f"torch -> NumPy, out=, {size}",
                              lambda source=source, into=into: dlbridge.convert(
                                  source, "numpy", device="cpu", out=into),
                              lambda source=source, into=into, module=module: module.from_numpy(into).copy_(source),
                              nbytes)


def copies() -> Iterator[Row]:
    torch, cupy = library("torch"), library("cupy")
    if torch is None or cupy is None:
        return
    for size, nbytes in SIZES.items():
        source = torch.ones(nbytes // 4, device="cuda")
        yield Row(f"torch -> cupy, a copy, {size}",
                  lambda source=source: dlbridge.convert(source, "cupy", copy=True),
                  lambda source=source: cupy.from_dlpack(source).copy(), nbytes)


def into_jax() -> Iterator[Row]:
    torch, jax = library("torch"), library("jax")
    if torch is None or jax is None:
        return
    for size, nbytes in SIZES.items():
        source = torch.ones(nbytes // 4, device="cuda")
        yield Row(f"torch -> jax, a copy, {size}", lambda source=source: dlbridge.convert(source, "jax"),
                  lambda source=source: jax.dlpack.from_dlpack(source).copy(), nbytes)
    yield Row("torch -> jax, shared", lambda: dlbridge.convert(source, "jax", readonly="share"),
              lambda: jax.dlpack.from_dlpack(source))
    array = jax.dlpack.from_dlpack(source)
    yield Row("jax -> torch, shared", lambda: dlbridge.convert(array, "torch", readonly="share"),
              lambda: torch.from_dlpack(array))


def trees() -> Iterator[Row]:
    torch, cupy, numba, jax = map(library, ("torch", "cupy", "numba", "jax"))
    small = {f"{number}": np.ones((4, 4), "f4") for number in range(100)}
    each: dict[str, tuple[Any, Callable[[], Any]]] = {
        "torch": (torch, lambda: {name: torch.from_numpy(array).to("cuda") for name, array in small.items()}),
        "cupy": (cupy, lambda: {name: cupy.asarray(array) for name, array in small.items()}),
        "numba": (numba, lambda: {name: numba.to_device(array) for name, array in small.items()}),
        "jax": (jax, lambda: jax.block_until_ready(jax.device_put(small, jax.devices("gpu")[0]))),
    }
    for to, (module, own) in each.items():
        if module is not None:
            yield Row(f"100 small ndarrays -> {to} on the device",
                      lambda to=to: dlbridge.convert_tree(small, to, device="cuda"), own)
    if torch is not None and cupy is not None:
        there = {name: torch.from_numpy(array).to("cuda") for name, array in small.items()}
        yield Row("100 tensors -> CuPy", lambda: dlbridge.convert_tree(there, "cupy"),
                  lambda: {name: cupy.from_dlpack(tensor) for name, tensor in there.items()})


def by_hand(function: Callable[..., Any]) -> Callable[..., Any]:
    """What people write: a function of JAX for tensors, with its gradients, and nothing checked."""
    import jax
    import torch

    forward = jax.jit(lambda *arrays: jax.vjp(function, *arrays))
    backward = jax.jit(lambda vjp, cotangent: vjp(cotangent))

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            result, ctx.vjp = forward(*[jax.dlpack.from_dlpack(tensor.detach()) for tensor in tensors])
            return torch.from_dlpack(result)

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            gradients = backward(ctx.vjp, jax.dlpack.from_dlpack(cotangent.contiguous()))
            return tuple(map(torch.from_dlpack, gradients))

    return ByHand.apply


def gradients() -> Iterator[Row]:
    torch, jax = library("torch"), library("jax")
    if torch is None or jax is None:
        return

    def products(x: Any) -> Any:
        for _ in range(12):
            x = x @ x
            x = x / 4096
        return x

    def network(x: Any, first: Any, second: Any) -> Any:
        return jax.numpy.tanh(x @ first) @ second

    large = torch.rand(4096, 4096, device="cuda", requires_grad=True)
    small = [torch.rand(*shape, device="cuda", requires_grad=True) for shape in ((64, 128), (128, 128), (128, 8))]

    def step(call: Callable[..., Any], *tensors: Any) -> Callable[[], Any]:
        cotangent = torch.ones_like(call(*tensors))
        return lambda: torch.autograd.grad(call(*tensors), tensors, cotangent)

    for name, function, tensors in (
            ("12 products of 4096 x 4096", products, [large]), ("a small network", network, small)):
        call = dlbridge.accepts("jax", returns="like", gradients=True)(function)
        hand = by_hand(function)
        with torch.no_grad():
            yield Row(f"{name}: forward", lambda call=call, tensors=tensors: call(*tensors),
                      lambda hand=hand, tensors=tensors: hand(*tensors))
        yield Row(f"{name}: forward and backward", step(call, *tensors), step(hand, *tensors))


def prefetch() -> Iterator[Row]:
    """Ten batches of 32 MiB that take 10 ms to be read, and a consumer with work for about as long on the device."""
    torch, jax = library("torch"), library("jax")
    array = np.ones((8, MIB), "f4")

    def batches() -> Iterator[Any]:
        for _ in range(10):
            sleep(0.01)
            yield array

    if torch is not None:
        factor = torch.ones(8192, 8192, device="cuda", dtype=torch.float16)

        def work(batch: Any) -> Any:
            for _ in range(4):
                torch.mm(factor, factor)
            return batch.sum()

        yield Row("10 batches, torch", lambda: [work(batch) for batch in dlbridge.prefetch(
            batches(), "torch", device="cuda")],
            lambda: [work(torch.from_numpy(batch).to("cuda")) for batch in batches()], 10 * array.nbytes)
    if jax is not None:
        square = jax.numpy.ones((4096, 4096), "float16")
        # An argument, since XLA may compute with a constant while it compiles.
        products = jax.jit(lambda batch, square: (square @ square @ square @ square @ square)[0, 0] + batch.sum())
        gpu = jax.devices("gpu")[0]
        yield Row("10 batches, jax", lambda: [products(batch, square) for batch in dlbridge.prefetch(
            batches(), "jax", device="cuda")],
            lambda: [products(jax.device_put(batch, gpu), square) for batch in batches()], 10 * array.nbytes)


GROUPS = {group.__name__: group for group in (uploads, downloads, copies, into_jax, trees, gradients, prefetch)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("groups", nargs="*", default=list(GROUPS), help="default: all of them")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--only", default="", help="rows that have this in their name")
    options = parser.parse_args()
    if reason := driver.why_no_gpu():
        print(f"nothing was measured: {reason}")
        return 2
    found: list[Measured | None] = []
    failed = False
    print(f"{'':52}{'dlbridge':>12}{'its own':>12}{'ratio':>7}{'GB/s':>7}{'back':>11}{'its own':>11}")
    for group in options.groups:
        try:
            for row in GROUPS[group]():
                if options.only in row.name:
                    found += measured(row, options.rounds if row.nbytes < 64 * MIB else max(5, options.rounds // 4))
        except Exception as error:      # a library that a row is made of may have no device
            print(f"{group}: {shown(error)}; the rest of it is not measured", flush=True)
            failed = True
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found if each], indent=1) + "\n")
    return 1 if failed or None in found else 0


def measured(row: Row, rounds: int) -> list[Measured | None]:
    """What a row says, which is printed. Another row may go where this one fails: time on a GPU is dear."""
    try:
        each = measure(row, rounds)
    except Exception as error:
        print(f"{row.name:52}{shown(error)}", flush=True)
        return [None]
    speed = f"{each.gigabytes:7.1f}" if each.gigabytes else " " * 7
    print(f"{each.name:52}{each.ours_us:9.0f} us{each.own_us:9.0f} us{each.ours_us / each.own_us:7.2f}{speed}"
          f"{each.ours_back_us:8.0f} us{each.own_back_us:8.0f} us", flush=True)
    return [each]


def shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


if __name__ == "__main__":
    sys.exit(main())
