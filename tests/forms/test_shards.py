"""Arrays whose parts are on several devices of JAX, or in several processes of torch."""

import numpy as np
import pytest
from support.children import in_child

import dlbridge

pytestmark = pytest.mark.needs("jax", "torch")
on_four_devices = in_child(warnings="ignore", XLA_FLAGS="--xla_force_host_platform_device_count=4")


@on_four_devices
def test_parts_of_an_array_of_jax_are_shared_and_put_together():
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import dlbridge

    host = np.arange(32, dtype="f4").reshape(4, 8)
    devices = np.array(jax.devices())
    for order in [0, 1, 2, 3], [3, 1, 0, 2]:
        mesh = Mesh(devices[order].reshape(2, 2), ("a", "b"))
        for axes in ("a", "b"), ("b", None), (None, ("a", "b")), (("b", "a"),):
            array = jax.device_put(host, NamedSharding(mesh, PartitionSpec(*axes)))
            addresses = [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
            parts = dlbridge.shards(array, "numpy")
            assert [part.ctypes.data for _, part in parts] == addresses
            for (index, part), shard in zip(parts, array.addressable_shards, strict=True):
                assert index == tuple(slice(*each.indices(size)[:2]) for each, size in zip(
                    shard.index, host.shape, strict=True))
                assert part.tolist() == host[index].tolist()
                assert not part.flags.writeable
            tensors = dlbridge.shards(array, "torch", readonly="share")
            assert [part.data_ptr() for _, part in tensors] == addresses
            for like in array, array.sharding:
                whole = dlbridge.from_shards(tensors[::-1], like)
                assert whole.sharding == array.sharding
                assert np.asarray(whole).tolist() == host.tolist()
                same = dlbridge.from_shards(dlbridge.shards(array, "jax"), like)
                assert [shard.data.unsafe_buffer_pointer() for shard in same.addressable_shards] == addresses


@on_four_devices
def test_parts_that_several_devices_have_need_be_there_once():
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import dlbridge

    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    array = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("b")))
    parts = dlbridge.shards(array, "torch")
    assert [(index[0].start, index[0].stop) for index, _ in parts] == [(0, 4), (4, 8)] * 2
    for some in parts, parts[:2], parts[:3]:
        whole = dlbridge.from_shards(some, array)
        assert whole.sharding == array.sharding
        assert np.asarray(whole).tolist() == list(range(8))
    replicated = jax.device_put(jnp.arange(3.0), NamedSharding(mesh, PartitionSpec()))
    assert len(dlbridge.shards(replicated, "torch")) == 4
    assert np.asarray(dlbridge.from_shards([((slice(None),), np.arange(3.0, dtype="f4"))], replicated)).tolist() == [
        0, 1, 2]


@on_four_devices
def test_parts_that_do_not_fit_are_named():
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pytest
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import dlbridge

    mesh = Mesh(np.array(jax.devices()), ("a",))
    array = jax.device_put(jnp.zeros((4, 2), "float32"), NamedSharding(mesh, PartitionSpec("a")))
    parts = dlbridge.shards(array, "numpy")
    part = np.zeros((1, 2), "f4")
    for given, message in (
        (parts[1:], r"index \[0:1, 0:2\]: is missing"),
        ([], r"index \[0:1, 0:2\]: is missing"),
        ([*parts, ((slice(0, 2), slice(0, 2)), np.zeros((2, 2)))], r"index \[0:2, 0:2\]: is that of no part of like"),
        ([*parts[1:], (parts[0][0], np.zeros((2, 2)))], r"part \[0:1, 0:2\]: has the shape \(2, 2\), and not \(1, 2\)"),
        ([((slice(0, 1),), part)], r"index \[0:1\]: is not of 2 axes"),
        ([((slice(0, 1, 2), slice(0, 2)), part)], "part .*: is no pair of slices and an array"),
        ([part], "part .*: is no pair of slices and an array"),
        ([(parts[0][0], object()), *parts[1:]], r"part \[0:1, 0:2\]: source: type object: offers no array protocol"),
    ):
        with pytest.raises(dlbridge.DLBridgeError, match=f"^from_shards: {message}"):
            dlbridge.from_shards(given, array)
    with pytest.raises(dlbridge.ConversionError, match="shape None: cannot be seen from the parts"):
        dlbridge.from_shards([((slice(None), slice(None)), part)], array.sharding)
    larger = dlbridge.from_shards([((slice(row, row + 1), slice(None)), part) for row in range(4)], array.sharding,
                                  shape=(4, 2))
    assert larger.shape == (4, 2)
    wide = [((slice(row, row + 1), slice(0, 2)), np.zeros((1, 2))) for row in range(4)]
    with pytest.raises(dlbridge.ConversionError, match=r"from_shards: part \[0:1, 0:2\]: jax: dtype float64"):
        dlbridge.from_shards(wide, array)
    assert dlbridge.from_shards(wide, array, narrow=True).dtype == "float32"
    with pytest.raises(dlbridge.CopyRequiredError, match=r"shards: part \[0:1, 0:2\]: "):
        dlbridge.shards(array, "torch", copy=False)
    array.delete()
    with pytest.raises(dlbridge.UnsupportedError, match="is_deleted True"):
        dlbridge.shards(array, "torch")


