"""JAX arrays that are gone, that lie on several devices, or on another device of the host than the first.

JAX has several devices of the host if it is told so before it starts, so what needs them runs in a child.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.children import in_child

import dlbridge

pytestmark = pytest.mark.needs("jax", "torch")

TARGETS = ["numpy", "torch", "memoryview", "dlbridge", "dlpack"]
on_four_devices = in_child(says="", warnings="ignore", XLA_FLAGS="--xla_force_host_platform_device_count=4")


# ---- arrays without memory -------------------------------------------------------------------------------------------

def deleted(dtype):
    array = jnp.arange(4, dtype=dtype)
    array.delete()
    return array


def donated(dtype):
    array = jnp.arange(4, dtype=dtype)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array).block_until_ready()
    assert array.is_deleted()
    return array


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])      # by the buffer protocol, and by DLPack alone
@pytest.mark.parametrize("make", [deleted, donated])
@pytest.mark.parametrize("target", TARGETS)
def test_an_array_that_is_gone_says_so(make, dtype, target):
    array = make(dtype)
    with pytest.raises(dlbridge.UnsupportedError, match=r"is_deleted True: .* \(convert it before"):
        dlbridge.convert(array, target)
    with pytest.raises(dlbridge.UnsupportedError, match=r"is_deleted True: .* \(convert it before"):
        dlbridge.convert_tree({"x": [array]}, target)
    plan = dlbridge.explain(array, target)
    assert (plan.action, plan.hint) == ("refuse", "convert it before, or a copy of it, jax.numpy.copy(x)")


@on_four_devices
def test_arrays_in_parts_name_their_shards():
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from sources.four_devices import TARGETS, devices, end, host, mesh

    import dlbridge

    half = NamedSharding(Mesh(np.array(devices).reshape(2, 2), ("x", "y")), PartitionSpec("y"))
    for sharding in (mesh("x"), half):
        for dtype in ("float32", "bfloat16"):
            array = jax.device_put(jnp.arange(64, dtype=dtype), sharding)
            for target in TARGETS:
                for way in (dlbridge.convert, lambda array, to: dlbridge.convert_tree([array], to)):
                    try:
                        print(target, way(array, target))
                    except dlbridge.UnsupportedError as error:
                        if "is_sharded True" not in str(error) or "dlbridge.shards" not in error.hint:
                            print(target, error)
                plan = dlbridge.explain(array, target)
                if plan.action != "refuse" or not plan.hint.startswith("call dlbridge.shards(x, to)"):
                    print(target, plan)
            assert dlbridge.convert(array, "jax") is array
    array = jax.device_put(jnp.arange(64.0), mesh("x"))
    parts = dlbridge.shards(array, "numpy")
    assert [part.tolist() for _, part in parts] == host.reshape(4, 16).tolist()
    end()


@on_four_devices
def test_an_array_that_each_device_has_is_shared_from_one():
    import jax
    import jax.numpy as jnp
    import pytest
    from sources.four_devices import TARGETS, devices, end, host, mesh

    import dlbridge

    whole = jax.device_put(jnp.arange(64.0), mesh())
    parts = [shard.data for shard in whole.addressable_shards]
    first = parts[0].unsafe_buffer_pointer()

    def address(made):
        return dlbridge.convert(made, "dlbridge", readonly="share").data_ptr

    for to in TARGETS:
        if address(dlbridge.convert(whole, to, readonly="share")) != first:
            print(to, "has another address")
        if dlbridge.explain(whole, to, readonly="share").action != "share":
            print(dlbridge.explain(whole, to, readonly="share"))
    small = jax.device_put(jnp.arange(3, dtype="bfloat16"), mesh())
    assert dlbridge.convert(small, "torch").tolist() == [0, 1, 2]
    assert dlbridge.convert_tree([whole], "numpy")[0].tolist() == list(range(64))
    assert dlbridge.convert(whole, "jax") is whole
    for number in range(4):
        made = dlbridge.convert(whole, "jax", device=f"cpu:{number}")
        assert (made.devices(), made.tolist()) == ({devices[number]}, list(range(64))), number
    assert dlbridge.convert(host, whole).devices() == {devices[0]}
    read = dlbridge.accepts("numpy", returns="like")(lambda x: x + 1)(whole)
    assert isinstance(read, jax.Array)
    assert read.tolist() == list(range(1, 65))
    whole.delete()
    with pytest.raises(dlbridge.UnsupportedError, match="is_deleted True"):
        dlbridge.convert(whole, "numpy")
    end()


@pytest.mark.parametrize("dtype", ["int2", "uint2", "int4", "uint4"])
def test_integers_below_a_byte_are_taken_by_numpy(dtype):
    x = jnp.array([1, 0], dtype)
    for target in TARGETS:
        assert dlbridge.explain(x, target).hint == "pass numpy.asarray(x)"
        with pytest.raises(dlbridge.UnsupportedError, match=r"numpy\.asarray"):
            dlbridge.convert_tree([x], target)
    assert dlbridge.convert(np.asarray(x), "numpy").tolist() == [1, 0]


# ---- the host's devices ----------------------------------------------------------------------------------------------

@on_four_devices
def test_what_was_asked_for_is_what_one_gets():
    """By every name of a device, with and without copy=True; JAX shares the memory of others on the first alone."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch
    from sources.four_devices import devices, end, host

    import dlbridge

    there = jax.device_put(np.zeros(3, "float32"), devices[3])
    WAYS = {
        "device": {"device": devices[3]}, "name": {"device": "cpu:3"}, "pair": {"device": (1, 3)},
        "sharding": {"device": there.sharding}, "copy": {"device": devices[3], "copy": True},
        "array": {"to": there}, "array, copy": {"to": there, "copy": True},
        "share": {"device": devices[3], "readonly": "share"},
    }
    frozen = host.copy()
    frozen.flags.writeable = False
    SOURCES = {
        "numpy": host, "torch": torch.from_numpy(host), "frozen": frozen, "bytes": bytes(host), "Tensor":
        dlbridge.asdlpack(host), "backwards": host[::-1], "not aligned": host[1:], "empty": host[:0],
        "capsule": lambda: dlbridge.to_dlpack(host), "jax": jax.device_put(host, devices[0]),
        "elsewhere": jax.device_put(host, devices[1]), "bfloat16": jnp.asarray(host, "bfloat16"),
        "int4": np.arange(8).astype(jnp.int4),
    }
    for name, source in SOURCES.items():
        for way, keywords in WAYS.items():
            keywords = {"to": "jax"} | keywords
            made = source() if callable(source) else source
            plan = dlbridge.explain(made, **keywords)
            array = dlbridge.convert(made, **keywords)
            if array.devices() != {devices[3]} or plan.action != "copy":
                print(name, way, array.devices(), plan)
            expected = dlbridge.convert(source() if callable(source) else source, "numpy")
            if array.dtype != expected.dtype or array.tolist() != expected.tolist():
                print(name, way, array)
            made = source() if callable(source) else source
            never = keywords | {"copy": False}
            plan = dlbridge.explain(made, **never)
            try:
                print(name, way, dlbridge.convert(made, **never))
            except dlbridge.CopyRequiredError as error:
                if plan.action != "refuse" or plan.hint != error.hint:
                    print(name, way, plan, error)
                if 'pass device="cpu:0"' not in error.hint and name != "int4":    # which is always copied
                    print(name, way, error)
    # The array has memory of its own.
    array = dlbridge.convert(host, "jax", device=devices[3])
    host[0] = 77
    assert array[0] == 0, array
    for tree in dlbridge.convert_tree([host], "jax", device="cpu:3"), dlbridge.convert_tree([host], there):
        assert tree[0].devices() == {devices[3]}
    assert dlbridge.accepts("jax", device=devices[3])(lambda x: x.devices())(host) == {devices[3]}
    assert dlbridge.accepts("numpy", returns="like")(lambda x: x)(there).devices() == {devices[3]}
    end()


