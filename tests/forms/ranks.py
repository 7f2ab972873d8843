"""What each of four processes of torch does, which import this by its name."""

import numpy as np
import pytest

import dlbridge


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
    with pytest.raises(dlbridge.ConversionError, match=r"shards: placement P.*: is no Shard, of which") as caught:
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
