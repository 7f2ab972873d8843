"""Dask on a cluster of processes over TCP: a Tensor as its data, and functions of torch over its arrays."""

import functools
import os
import signal
import time

import dask
import dask.array as da
import ml_dtypes
import numpy as np
import pytest
import torch
from distributed import Client, LocalCluster, wait
from support import cluster, memory

import dlbridge

NBYTES = 64 << 20
CLOSE = 0.05 * NBYTES


@pytest.fixture(scope="module")
def client():
    before = set(os.listdir("/dev/shm"))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, protocol="tcp", host="127.0.0.1",
                     dashboard_address=None) as workers,
        Client(workers) as client,
    ):
        yield client
    # The locks of multiprocessing are left where a worker was killed.
    left = {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")} - before
    assert not left


@pytest.fixture
def workers(client):
    client.wait_for_workers(2)
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


# ---- functions of torch over Dask's arrays ---------------------------------------------------------------------------

IMAGE = np.random.default_rng(0).standard_normal((40, 60)).astype("float32")


def test_map_blocks(client):
    result = da.from_array(IMAGE, chunks=(10, 20)).map_blocks(cluster.softened).compute()
    assert type(result) is np.ndarray
    assert np.array_equal(result, torch.tanh(torch.from_numpy(IMAGE)).numpy())


def test_map_overlap(client):
    series = np.arange(1000.0)
    smooth = da.from_array(series, chunks=100).map_overlap(cluster.neighbours, depth=1, boundary=0).compute()
    assert np.allclose(smooth, np.convolve(series, np.full(3, 1 / 3), "same"))


def test_apply_gufunc(client):
    lengths = da.apply_gufunc(cluster.norms, "(i)->()", da.from_array(IMAGE, chunks=(10, 60)),
                              output_dtypes="float32").compute()
    assert np.allclose(lengths, np.linalg.norm(IMAGE, axis=-1))


def test_to_delayed(client):
    blocks = da.from_array(IMAGE, chunks=(10, 60)).to_delayed().ravel()
    tensors = dask.compute(*[dask.delayed(dlbridge.asdlpack)(block) for block in blocks])
    assert {type(tensor) for tensor in tensors} == {dlbridge.Tensor}
    assert np.array_equal(np.concatenate([np.asarray(tensor) for tensor in tensors]), IMAGE)


# ---- Tensors as data -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
                                   ml_dtypes.int4], ids=str)
def test_a_tensor_goes_there_and_back(client, dtype):
    source = np.arange(24).reshape(4, 6).astype(dtype).T
    future = client.scatter(dlbridge.asdlpack(source), hash=False)
    there = client.submit(cluster.described, future, pure=False).result()
    assert (there["type"], there["shape"]) == ("Tensor", (6, 4))
    assert there["process"] != os.getpid()
    back = dlbridge.convert(future.result(), "numpy")
    assert back.dtype == source.dtype
    assert back.tobytes() == source.tobytes()


def test_a_worker_gives_what_it_received_to_torch_as_it_lies(client):
    future = client.scatter(dlbridge.asdlpack(np.ones((300, 500), "float32")), hash=False)
    assert client.submit(cluster.shares_with_torch, future, pure=False).result()


def empty(client):
    deadline = time.monotonic() + 20
    while any(client.run(cluster.data_held).values()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def scattered(client, workers, array):
    empty(client)
    reset = client.run(memory.reset_peak)
    _future, here = memory.growth(lambda: client.scatter(array, workers=workers[:1], hash=False, direct=True))
    return here, client.run(memory.peak)[workers[0]] - reset[workers[0]]


def sent_on(client, workers, array):
    empty(client)
    future = client.scatter(array, workers=workers[:1], hash=False)
    reset = client.run(memory.reset_peak)
    assert client.submit(cluster.total, future, workers=workers[1:], pure=False).result() == NBYTES // 8
    now = client.run(memory.peak)
    return tuple(now[worker] - reset[worker] for worker in workers)


def gathered(client, workers, array, direct=True):
    empty(client)
    future = client.scatter(array, workers=workers[:1], hash=False)
    reset = client.run(memory.reset_peak)
    received, here = memory.growth(lambda: client.gather(future, direct=direct))
    assert received.shape == array.shape
    return client.run(memory.peak)[workers[0]] - reset[workers[0]], here


@pytest.mark.parametrize(("hop", "copies"), [(scattered, (0, 1)), (sent_on, (0, 1)), (gathered, (0, 1))])
def test_no_more_memory_than_an_ndarray_takes(client, workers, hop, copies):
    hop(client, workers, np.ones(NBYTES // 8))          # what is imported and opened once
    theirs = memory.typical(hop, client, workers, np.ones(NBYTES // 8))
    ours = memory.typical(hop, client, workers, dlbridge.asdlpack(np.ones(NBYTES // 8)))
    print(theirs, ours)
    assert ours[0] <= theirs[0] + CLOSE
    assert ours[1] <= theirs[1] + CLOSE
    assert ours[0] <= copies[0] * NBYTES + CLOSE
    assert ours[1] <= copies[1] * NBYTES + CLOSE


def test_the_scheduler_has_nothing_out_of_band(client, workers):
    """It speaks protocol 4 of pickle. Here it is in the client's process, which has the array twice then."""
    hop = functools.partial(gathered, direct=False)
    there, here = memory.typical(hop, client, workers, dlbridge.asdlpack(np.ones(NBYTES // 8)))
    assert there <= 2 * NBYTES + CLOSE
    assert here <= 2 * NBYTES + CLOSE


# ---- a worker that dies ----------------------------------------------------------------------------------------------

def test_results_are_right_after_a_worker_died(client, workers):
    tensors = [dlbridge.asdlpack(np.full(1 << 20, index, "float32")) for index in range(8)]
    processes = client.run(os.getpid)
    inputs = [client.submit(cluster.doubled, tensor, pure=False) for tensor in tensors]
    totals = [client.submit(cluster.slow_total, data, 0.2, pure=False) for data in inputs]
    wait(inputs)
    killed = next(worker for holders in client.who_has(inputs).values() for worker in holders)
    os.kill(processes[killed], signal.SIGKILL)
    assert client.gather(totals) == [2.0 * index * (1 << 20) for index in range(8)]
    client.wait_for_workers(2)
    assert processes[killed] not in client.run(os.getpid).values()
