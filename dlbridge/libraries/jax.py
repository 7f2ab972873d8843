"""JAX: immutable arrays, read by the buffer protocol or DLPack, made by jaxlib's own importer."""

import functools
import sys
from operator import attrgetter
from typing import Any

from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.library import Arrays, Fact, Form, Layout, Library, Sparse
from dlbridge.libraries.profiles import COMPLEX, FLOATS, INTEGERS, LENGTH_1_STRIDES, NATIVE_BYTES


def is_sharded(array: Any) -> bool:
    """Whether an array lies in parts on several devices."""
    return len(array.sharding.device_set) > 1


def is_sub_byte(array: Any) -> bool:
    """Whether an array is of integers below a byte."""
    return array.dtype.name in ("int2", "uint2", "int4", "uint4")


def replicas(array: Any) -> list[Any]:
    """The array on each device of this process, if each of several has all of it."""
    if array.is_deleted() or not is_sharded(array) or not array.is_fully_replicated:
        return []
    return [shard.data for shard in array.addressable_shards]


def hosts(jax: Any) -> int:
    """How many devices of the host it has; jax_num_cpu_devices says so before JAX starts."""
    try:
        return len(jax.local_devices(backend="cpu"))
    except RuntimeError:
        return 1            # JAX was started without the host


def default_host(jax: Any) -> int:
    """Where jax.default_device() puts new arrays, if that is a device of the host."""
    device = jax.config.jax_default_device
    return device.local_hardware_id if getattr(device, "platform", "") == "cpu" else 0


def device_named(device: Any) -> str:
    """A device by its number in this process, as DLPack has it; ``id`` counts the devices of all processes."""
    return f"{device.platform}:{device.id if device.local_hardware_id is None else device.local_hardware_id}"


def sharding_named(sharding: Any) -> str | None:
    """The device of a sharding that has one, and its own memory."""
    devices = tuple(sharding.device_set)
    if len(devices) > 1 or sharding.memory_kind not in (None, devices[0].default_memory().kind):
        return None
    return device_named(devices[0])


def is_traced(tracer: Any) -> bool:
    """Each tracer stands for an array that there is not yet."""
    return True


def pinned_memory() -> Any:
    """How an array is asked whether it is in pinned memory; None without a GPU, where none is."""
    if not takes_pinned(sys.modules["jax"]):
        return None
    return lambda array: bool(array.sharding.memory_kind == "pinned_host")


def takes_pinned(jax: Any) -> bool:
    """Whether it has a GPU, whose pinned memory it takes as that."""
    try:
        memories = jax.local_devices(backend="gpu")[0].addressable_memories()
    except RuntimeError:
        return False
    return any(memory.kind == "pinned_host" for memory in memories)


@functools.cache
def compiled_copy() -> Any:
    """It takes half of the time of ``array.copy()``."""
    import jax

    return jax.jit(jax.numpy.copy)


def copied(array: Any, stream: int | None) -> Any:
    """A copy on the array's device, also while jax.jit or jax.grad trace a function.

    A stream is made to wait for the copy: the export does that for the stream that it is given.
    """
    import jax

    with jax.ensure_compile_time_eval():
        copy = compiled_copy()(array)
        if stream is not None:
            copy.__dlpack__(stream=stream)
        return copy


# ---- arrays on several devices ---------------------------------------------------------------------------------------

def shards_of(array: Any) -> list[tuple[tuple[slice, ...], Any]]:
    """The part on each device of this process, in the order of the mesh."""
    if array.is_deleted():
        return [(tuple(map(slice, array.shape)), array)]        # its conversion says so
    return [(tuple(slice(*each.indices(extent)[:2]) for each, extent in zip(shard.index, array.shape, strict=True)),
             shard.data) for shard in array.addressable_shards]


def layout_of(sharding: Any) -> Layout:
    import jax

    return Layout("jax", None, lambda shape: list(sharding.addressable_devices_indices_map(shape).items()),
                  lambda shape, parts: jax.make_array_from_single_device_arrays(shape, sharding, parts))


