"""torch: tensors, through the C exchange API on both sides."""

import sys
from typing import Any

from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.library import (
    Arrays,
    Fact,
    Form,
    Layout,
    Library,
    Masked,
    Ragged,
    Sparse,
    TooWide,
    is_one_array,
)
from dlbridge.libraries.profiles import COMPLEX, ELEMENT_STRIDES, FLOAT8, FLOATS, IN_TREE, INTEGERS

SEEN = "seen in 2.13.0"


def unwrapped(wrapper: Any) -> Any:
    """The tensor that was wrapped: the wrapper lets nobody ask for a gradient or a lazy bit."""
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        return wrapper.as_subclass(torch.Tensor)


def rearranged(tensor: Any, dtype: str | None) -> Any:
    """A compact copy; bools, which memory of others may have as any byte, are compared with 0."""
    torch = sys.modules["torch"]
    resolved = tensor.detach().resolve_conj().resolve_neg()
    if resolved.dtype is torch.bool:
        return resolved.view(torch.uint8).ne(0).contiguous()
    if dtype is None:
        return resolved.clone(memory_format=torch.contiguous_format)
    made = resolved.to(getattr(torch, dtype), memory_format=torch.contiguous_format)
    if dtype == "int32":
        kept = made == resolved
    else:
        narrow, wide = (torch.view_as_real(each) if each.is_complex() else each for each in (made, resolved))
        kept = narrow.isfinite() | ~wide.isfinite()
    if not kept.all():
        raise TooWide
    return made


def clone(tensor: Any, detach: bool) -> Any:
    """A copy. Pinned memory is torch's own, which keeps it until its copies to a device are done.

    What fills it is waited for on the stream that is current on the current device.
    """
    torch = sys.modules["torch"]
    tensor = tensor.detach() if detach else tensor
    # A MaskedTensor cannot be asked whether it is pinned.
    if tensor.layout is torch.strided and not tensor.is_nested and not hasattr(tensor, "get_mask") and (
            tensor.is_pinned()):
        getattr(torch, "accelerator", torch.cuda).current_stream().synchronize()    # which may be filling it
        return torch.empty_like(tensor, pin_memory=True).copy_(tensor)
    return tensor.clone()


def is_compressed(tensor: Any) -> bool:
    """Whether a tensor is sparse in columns or blocks; of rows it says so itself."""
    return str(getattr(tensor, "layout", "")) in ("torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc")


def form_of_wrapper(kind: Any) -> tuple[Any, Any] | None:
    """How the tensors of a class are taken apart that has no memory, and keeps others instead: torchao's, quanto's.

    torch's own classes of the kind have facts of their own.
    """
    of_torch = kind.__module__.partition(".")[0] == "torch"
    return None if of_torch or not hasattr(kind, "__tensor_flatten__") else (parts_of_wrapper, wrapper_with)


def parts_of_wrapper(tensor: Any) -> dict[str, Any]:
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


def wrapper_with(tensor: Any, parts: dict[str, Any]) -> Any:
    """A tensor of the same class over other tensors; the arrays of other libraries stay by their names."""
    if not all(isinstance(part, sys.modules["torch"].Tensor) for part in parts.values()):
        return parts
    return type(tensor).__tensor_unflatten__(parts, tensor.__tensor_flatten__()[1], tensor.size(), tensor.stride())


def is_wrapper(tensor: Any) -> bool:
    """Whether a tensor has no memory and others instead."""
    return form_of_wrapper(type(tensor)) is not None


def hint_for_wrapper(tensor: Any) -> str:
    way = "pass x.dequantize(), or " if hasattr(tensor, "dequantize") else ""
    return way + IN_TREE


def is_own(stream: Any) -> bool:
    """Whether a stream is the default one or of torch's pool, which live for ever. An external one's id is its address.

    External streams are not of a type of their own: torch.cuda.current_stream() gives a Stream.
    """
    return bool(stream.stream_id == 0 or stream.stream_id & 1)


