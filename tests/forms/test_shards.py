"""Arrays whose parts are on several devices of JAX, or in several processes of torch."""

import numpy as np
import pytest
from forms.ranks import in_each_rank
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
    import pytest
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
    alike = dlbridge.from_shards(dlbridge.shards(array, "jax")[::-1], array, copy=False)
    assert [shard.data.unsafe_buffer_pointer() for shard in alike.addressable_shards] == [
        shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
    with pytest.raises(dlbridge.ConversionError, match=r"index \[0:4\]: is there 3 times, for 2 devices"):
        dlbridge.from_shards([*parts, parts[0]], array)
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
        ([*parts[1:], (parts[0][0], np.zeros((2, 2), "f4"))], r"part \[0:1, 0:2\]: has the shape \(2, 2\), and not"),
        ([((slice(0, 1),), part)], r"index \[0:1\]: is not of 2 axes"),
        ([((slice(0, 1, 2), slice(0, 2)), part)], "part .*: is no pair of slices and an array"),
        ([part], "part .*: is no pair of slices and an array"),
        ([*parts[1:], (parts[0][0], np.zeros((1, 2), "f2"))], r"part \[1:2, 0:2\]: is of float32, and others are of"),
        ([*parts[1:], (parts[0][0], b"abcd")], r"part \[0:1, 0:2\]: has the shape \(4,\), and not \(1, 2\)"),
        ([*parts[:3], ((slice(3, 9), slice(0, 2)), part)], r"index \[3:9, 0:2\]: is beyond the shape \(4, 2\)"),
        ([(("a", "b"), part)], "part .*: is no pair of slices and an array"),
        ([((slice("a"),), part)], "part .*: is no pair of slices and an array"),
        ([(parts[0][0], object()), *parts[1:]], r"part \[0:1, 0:2\]: source: type object: offers no array protocol"),
    ):
        with pytest.raises(dlbridge.DLBridgeError, match=f"^from_shards: {message}"):
            dlbridge.from_shards(given, array)
    with pytest.raises(dlbridge.ConversionError, match="shape None: cannot be seen from the parts"):
        dlbridge.from_shards([((slice(None), slice(None)), part)], array.sharding)
    with pytest.raises(dlbridge.ConversionError, match=r"from_shards: jax \w+Error: "):
        dlbridge.from_shards([((slice(0, 3), slice(None)), np.zeros((3, 2), "f4"))], array.sharding, shape=(3, 2))
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
    import pyarrow
    import scipy.sparse

    values = np.arange(6.0, dtype="f4").reshape(2, 3)
    for array in values, dlbridge.convert(values, "torch"), jax.numpy.asarray(values):
        [(index, part)] = dlbridge.shards(array, "numpy")
        assert index == (slice(0, 2), slice(0, 3))
        assert part.tolist() == values.tolist()
    [(index, part)] = dlbridge.shards(b"abc", "torch", readonly="share")
    assert (index, part.tolist()) == ((slice(0, 3),), [97, 98, 99])
    [(index, part)] = dlbridge.shards(b"abc", "memoryview")
    assert (index, bytes(part)) == ((slice(0, 3),), b"abc")
    [(index, part)] = dlbridge.shards(np.float32(1), "torch")
    assert (index, part.item()) == ((), 1)
    [(index, part)] = dlbridge.shards(np.ma.MaskedArray([1, 2], [True, False]), np.ma.MaskedArray)
    assert (index, part.tolist()) == ((slice(0, 2),), [None, 2])
    lists = pyarrow.array([[1.0], [2.0, 3.0]])
    for to in "torch", "pyarrow":
        [(index, part)] = dlbridge.shards(lists, to)
        assert index == (slice(0, 2), slice(0, None))
    pairs = pyarrow.array([[[1, 2]], []], pyarrow.list_(pyarrow.list_(pyarrow.float64(), 2)))
    [(index, part)] = dlbridge.shards(pairs, "torch")
    assert index == (slice(0, 2), slice(0, None), slice(0, 2))
    diagonal = scipy.sparse.dia_array(np.eye(2))
    assert dlbridge.shards(diagonal, "scipy") == [((slice(0, 2), slice(0, 2)), diagonal)]
    eye = dlbridge.convert(scipy.sparse.csr_array(np.eye(2)), "torch")
    for to in "torch", "scipy":
        [(index, part)] = dlbridge.shards(eye, to)
        assert index == (slice(0, 2), slice(0, 2))
    assert dlbridge.from_shards(dlbridge.shards(values, "torch"), jax.numpy.zeros((2, 3))).tolist() == values.tolist()


def test_what_is_wrong_in_a_call():
    for call in (lambda **options: dlbridge.shards(np.ones(2), "torch", **options),
                 lambda **options: dlbridge.from_shards([], np.ones(2), **options)):
        with pytest.raises(TypeError, match=r"shards: device: is that of each part \(leave it out\)"):
            call(device="cpu")
        with pytest.raises(TypeError, match=r"shards: dtype|shards: keyword"):
            call(dtype="f4")
    with pytest.raises(dlbridge.UnsupportedError, match=r"from_shards: like numpy\.ndarray: says of no parts where"):
        dlbridge.from_shards([], np.ones(2))


# ---- processes of torch ----------------------------------------------------------------------------------------------

def test_each_process_has_its_part_of_a_tensor(tmp_path):
    import torch

    torch.multiprocessing.spawn(in_each_rank, (str(tmp_path),), nprocs=4)