def test_one_array_is_one_part():
    import jax

    values = np.arange(6.0, dtype="f4").reshape(2, 3)
    for array in values, dlbridge.convert(values, "torch"), jax.numpy.asarray(values):
        [(index, part)] = dlbridge.shards(array, "numpy")
        assert index == (slice(0, 2), slice(0, 3))
        assert part.tolist() == values.tolist()
    [(index, part)] = dlbridge.shards(b"abc", "torch", readonly="share")
    assert (index, part.tolist()) == ((slice(0, 3),), [97, 98, 99])
    [(index, part)] = dlbridge.shards(np.float32(1), "torch")
    assert (index, part.item()) == ((), 1)
    assert dlbridge.from_shards(dlbridge.shards(values, "torch"), jax.numpy.zeros((2, 3))).tolist() == values.tolist()


def test_what_is_wrong_in_a_call():
    for call in (lambda **options: dlbridge.shards(np.ones(2), "torch", **options),
                 lambda **options: dlbridge.from_shards([], np.ones(2), **options)):
        with pytest.raises(TypeError, match=r"shards: device: is that of each part \(leave it out; it may be any of"):
            call(device="cpu")
        with pytest.raises(TypeError, match="shards: "):
            call(dtype="f4")
    with pytest.raises(dlbridge.UnsupportedError, match=r"from_shards: like numpy\.ndarray: says of no parts where"):
        dlbridge.from_shards([], np.ones(2))


# ---- processes of torch ----------------------------------------------------------------------------------------------

def in_each_rank(rank, folder):
    """What each of four processes does."""
    import os

    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    import jax
    import torch
    from torch import distributed
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    host = np.arange(50, dtype="f4").reshape(5, 10)
    for placements in ((Shard(0), Shard(1)), (Shard(0), Shard(0)), (Shard(1), Replicate()), (Replicate(), Replicate()),
                       (Shard(1), Shard(1)), (Replicate(), Shard(0))):
        tensor = distribute_tensor(torch.from_numpy(host), mesh, placements)
        [(index, part)] = dlbridge.shards(tensor, "numpy")
        assert part.tolist() == host[index].tolist()
        assert part.ctypes.data == tensor.to_local().data_ptr()
        again = dlbridge.from_shards([(index, part)], tensor)
        assert again.placements == tensor.placements
        assert again.to_local().data_ptr() == tensor.to_local().data_ptr()
        assert again.full_tensor().tolist() == host.tolist()

    # The parts of an array of JAX in each process, of which each rank has its own.
    sharding = jax.sharding.NamedSharding(jax.make_mesh((2, 2), ("a", "b")), jax.sharding.PartitionSpec("a", "b"))
    even = np.arange(24, dtype="f4").reshape(4, 6)
    parts = dlbridge.shards(jax.device_put(even, sharding), "torch", readonly="share")
    like = distribute_tensor(torch.zeros(4, 6), mesh, (Shard(0), Shard(1)))
    tensor = dlbridge.from_shards([parts[rank]], like)
    assert tensor.full_tensor().tolist() == even.tolist()
    assert tensor.to_local().data_ptr() == parts[rank][1].data_ptr()

    summands = DTensor.from_local(torch.ones(2), mesh, (Partial(), Replicate()))
    with pytest.raises(dlbridge.ConversionError, match=r"shards: placement P.*: is no part of the whole") as caught:
        dlbridge.shards(summands, "numpy")
    whole = eval(caught.value.hint.removeprefix("pass "), {"x": summands, "torch": torch})
    assert dlbridge.shards(whole, "numpy")[0][1].tolist() == [2, 2]
    odd = DTensor.from_local(torch.ones(7, 2), mesh, (Shard(0), Replicate()), run_check=False,
                             shape=(9, 2), stride=(2, 1))
    with pytest.raises(dlbridge.ConversionError, match="shards: shape "):
        dlbridge.shards(odd, "numpy")
    few = DeviceMesh("cpu", [0, 1])
    some = distribute_tensor(torch.arange(4.0), few, (Shard(0),))
    assert len(dlbridge.shards(some, "numpy")) == (rank < 2)
    assert dlbridge.from_shards(dlbridge.shards(some, "torch"), some).shape == (4,)
    wanted = distribute_tensor(torch.ones(4, requires_grad=True), mesh, (Shard(0), Replicate()))
    with pytest.raises(dlbridge.ConversionError, match=r"shards: part \[\d:\d\]: .*requires_grad True"):
        dlbridge.shards(wanted, "numpy")
    assert dlbridge.shards(wanted, "numpy", detach=True)[0][1].tolist() == [1, 1]
    distributed.destroy_process_group()


def test_each_process_has_its_part_of_a_tensor(tmp_path):
    import torch

    torch.multiprocessing.spawn(in_each_rank, (str(tmp_path),), nprocs=4)