@on_four_devices
def test_an_array_stays_where_it_is():
    import jax
    import numpy as np
    import torch
    from sources.four_devices import devices, end, host

    import dlbridge

    for number, device in enumerate(devices):
        array = jax.device_put(host, device)
        for same in (
            {}, {"device": "cpu"}, {"device": device}, {"device": f"cpu:{number}"}, {"copy": False},
            {"device": array.sharding}, {"to": jax.device_put(host[:1], device)},
        ):
            keywords = {"to": "jax"} | same
            assert dlbridge.convert(array, **keywords) is array, (number, same)
            assert dlbridge.explain(array, **keywords).action == "return"
        copied = dlbridge.convert(array, "jax", copy=True)
        assert copied.devices() == {device}
        assert copied.tolist() == host.tolist()
        assert copied.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
        # For every other library the host is one place.
        for target in "numpy", "torch", "dlbridge":
            for keywords in {}, {"device": device}, {"device": "cpu"}, {"device": "cpu:0"}:
                assert np.shares_memory(np.asarray(dlbridge.convert(array, target, readonly="share", **keywords)),
                                        np.asarray(array))
        here = dlbridge.convert(array, "jax", device="cpu:0", copy=False)
        assert here.devices() == {devices[0]}
        assert here.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    tensor = torch.ones(3)
    assert dlbridge.convert(tensor, "torch", device=devices[3]) is tensor
    assert dlbridge.convert(tensor, "torch", device="cpu:1") is tensor
    end()


