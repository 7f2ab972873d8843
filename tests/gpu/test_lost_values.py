"""Loops that lost values before: a copy that JAX still reads is not overwritten, and memory goes back after its reader.

Each has the library's own call beside it, which has to lose values, or the loop proves nothing.
"""

import os

import numpy as np
import pytest
from gpu.libraries import FAKE, races
from gpu.test_rewriting import late_reads

import dlbridge

pytestmark = pytest.mark.gpu

ROUNDS = int(os.environ.get("DLBRIDGE_GPU_ROUNDS", "200"))


def overwritten(producer, consumer, convert):
    """How many results are of other values than the source had when it was handed over."""
    stream = producer.new_stream()
    count = 4 if consumer.name == "xla" else 1 << 20
    source, results = producer.empty(count, stream), []
    with producer.current(stream):
        for value in range(max(2, ROUNDS // 4)):
            producer.fill(source, value, stream)
            results.append(consumer.used_later(convert(source)))
        lost = sum(not (np.asarray(result) == value).all() for value, result in enumerate(results))
    del source
    return lost + len(races())


JAX = pytest.mark.parametrize(
    ("source", "target"), [("pool", "xla")] if FAKE else [("torch", "jax"), ("cupy", "jax")])


@JAX
def test_a_copy_is_not_overwritten_while_it_is_read(source, target, library):
    producer, consumer = library(source), library(target)
    assert overwritten(producer, consumer, lambda array: dlbridge.convert(array, target)) == 0


@JAX
def test_what_is_shared_is_overwritten(source, target, library):
    """The control: as jax.dlpack.from_dlpack() shares it."""
    producer, consumer = library(source), library(target)
    assert overwritten(producer, consumer, lambda array: dlbridge.convert(array, target, readonly="share"))


def of_bfloat16(array):
    """An array of CuPy whose dtype the interface alone does not name."""
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


class OnlyDlpack:
    """An array of CuPy by its ``__dlpack__`` alone, which says nothing of CuPy's stream."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("where", ["default", "its own"])
@pytest.mark.parametrize("give", [of_bfloat16, OnlyDlpack])
def test_memory_goes_back_after_its_consumer(give, where, library):
    torch = library("torch")
    late, reused = late_reads(library("cupy"), torch, where, "allocated", ROUNDS, lambda stream: {"stream": stream},
                              give=give, take=lambda array: array.view(torch.module.int32))
    assert late == 0
    if give is of_bfloat16:         # … in the order of CuPy's stream; other memory is kept meanwhile
        assert reused, "the allocator never gave the same memory again: this proves nothing"


@pytest.mark.parametrize("where", ["default", "its own"])
@pytest.mark.parametrize("give", [of_bfloat16, OnlyDlpack])
def test_memory_by_torchs_own_import_goes_back_too_early(give, where, library):
    """The control."""
    torch = library("torch")
    late, _ = late_reads(library("cupy"), torch, where, "allocated", ROUNDS, lambda stream: {}, stop=True,
                         give=give, take=lambda array: array.view(torch.module.int32),
                         convert=lambda array, name: torch.module.from_dlpack(array))
    assert late, f"{ROUNDS} rounds, and no late read: this proves nothing"
