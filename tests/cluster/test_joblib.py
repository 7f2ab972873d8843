"""joblib with loky: Tensors as arguments and results of workers."""

import os

import joblib
import ml_dtypes
import numpy as np
import pytest
from joblib.externals import loky
from support import cluster, memory, sharing

import dlbridge

NBYTES = 64 << 20


@pytest.fixture(scope="module")
def parallel():
    with joblib.Parallel(n_jobs=2, backend="loky") as parallel:
        yield parallel


def test_arguments_and_results(parallel):
    tensors = [dlbridge.asdlpack(np.full((100, 100), index, "float32")) for index in range(4)]
    results = parallel(joblib.delayed(cluster.doubled)(tensor) for tensor in tensors)
    assert [type(result) for result in results] == [dlbridge.Tensor] * 4
    assert [np.asarray(result).max() for result in results] == [0, 2, 4, 6]
    assert not any(result.readonly for result in results)


def test_they_go_to_other_processes(parallel):
    there = parallel(joblib.delayed(cluster.described)(dlbridge.asdlpack(np.ones((3, 4)).T)) for _ in range(2))
    assert all((each["type"], each["shape"], each["strides"]) == ("Tensor", (4, 3), (1, 4)) for each in there)
    assert all(each["process"] != os.getpid() for each in there)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn], ids=str)
def test_types_of_ml_dtypes(parallel, dtype):
    source = np.arange(4).astype(dtype)
    result, = parallel([joblib.delayed(cluster.doubled)(dlbridge.asdlpack(source))])
    assert dlbridge.convert(result, "numpy").tobytes() == (source * 2).tobytes()


def test_what_is_kept_on_disk(tmp_path):
    source = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    joblib.dump({"weights": dlbridge.asdlpack(source)}, tmp_path / "kept")
    kept = joblib.load(tmp_path / "kept")["weights"]
    assert kept.strides == (1, 3)
    assert np.array_equal(np.asarray(kept), source)


def test_no_more_memory_than_an_ndarray_takes():
    """As a task's argument, to one worker of the executor that joblib uses. joblib maps large ndarrays before that."""
    def sent(array):
        before, here = executor.submit(memory.reset_peak).result(), memory.reset_peak()
        there = executor.submit(cluster.peak_with, array).result() - before
        return memory.peak() - here, there

    arrays = {"ndarray": np.ones(NBYTES // 8), "Tensor": dlbridge.asdlpack(np.ones(NBYTES // 8))}
    with loky.ProcessPoolExecutor(max_workers=1) as executor:
        sent(np.ones(16))           # what is imported and opened once
        grown = {name: memory.typical(sent, array) for name, array in arrays.items()}
    print(grown)
    assert all(ours <= theirs + 0.05 * NBYTES
               for theirs, ours in zip(grown["ndarray"], grown["Tensor"], strict=True))


def test_shared_memory_goes_by_its_descriptor(parallel):
    whole = dlbridge.shared(np.zeros((2, 3)))
    for turn in range(2):
        assert parallel([joblib.delayed(sharing.add_one)(whole)]) == [[[turn] * 3] * 2]
        assert np.asarray(whole).tolist() == [[turn + 1] * 3] * 2
    made = parallel(joblib.delayed(sharing.made_there)(value) for value in range(3))
    assert [np.asarray(each)[0] for each in made] == [0, 1, 2]
    assert dlbridge.shared(made[0]) is made[0]