def is_worker_of_loader() -> bool:
    """Whether this process is one of a DataLoader, which ends them once nobody wants their batches any more."""
    loading = sys.modules.get("torch.utils.data")
    return loading is not None and loading.get_worker_info() is not None


# ---- sparse tensors --------------------------------------------------------------------------------------------------

class Layouts(dict[Any, str | None]):
    """The names of forms, by torch's objects for layouts."""

    def __missing__(self, layout: Any) -> str | None:
        name = self[layout] = str(layout).removeprefix("torch.sparse_") if "sparse" in str(layout) else None
        return name


LAYOUTS = Layouts()


def form_name(tensor: Any) -> str | None:
    try:
        return LAYOUTS[tensor.layout]
    except Exception:
        return None             # a subclass answers as it likes; its conversion says what is wrong


def parts_of_coo(tensor: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Its elements as they are: values() wants a tensor that is coalesced, and torch's page names _values() for all."""
    values = tensor.values() if tensor.is_coalesced() else tensor._values()
    if tensor.requires_grad and not values.requires_grad:
        raise refusal(ConversionError, "torch", "requires_grad", True, "would be lost, since it is not coalesced",
                      "pass detach=True, x.coalesce(), or x.detach()")
    return tuple(tensor.shape), [values, tensor._indices()]


def new_coo(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    data, coords = parts
    return sys.modules["torch"].sparse_coo_tensor(
        coords, data, shape, check_invariants=checks_asked(), is_coalesced=True if is_sorted and is_unique else None)


def checks_asked() -> bool:
    """Whether the user lets torch check sparse tensors, too; it warns where it is told nothing."""
    answer: bool = sys.modules["torch"].sparse.check_sparse_tensor_invariants.is_enabled()
    return answer


def detached(tensor: Any) -> Any:
    return tensor.detach()


def parts_of_rows(tensor: Any) -> tuple[tuple[int, ...], list[Any]]:
    return one_matrix(tensor, [tensor.values(), tensor.col_indices(), tensor.crow_indices()])


def parts_of_columns(tensor: Any) -> tuple[tuple[int, ...], list[Any]]:
    return one_matrix(tensor, [tensor.values(), tensor.row_indices(), tensor.ccol_indices()])


def one_matrix(tensor: Any, parts: list[Any]) -> tuple[tuple[int, ...], list[Any]]:
    batch = parts[2].dim() - 1
    if batch:
        raise refusal(ConversionError, "torch", "shape", tuple(tensor.shape), f"is that of a batch, by {batch} axes",
                      f"pass its matrices one by one, x{'[0]' * batch}")
    return tuple(tensor.shape), parts


def compressed(form: str) -> Form:
    def put_together(
        kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool,
    ) -> Any:
        data, indices, indptr = parts
        torch = sys.modules["torch"]
        return getattr(torch, constructor)(indptr, indices, data, shape, check_invariants=checks_asked())

    constructor = f"sparse_{form}_tensor"
    blocks = "(blocksize)" if form.startswith("b") else "()"
    return Form(
        (f"sparse_{form}",), parts_of_columns if form.endswith("c") else parts_of_rows, put_together,
        dense="x.to_dense()", of_dense=f'dlbridge.convert(x, "torch").to_sparse_{form}{blocks}',
        elements=lambda tensor: tensor.detach().values(), detached=detached, index_types=("int32", "int64"),
        dense_axes=True, sparse=Sparse(ordered=f'dlbridge.convert(x, "scipy").tocoo().to{form}()',
                                       made=f"x.to_sparse_{form}{blocks}", makes=not form.startswith("b")))


# ---- tensors with a mask ---------------------------------------------------------------------------------------------

def parts_of_masked(tensor: Any) -> tuple[tuple[int, ...], list[Any]]:
    return tuple(tensor.shape), [tensor.get_data(), tensor.get_mask()]


MASKED_DTYPES = ("bool", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


def check_masked(kind: Any, shape: tuple[int, ...], dtype: str, values: Any) -> None:
    if dtype not in MASKED_DTYPES:
        raise refusal(ConversionError, "torch", "dtype", dtype, "is none that a MaskedTensor has",
                      "convert it to float32 first")
    if getattr(values, "requires_grad", False):
        raise refusal(ConversionError, "torch", "requires_grad", True, "would be lost, since a MaskedTensor copies",
                      "pass detach=True, or x.detach()")


def new_masked(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    torch = sys.modules["torch"]
    values, mask = parts
    return torch.masked.masked_tensor(values, torch.ones_like(values, dtype=torch.bool) if mask is None else mask)


# ---- ragged tensors --------------------------------------------------------------------------------------------------

def parts_of_jagged(tensor: Any) -> tuple[tuple[int, ...], list[Any]]:
    if tensor.lengths() is not None:
        raise refusal(ConversionError, "ragged", "lengths", "of a narrowed tensor", "leave gaps in its memory",
                      "pass x.contiguous()")
    ragged = next(axis for axis, extent in enumerate(tensor.shape) if isinstance(extent, sys.modules["torch"].SymInt))
    if ragged != 1:
        raise refusal(ConversionError, "ragged", "axis", ragged, "is the ragged one, which is 1 elsewhere",
                      f"pass x.transpose(1, {ragged})")
    return (), [tensor.values(), (tensor.offsets(),)]


def new_jagged(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    data, (offsets,) = parts
    return sys.modules["torch"].nested.nested_tensor_from_jagged(data, offsets)


# ---- tensors in several processes ------------------------------------------------------------------------------------

def slices_here(tensor: Any, shape: tuple[int, ...]) -> tuple[slice, ...] | None:
    """The slices of a shape that this process has of a DTensor; None where it is not in the mesh."""
    mesh = tensor.device_mesh
    here = mesh.get_coordinate()
    if here is None:
        return None
    spans = [(0, extent) for extent in shape]
    for size, place, placement in zip(mesh.shape, here, tensor.placements, strict=True):
        if type(placement).__name__ == "Shard":
            start, stop = spans[placement.dim]
            chunk = -(-(stop - start) // size)          # as torch.chunk() divides
            first = min(start + place * chunk, stop)
            spans[placement.dim] = first, min(first + chunk, stop)
        elif not placement.is_replicate():
            raise refusal(ConversionError, "shards", "placement", placement, "is no Shard, of which a rank has a part",
                          "pass x.redistribute(placements=[torch.distributed.tensor.Replicate()] * x.device_mesh.ndim)")
    return tuple(slice(*span) for span in spans)


def shards_of(tensor: Any) -> list[tuple[tuple[slice, ...], Any]]:
    index = slices_here(tensor, tuple(tensor.shape))
    if index is None:
        return []
    local = tensor.to_local()
    local = local.wait() if hasattr(local, "wait") else local       # what is still on its way from other processes
    extents = tuple(each.stop - each.start for each in index)
    if tuple(local.shape) != extents:
        raise refusal(ConversionError, "shards", "shape", tuple(local.shape), f"is that of its part, which is {extents}"
                      " by its placements", "divide it as torch.chunk() does")
    return [(index, local)]


def layout_of(tensor: Any) -> Layout:
    mesh = tensor.device_mesh

    def places(shape: tuple[int, ...]) -> list[tuple[Any, tuple[slice, ...]]]:
        index = slices_here(tensor, shape)
        return [] if index is None else [(tensor.to_local().device, index)]

    def put_together(shape: tuple[int, ...], parts: list[Any]) -> Any:
        torch = sys.modules["torch"]
        local = parts[0] if parts else torch.empty(0, dtype=tensor.dtype, device=mesh.device_type)
        if shape == tuple(tensor.shape) and local.stride() == tensor.to_local().stride():
            stride = tensor.stride()
        else:
            local, stride = local.contiguous(), torch.empty(shape, device="meta").stride()
        return torch.distributed.tensor.DTensor.from_local(
            local, mesh, tensor.placements, run_check=False, shape=torch.Size(shape), stride=stride)

    return Layout("torch", tuple(tensor.shape), places, put_together)


LIBRARY = Library(
    name="torch",
    arrays=(
        Arrays(
            "Tensor",
            {
                "is_sparse": "pass x.to_dense()",
                "is_sparse_csr": "pass x.to_dense()",
                "is_compressed": "pass x.to_dense()",
                "is_mkldnn": "pass x.to_dense()",
                "is_nested": "pass x.to_padded_tensor(0.0), or its parts, x.unbind()",
                "is_quantized": "pass x.int_repr(), or x.dequantize()",
                "is_wrapper": hint_for_wrapper,
                "is_meta": 'pass torch.empty_like(x, device="cpu"), filled first',
                "dtype": "pass x.view(torch.uint8)",
                "contiguous": "pass x.contiguous()",
                "bits": "pass its bits, x.contiguous().view(torch.uint8)",
            },
            refused=(       # in this order
                Fact("is_sparse", SEEN, "keeps its elements by index"),
                Fact("is_sparse_csr", SEEN, "keeps its elements by index"),
                Fact(is_compressed, SEEN, "keeps its elements by index"),
                Fact("is_mkldnn", SEEN, "keeps its elements in an opaque layout"),
                Fact("is_nested", SEEN, "is a list of tensors"),
                Fact("is_quantized", SEEN, "keeps a scale beside its integers"),
                Fact("is_meta", SEEN, "has a shape but no memory"),
                Fact(is_wrapper, SEEN, "keeps other tensors in place of memory, such as integers and a scale"),
            ),
            form_name=Fact(form_name, SEEN, "keeps them in the order of a layout"),
            container=Fact(form_of_wrapper, SEEN, "exports an address of NULL of such a class"),
            exchange=Fact("torch.Tensor", SEEN, "has an exchange table since 2.10"),
            rearranged=Fact(rearranged, SEEN, "has the kernels for it, and dlbridge has none"),
            names_stream=Fact(True, SEEN, "gives the current stream of the device"),
            shells=Fact(tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)), SEEN,
                        "exports types below a byte as int8 and uint8"),
            owned_on=Fact("metal", "pytorch#182924", "adds the offset of a slice to a handle in the borrowed view"),
        ),
        Arrays(
            "Parameter",
            exchange=Fact("torch.nn.parameter.Parameter", SEEN, "inherits the table"),
        ),
        Arrays("NestedTensor", form_name=Fact("ragged", SEEN, "has the layout jagged")),
        Arrays("ReadOnlyTensorWrapper",
               gives=Fact(unwrapped, "seen in 2.15.0", "raises an error for all but its own export"),
               unflagged=Fact(True, "seen in 2.15.0", "says it by its type alone")),
        Arrays("DTensor", {"no_memory": "pass x.to_local(), the part of this process, or x.full_tensor()"},
               no_memory=Fact(True, SEEN, "exports an address of NULL"),
               shards=Fact(shards_of, SEEN, "has a part in each process")),
        Arrays("MaskedTensor", {"type": "pass x.to_tensor(0), or x.get_data() if the mask does not matter"},
               unasked=Fact("keeps a mask beside its values", SEEN, "exports neither"),
               form_name=Fact(is_one_array, SEEN, "may have a layout of sparse tensors"),
               has_mask=Fact(lambda tensor: True, SEEN, "has a mask that says what is valid")),
        Arrays("UninitializedTensorMixin", {"type": "call its module once, or x.materialize(shape), before"},
               unasked=Fact("has no shape and no memory yet", SEEN, "raises an error for whatever it is asked")),
        Arrays("AsyncCollectiveTensor", {"type": "pass x.wait()"},
               unasked=Fact("is on its way from other processes", SEEN, "exports an address of NULL")),
        Arrays("Proxy", {"type": "call what needs its values outside of torch.fx, or mark it by torch.fx.wrap"},
               unasked=Fact("stands for a value that there is not yet", SEEN, "answers everything by another proxy")),
        Arrays("FakeTensor", {"no_memory": "convert outside of torch.compile and FakeTensorMode"},
               no_memory=Fact(True, SEEN, "has a shape alone")),
    ),
    private=Fact("_core.native.libtorch", "seen in 2.15.0", "answers by its C++ functions what methods of Python do "
                 "more slowly", since="2.10", below="2.16"),
    delivery="torch",
    importer="from_dlpack",
    array_types=("Tensor",),
    forms={
        "csr": compressed("csr"),
        "coo": Form(
            ("sparse_coo",), parts_of_coo, new_coo, dense="x.to_dense()",
            of_dense='dlbridge.convert(x, "torch").to_sparse()', elements=lambda tensor: tensor.detach()._values(),
            detached=detached, index_types=("int64",), dense_axes=True,
            sparse=Sparse("rows", lambda tensor: (tensor.is_coalesced(), tensor.is_coalesced()),
                          made="x.to_sparse()")),
        **{name: compressed(name) for name in ("csc", "bsr", "bsc")},
        "masked": Form(
            ("MaskedTensor",), parts_of_masked, new_masked, check_masked, dense="x.to_tensor(0)",
            of_dense='torch.masked.masked_tensor(dlbridge.convert(x, "torch"), torch.ones(x.shape, dtype=bool))',
            elements=lambda tensor: tensor.get_mask(), detached=detached, duplicate=clone,
            copies="a MaskedTensor copies what it is made of", masked=Masked(opposite=True)),
        "ragged": Form(
            ("jagged", "NestedTensor"), parts_of_jagged, new_jagged, dense="x.to_padded_tensor(0.0)",
            of_dense='torch.nested.as_nested_tensor(dlbridge.convert(x, "torch"), layout=torch.jagged)',
            elements=lambda tensor: tensor.detach().values(), detached=detached, index_types=("int64",),
            dense_axes=True, ragged=Ragged(axes=1)),
    },
    clone=Fact(clone, SEEN, "has gradients, lazy bits, and layouts that are no memory"),
    written=Fact(lambda tensor: sys.modules["torch"].autograd.graph.increment_version(tensor), SEEN,
                 "would not notice that a tensor was written which it needs for a gradient"),
    moves={"cuda": '.to("cuda{}")', "rocm": '.to("cuda{}")', "metal": '.to("mps{}")'},
    lacks=(
        Fact("NEGATIVE_STRIDES", "pytorch#188023", "aborts the process in 2.13, and has no such tensors later"),
        ELEMENT_STRIDES,
        Fact("SWAPPED_BYTES", "pytorch#9508", "has native byte order only"),
        Fact("PINNED", "pytorch#96318", "knows pinned memory as the CPU's, and refuses the device type"),
        Fact("UNIFIED", "pytorch#96318", "refuses the device type"),
        Fact("READ_ONLY", SEEN, "ignores the read-only flag, and writes"),
        Fact("PACKED", "pytorch#146414", "packs float4 as a type of two lanes, and has no other packed type"),
        Fact("PADDED", "pytorch#146414", "has no type of one sub-byte element in a byte"),
    ),
    dtypes=(
        Fact(("bool", *INTEGERS, *FLOATS, "complex32", *COMPLEX, "bfloat16", *FLOAT8, "float4_e2m1fn_x2"),
             SEEN),
    ),
    aligned_dtypes=Fact(("complex128",), SEEN, "ends the process in kernels over what is not aligned to 16 bytes"),
    dtype_namespace="",
    layouts=Fact({"DTensor": layout_of}, SEEN, "has a part in each process"),
    streams=Fact({"Stream": is_own}, SEEN, "does not keep an external stream alive"),
)