def layout_of_array(array: Any) -> Layout:
    return layout_of(array.sharding)._replace(shape=array.shape)


# ---- sparse arrays ---------------------------------------------------------------------------------------------------

def form_name(array: Any) -> str | None:
    """Of those of jax.experimental.sparse that are made for use."""
    names = [NAMES[kind.__name__] for kind in type(array).__mro__ if kind.__name__ in NAMES]
    return names[0] if names else None


NAMES = {"BCOO": "coo", "BCSR": "csr"}
WIDENS = 'jax.config.update("jax_enable_x64", True)'


def index_types(kind: Any) -> tuple[str, ...]:
    return ("int32", "int64") if sys.modules["jax"].config.jax_enable_x64 else ("int32",)


def parts_of_coo(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    if array.n_batch:
        raise refusal(ConversionError, "coo", "n_batch", array.n_batch, "is the number of axes of a batch",
                      f"pass its arrays one by one, x[{', '.join('0' * array.n_batch)}]")
    return array.shape, [array.data, array.indices]


def parts_of_rows(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    if array.n_batch:
        raise refusal(ConversionError, "csr", "n_batch", array.n_batch, "is the number of axes of a batch",
                      f"pass its arrays one by one, x.to_bcoo()[{', '.join('0' * array.n_batch)}]")
    return array.shape, [array.data, array.indices, array.indptr]


def form_as(name: str, take_apart: Any, indices: Sparse) -> Form:
    def put_together(
        kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool,
    ) -> Any:
        from jax.experimental import sparse

        return (kind or getattr(sparse, name))(
            tuple(parts), shape=shape, indices_sorted=is_sorted, unique_indices=is_unique)

    return Form((name,), take_apart, put_together, dense="x.todense()",
                of_dense=f'jax.experimental.sparse.{name}.fromdense(dlbridge.convert(x, "jax"))',
                elements=attrgetter("data"), index_types=index_types, widens=WIDENS, dense_axes=True, sparse=indices)


def says(array: Any) -> tuple[bool, bool]:
    return array.indices_sorted, array.unique_indices


OF_TRACER = ('call what needs its values as dlbridge.accepts("numpy", returns="like", callback=True)(function), which '
             'jax.jit and vmap take, or as dlbridge.accepts("torch", returns="like", gradients=True)(function), which '
             "grad takes, too")

LIBRARY = Library(
    name="jax",
    roots=("jax", "jaxlib"),
    arrays=(
        Arrays(
            "ArrayImpl",
            {
                "is_deleted": "convert it before, or a copy of it, jax.numpy.copy(x)",
                "is_sub_byte": "pass numpy.asarray(x)",
                "is_sharded": "call dlbridge.shards(x, to), which gives its parts",
            },
            preferred=Fact("buffer", "seen in 0.10.2", "takes a tenth of the time of __dlpack__ on the CPU, and flags "
                           "read-only memory; it declines elsewhere, and for bfloat16"),
            unflagged=Fact(True, "jax#40789", "gives a legacy capsule, which has no flags", below="0.12"),
            constant=Fact(True, "seen in 0.10.2", "never writes to an array"),
            none_is_unordered=Fact(True, "seen in jaxlib 0.10.2", "takes -1 for the handle of a stream"),
            pinned_memory=Fact(pinned_memory, "seen in 0.11.2", "exports it under its own device type", since="0.11"),
            replicas=Fact(replicas, "seen in 0.10.2", "exports nothing of an array that is on several devices"),
            shards=Fact(shards_of, "seen in 0.10.2", "may be on several devices"),
            host_number=Fact(lambda array: array.device.local_hardware_id, "seen in 0.10.2",
                             "exports every device of the host as the first"),
            refused=(
                Fact("is_deleted", "seen in 0.10.2", "gave the memory back, by x.delete() or to a function that it was "
                     "donated to"),
                Fact(is_sub_byte, "seen in 0.10.2", "exports no integers below a byte"),
                Fact(is_sharded, "seen in 0.10.2", "has its parts on several devices, and exports none of them"),
            ),
        ),
        Arrays("JAXSparse", {"": "pass x.todense()"}, form_name=Fact(form_name, "seen in 0.10.2")),
        Arrays("PRNGKeyArray", {"": "pass jax.random.key_data(x)"}),
        Arrays("Tracer", {"is_traced": OF_TRACER}, refused=(
            Fact(is_traced, "seen in 0.10.2", "has no values while jit, grad or vmap traces a function"),)),
    ),
    constant_exports=Fact(True, "seen in 0.10.2", "exports its arrays alone"),
    private=Fact("_core.targets.jaxlib", "seen in 0.12.0.1", "calls this importer itself, after much Python",
                 since="0.6", below="0.13"),
    delivery="jax",
    importer="dlpack.from_dlpack",
    array_types=("Array", "core.Tracer"),
    forms={
        "csr": form_as("BCSR", parts_of_rows, Sparse(
            says=says, ordered="jax.experimental.sparse.BCSR.from_bcoo(x.to_bcoo().sum_duplicates())",
            made="jax.experimental.sparse.BCSR.from_bcoo(x)")),
        "coo": form_as("BCOO", parts_of_coo, Sparse(
            "columns", says, beyond="pass x.sum_duplicates(), without what only fills it up", made="x.to_bcoo()")),
    },
    lacks=(
        Fact("NEGATIVE_STRIDES", "jax#8082", "refuses them, even with copy=True"),
        Fact("ZERO_STRIDES", "jax#8082", "refuses them, even with copy=True"),
        Fact("ANY_STRIDES", "jax#8082", "takes only arrays without holes, in any order of the axes"),
        Fact("ANY_ORDER", "jax#17784", "takes the elements in another order", below="0.8.0"),
        Fact("ODD_STRIDES", "jax#8082", "refuses them, even with copy=True"),
        LENGTH_1_STRIDES,
        NATIVE_BYTES,
        Fact("WRITABLE", "seen in 0.10.2", "has immutable arrays"),
        Fact("PINNED", "seen in 0.10.2", "refuses the device type", below="0.11"),
        Fact("UNIFIED", "jax#22346", "refused the device type for long"),
        Fact("PACKED", "seen in 0.10.2", "exports packed float4, and refuses its own export"),
    ),
    alignment=Fact(64, "seen in 0.10.2", "copies what is not aligned to 64 bytes, silently"),
    device_alignment=Fact(16, "seen in 0.11.2", "takes other memory, and raises an error when it uses it"),
    dtypes=(
        Fact((
            "bool", *INTEGERS, *FLOATS, *COMPLEX, "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
            "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
            "int4", "uint4",
        ), "seen in 0.10.2"),
    ),
    copied_dtypes=Fact(("float4_e2m1fn", "int4", "uint4"), "seen in 0.10.2", "packs these, and imports none of them"),
    wide_dtypes=Fact(
        {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}, "jax#18385",
        "narrows them silently unless jax_enable_x64 is on"),
    dtype_namespace="numpy",
    copier=Fact(copied, "DALI#5617", "does not tell which streams it uses, and frees memory once the last "
                "work on it is queued"),
    keeps_imports=Fact(True, "seen in 0.11.2", "frees what it imported once the last work on it is done",
                       since="0.11.2", below="0.12"),
    uploads=("cuda",),
    pinned=Fact(takes_pinned, "seen in 0.11.2", "takes pinned memory where it has a GPU"),
    hosts=Fact(hosts, "seen in 0.10.2", "takes memory of others on the first device of the host only"),
    default_host=Fact(default_host, "seen in 0.10.2", "imports to the first device, whatever jax.default_device() is"),
    devices=Fact({"Device": device_named, "Sharding": sharding_named}, "seen in 0.10.2"),
    layouts=Fact({"Sharding": layout_of, "ArrayImpl": layout_of_array}, "seen in 0.10.2"),
)
