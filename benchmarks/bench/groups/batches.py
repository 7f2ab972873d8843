"""Containers: 64 arrays in a dictionary, a function that is called with arrays of another library, batches ahead."""

from collections.abc import Iterable, Iterator
from time import sleep
from typing import Any

from bench.rows import Group, Row

COUNT = 64
SECONDS = 0.01          # that a batch takes to be read, and to be worked on


def accepting(dlbridge: Any, *to: Any, **keywords: Any) -> Any:
    """Make a function that returns its argument, behind ``dlbridge.accepts``."""
    return dlbridge.accepts(*to, **keywords)(lambda array: array)


def reader(batch: Any) -> Iterator[Any]:
    """Give 25 batches in one buffer."""
    for _ in range(25):
        sleep(SECONDS)
        yield batch


def work(batches: Iterable[Any]) -> None:
    """Work on batches as long as they take to be read."""
    for _ in batches:
        sleep(SECONDS)


def trees(source: str, to: str, names: str, function: str, by_hand: str) -> Row:
    """Make the row of a dictionary of arrays."""
    return Row(f"{COUNT} {source} -> {to}", f'dlbridge.convert_tree({names}, to="{to}")', {
        f"{COUNT} calls": f'for array in {names}.values(): dlbridge.convert(array, to="{to}")',
        "torch.utils._pytree": f"pytree.tree_map({function}, {names})",
        "jax.tree.map": f"jax.tree.map({function}, {names})",
        "by hand": by_hand,
    }, share=0.1)


GROUP = Group("batches", (
    trees("ndarrays", "torch", "ndarrays", "torch.from_dlpack",
          "{name: torch.from_numpy(array) for name, array in ndarrays.items()}"),
    trees("tensors", "numpy", "tensors", "numpy.from_dlpack",
          "{name: array.numpy() for name, array in tensors.items()}"),
    Row("accepts", "to_torch(ndarray)", {"one conversion": 'dlbridge.convert(ndarray, to="torch")'}),
    Row("accepts, returns like", "there_and_back(ndarray)", {
        "two conversions": 'dlbridge.convert(dlbridge.convert(ndarray, to="torch"), to="numpy")',
    }),
    Row("25 batches of 10 ms, ahead", 'work(dlbridge.prefetch(reader(ndarrays), to="torch"))', {
        "one after the other": 'work(dlbridge.convert_tree(batch, to="torch") for batch in reader(ndarrays))',
    }, share=0.01, pinned=False),
), {
    "ndarrays": f"{{str(n): numpy.ones((3, 4), 'f4') for n in range({COUNT})}}",
    "tensors": f"{{str(n): torch.ones(3, 4) for n in range({COUNT})}}",
    "pytree": "torch.utils._pytree",
    "to_torch": "accepting(dlbridge, 'torch')",
    "there_and_back": "accepting(dlbridge, 'torch', returns='like')",
})