@on_four_devices
def test_new_arrays_are_where_jax_makes_them():
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pytest
    from sources.four_devices import devices, end, host

    import dlbridge

    int4 = np.arange(8).astype(jnp.int4)
    frozen = np.asarray(jax.device_put(host, devices[0]))
    for default in devices[2], devices[0], "cpu", None:
        expected = {default if default in devices else devices[0]}
        with jax.default_device(default):
            for source in host, frozen, int4, bytes(16):
                for keywords in {}, {"copy": True}:
                    assert dlbridge.convert(source, "jax", **keywords).devices() == expected, (default, keywords)
                for number in 0, 1:
                    array = dlbridge.convert(source, "jax", device=f"cpu:{number}")
                    assert array.devices() == {devices[number]}, (default, number, array.devices())
            action = "share" if expected == {devices[0]} else "copy"
            assert dlbridge.explain(frozen, "jax").action == action
            assert dlbridge.explain(frozen, "jax", device="cpu:0").action == "share"
            if action == "share":
                dlbridge.convert(frozen, "jax", copy=False)
            else:
                with pytest.raises(dlbridge.CopyRequiredError, match='device="cpu:0"'):
                    dlbridge.convert(frozen, "jax", copy=False)
    end()


@on_four_devices
def test_a_device_that_is_not_there_is_refused():
    import jax
    import jax.numpy as jnp
    import pytest
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from sources.four_devices import devices, end, host, mesh

    import dlbridge

    for device in "cpu:4", (1, 99):
        with pytest.raises(dlbridge.DeviceError, match="is none of the 4"):
            dlbridge.convert(host, "jax", device=device)
        dlbridge.asdlpack(host, device=device)      # which has no JAX in it
    parts, whole = (jax.device_put(jnp.arange(64.0), sharding) for sharding in (mesh("x"), mesh()))
    for array in parts, whole:
        with pytest.raises(dlbridge.DeviceError, match="is no device that dlbridge knows"):
            dlbridge.convert(host, "jax", device=array.sharding)
    assert dlbridge.convert(host, whole).devices() == {devices[0]}     # an array that each device has stands for it
    with pytest.raises(dlbridge.UnsupportedError, match=r"call dlbridge\.shards"):
        dlbridge.convert(host, parts)
    one = NamedSharding(Mesh(devices[3:], "x"), PartitionSpec("x"))
    assert dlbridge.convert(host, "jax", device=one).devices() == {devices[3]}
    end()


def test_the_only_device_is_named():
    with pytest.raises(dlbridge.DeviceError, match=r"cpu:1: is none of the 1 .*\(pass device=\"cpu\"\)"):
        dlbridge.convert(b"abc", "jax", device="cpu:1")
