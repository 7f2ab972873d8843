"""Ray on this machine: Tensors in its store, shared by its workers without a copy."""

import os
import select
import sys
import time

import ml_dtypes
import numpy as np
import pytest
import ray
import torch
from fake_driver.harness import in_child
from support import cluster

import dlbridge
from dlbridge.processes import ray_transport

NBYTES = 64 << 20
CLOSE = 0.05 * NBYTES

Reader = ray.remote(cluster.Reader)


@pytest.fixture(scope="module", autouse=True)
def running(tmp_path_factory):
    before = set(os.listdir("/dev/shm"))
    # RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER: without it, Ray listens on every interface. Its files go to HOME and /tmp.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))       # the workers import from the current folder too
        ray.init(num_cpus=10, object_store_memory=512 << 20, include_dashboard=False, logging_level="ERROR",
                 log_to_driver=False, _node_ip_address="127.0.0.1",
                 runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}})
        yield
        ray.shutdown()
    left = {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")} - before
    assert not left


@pytest.fixture
def readers():
    made = []

    def make(count):
        made.extend(Reader.remote() for _ in range(count))
        ray.get([reader.start.remote() for reader in made])
        return made

    yield make
    for reader in made:
        ray.kill(reader)


def test_what_is_got_lies_in_the_store():
    reference = ray.put(dlbridge.asdlpack(np.arange(1 << 20, dtype="float32")))
    first, second = ray.get(reference), ray.get(reference)
    assert first.data_ptr == second.data_ptr
    assert first.readonly
    assert first.data_ptr % 64 == 0


def test_torch_shares_on_request_and_copies_by_default():
    reference = ray.put(dlbridge.asdlpack(np.ones(1 << 20, "float32")))
    stored = ray.get(reference)
    shared = dlbridge.convert(stored, "torch", readonly="share")
    assert shared.data_ptr() == stored.data_ptr
    protected = dlbridge.convert(ray.get(reference), "torch")
    protected.fill_(-1)
    assert shared.sum() == 1 << 20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_types_of_which_ray_copies_an_ndarray_for_each_reader(dtype):
    source = torch.ones(1 << 16).to(dtype)
    reference = ray.put(dlbridge.asdlpack(source))
    first, second = ray.get(reference), ray.get(reference)
    assert first.data_ptr == second.data_ptr
    back = dlbridge.convert(first, "torch", readonly="share", copy=False)
    assert back.dtype == dtype
    reference = ray.put(dlbridge.convert(source, "numpy"))
    assert ray.get(reference).ctypes.data != ray.get(reference).ctypes.data
    assert torch.equal(back.view(torch.uint8), source.view(torch.uint8))


def test_arguments_and_results_of_tasks():
    task = ray.remote(cluster.doubled)
    source = np.arange(1 << 16).astype(ml_dtypes.bfloat16)
    result = ray.get(task.remote(dlbridge.asdlpack(source)))
    assert dlbridge.convert(result, "numpy").tobytes() == (source * 2).tobytes()


def test_workers_hold_one_copy(readers):
    grown = {}
    there = readers(4)
    for make in (np.ones, np.ones, lambda count: dlbridge.asdlpack(np.ones(count))):    # the first is a rehearsal
        ray.get([reader.start.remote() for reader in there])
        reference = ray.put(make(NBYTES // 8))
        seen = ray.get([reader.keep.remote(reference) for reader in there])
        assert len({each["process"] for each in seen}) == 4
        assert all(each["readonly"] for each in seen)
        grown[seen[0]["type"]] = ray.get([reader.grown.remote() for reader in there])
    print(grown)
    assert max(grown["Tensor"]) <= max(grown["ndarray"]) + CLOSE
    assert max(grown["Tensor"]) <= CLOSE
    assert all(ray.get([reader.aligned.remote() for reader in there]))
    assert all(ray.get([reader.shares_with_torch.remote() for reader in there]))


@pytest.fixture(scope="module")
def giver_and_takers():
    ray_transport.register()
    give = ray.method(tensor_transport="DLBRIDGE")(cluster.Giver.give)
    giver = ray.remote(type("Giver", (cluster.Giver,), {"give": give})).remote()
    made = [giver, *(ray.remote(enable_tensor_transport=True)(cluster.Taker).remote() for _ in range(2))]
    yield made
    for actor in made:
        ray.kill(actor)


def test_actors_share_memory_by_its_descriptor(giver_and_takers):
    giver, *takers = giver_and_takers
    for _ in range(2):
        given = giver.give.remote()
        for seen, taker in enumerate(takers, start=1):
            whole = [[seen] * 4] * 3
            assert ray.get(taker.add_one.remote(given)) == {
                "whole": whole, "part": [[seen] * 2] * 2, "copied": [0, 1, 2], "nothing": []}
            assert ray.get(giver.values.remote()) == whole
        here = ray.get(given)
        array = dlbridge.convert(here["whole"], "numpy")
        array[:] = 9
        assert here["other"] == 7
        assert ray.get(giver.values.remote()) == [[9] * 4] * 3
    assert ray.get(giver.offered.remote()) >= 3
    del given, here
    for _ in range(3000):           # Ray tells the actor some time after the last reference is gone
        if not ray.get(giver.offered.remote()):
            break
        time.sleep(0.01)
    assert not ray.get(giver.offered.remote())
    assert array.tolist() == [[9] * 4] * 3


def test_an_actor_that_is_gone_gives_nothing(giver_and_takers):
    giver, taker, other = giver_and_takers
    given = giver.give.remote()
    kept = ray.get(given)
    assert ray.get(taker.add_one.remote(given))["copied"] == [0, 1, 2]
    process = os.pidfd_open(ray.get(giver.process.remote()))
    ray.kill(giver)
    select.select([process], [], [], 60)    # Ray says that an actor is dead before its process has ended
    os.close(process)
    with pytest.raises(dlbridge.ConversionError, match="has ended"):
        ray.get(other.add_one.remote(given))
    assert dlbridge.convert(kept["whole"], "numpy").tolist() == [[1] * 4] * 3


@in_child
def test_small_tensors_of_a_gpu_are_on_it_there_too():
    import pytest
    from fake_driver.scenes.shared import BASE, alive, driver, on_device, values

    import dlbridge
    from dlbridge.processes.ray_transport import Transport

    before, transport = alive(), Transport()
    small, part = dlbridge.asdlpack(on_device(BASE[:1])), dlbridge.shared(BASE, device="cuda:1")
    offers = transport.extract_tensor_transport_metadata("", [small, part])
    assert transport.extract_tensor_transport_metadata("", [small, part]) is offers     # as for a task that runs again
    assert offers.tensor_device == "cuda"
    for _ in range(2):
        first, second = transport.recv_multiple_tensors("", offers, None)
        assert (first.device, second.data_ptr) == ("cuda:0", part.data_ptr)
        assert values(first).tolist() == BASE[:1].tolist()
    with pytest.raises(ValueError, match="from two methods"):
        transport.extract_tensor_transport_metadata("other", [small, dlbridge.asdlpack(BASE)])
    driver.fail("DeviceGetUuid", 719, after=1)
    with pytest.raises(dlbridge.DeviceError):
        transport.extract_tensor_transport_metadata("other", [part, part])
    driver.fail("DeviceGetUuid", 0)
    sender, = dlbridge.processes.descriptors.senders
    assert len(sender.offered) == 2
    transport.garbage_collect("", offers, [])
    with pytest.raises(dlbridge.ConversionError, match="has no such memory to give"):
        transport.recv_multiple_tensors("", offers, None)
    del small, part, first, second
    assert alive()[1:] == before[1:]            # the array of the fake device stays


def test_one_worker_does_not_see_what_another_writes(readers):
    first, second = readers(2)
    reference = ray.put(dlbridge.asdlpack(np.ones(1 << 20)))
    ray.get([reader.keep.remote(reference) for reader in (first, second)])
    assert ray.get(first.write_by_torch.remote())
    assert ray.get([reader.first.remote() for reader in (first, second)]) == [1, 1]


def test_workers_that_die_leave_the_memory_to_the_others(readers):
    there = readers(10)
    reference = ray.put(dlbridge.asdlpack(np.ones(NBYTES // 8)))
    ray.get([reader.keep.remote(reference) for reader in there])
    for reader in there[:3]:
        reader.die.remote()
    for reader in there[:3]:
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(reader.total.remote())
    assert ray.get([reader.total.remote() for reader in there[3:]]) == [NBYTES // 8] * 7
    assert np.asarray(ray.get(reference)).sum() == NBYTES // 8
