"""What ``collate`` does."""

import functools
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dlbridge._core.route import target_name
from dlbridge.convert import convert
from dlbridge.errors import UnsupportedError, full_name, refusal
from dlbridge.trees.containers import Container, container_of
from dlbridge.trees.failure import Failure, leaves, name_copies, report
from dlbridge.trees.leaf import OTHER, role_of
from dlbridge.trees.leaves import Takers, takers
from dlbridge.trees.walk import map_leaves
from dlbridge.watch import bytes_of, note_by_library, pending, watching


def collate(samples: Iterable[Any]) -> Any:
    """Stack the samples of a batch, as :func:`dlbridge.collate`."""
    target_name("torch")
    samples = samples if type(samples) is list else list(samples)
    try:
        return stack_alike(samples, "")
    finally:
        if pending:
            name_copies([("samples", samples)])


def stack_alike(samples: list[Any], path: str) -> Any:
    """Stack samples: containers part by part, as torch does its own, and numbers of one type of NumPy at once.

    ``path`` is what is written behind a sample of the batch to get one of these.
    """
    kinds = {*map(type, samples)}
    kind: Any = type(samples[0]) if samples else None
    if len(kinds) == 1 and kind in NUMBERS:
        return stacked(stack_numbers(samples), samples, path)
    if kinds <= torchs_own():
        return stacked(stack(samples, path), samples, path)
    if len(kinds) == 1 and kind is dict:
        return {key: stack_alike(values_at(samples, key, path), f"{path}[{key!r}]") for key in samples[0]}
    if len(kinds) == 1 and is_sequence(kind) and len({*map(len, samples)}) == 1:
        parts = [stack_alike(list(parts), f"{path}[{index}]") for index, parts in enumerate(zip(*samples, strict=True))]
        return kind(*parts) if hasattr(kind, "_fields") else parts
    if len(kinds) == 1 and not isinstance(samples[0], (Mapping, Sequence)) and (containers := taken_apart(samples)):
        return stack_containers(samples, containers, path)
    tensors = [as_tensors(sample, path) for sample in samples]
    try:
        return stacked(stack(tensors, path), samples, path)
    except TypeError as error:
        # A container of torch's may have others in it.
        if len(kinds) == 1 and isinstance(samples[0], (Mapping, Sequence)) and (containers := taken_apart(tensors)):
            return stack_containers(tensors, containers, path)
        other = next((sample for sample in samples if type(sample) is not type(samples[0])), None)
        beside = "" if other is None else f", and one is of type {full_name(type(other))}"
        raise refusal(UnsupportedError, "collate", f"samples[…]{path}", f"of type {full_name(type(samples[0]))}",
                      f"cannot be stacked{beside}: {error.__cause__}", "leave it out, or stack it yourself") from error


def stack(samples: list[Any], path: str) -> Any:
    from torch.utils.data import default_collate

    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        if type(error) not in (RuntimeError, TypeError):    # a device without memory left, for example
            raise
        raise type(error)(f"collate: samples[…]{path}: {error}") from error


def values_at(samples: list[dict[Any, Any]], key: Any, path: str) -> list[Any]:
    for index, sample in enumerate(samples):
        if key not in sample:
            raise KeyError(f"collate: samples[{index}]{path}: has no {key!r}, which the first sample has")
    return [sample[key] for sample in samples]


# ---- containers that torch does not know, or not whole ---------------------------------------------------------------

def taken_apart(samples: list[Any]) -> list[Container] | None:
    """How samples of one type are taken apart, and made again; None of those that are no containers."""
    if role_of(samples[0]) != OTHER:
        return None
    containers = [container for sample in samples if (container := container_of(sample)) is not None]
    return None if len(containers) < len(samples) or containers[0].is_read else containers


def stack_containers(samples: list[Any], containers: list[Container], path: str) -> Any:
    """A container like the first sample."""
    pairs = list(zip(samples, containers, strict=True))
    parts = [dict(zip(container.labels(sample), container.values(sample), strict=True)) for sample, container in pairs]
    other = next((index for index, each in enumerate(parts) if each.keys() != parts[0].keys()), None)
    if other is not None:
        raise refusal(UnsupportedError, "collate", f"samples[{other}]{path}", f"of type {full_name(type(samples[0]))}",
                      f"has the parts {[*parts[other]]}, and the first one {[*parts[0]]}", "give them the same parts")
    made = [stack_alike([each[label] for each in parts], path + label) for label in parts[0]]
    return containers[0].remake(samples[0], made)


NUMBERS = {np.dtype(letter).type for letter in "?bBhHiIlLqQefdFD"}      # NumPy's numbers that torch has too


def is_sequence(kind: type[Any]) -> bool:
    return kind in (tuple, list) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def stacked(batch: Any, samples: list[Any], path: str) -> Any:
    """The batch, which is noted as a copy of its samples, while somebody watches."""
    if watching and type(samples[0]) not in (bool, int, float, str, bytes):
        note_by_library(samples[0], "torch", sum(bytes_of(leaf) for _, leaf in leaves("", batch)),
                        "samples are stacked into one batch", "nothing to do: collate stacks them", f"[…]{path}")
    return batch


def as_tensors(sample: Any, path: str) -> Any:
    """A sample with torch's tensors. What is read-only is shared too, since only copies leave :func:`collate`."""
    try:
        return map_leaves(sharing(), sample, {})
    except Failure as failure:
        report(failure, [(path, sample)], passes=False)


@functools.cache
def sharing() -> Takers:
    return takers("collate", "torch", "pass", "raise", {"readonly": "share"})


@functools.cache
def torchs_own() -> set[type]:
    """What torch stacks itself, or leaves as it is; numbers of several types as well as those of one."""
    return {int, float, bool, str, bytes, importlib.import_module("torch").Tensor, *NUMBERS}


def stack_numbers(numbers: list[Any]) -> Any:
    from torch.utils.data import get_worker_info

    stacked: Any = convert(np.array(numbers), "torch")
    return stacked if get_worker_info() is None else stacked.share_memory_()
