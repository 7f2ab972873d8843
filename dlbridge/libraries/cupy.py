"""CuPy: arrays of GPUs, by DLPack and the CUDA array interface, and made by CuPy's constructor."""

import importlib
import sys
from operator import attrgetter
from typing import Any

from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.library import Arrays, Fact, Form, Library, Sparse, TooWide, keeps_stream
from dlbridge.libraries.profiles import COMPLEX, FLOAT8, FLOATS, INTEGERS, LENGTH_1_STRIDES


def device_named(device: Any) -> str:
    """Builds for ROCm have the same devices."""
    return f"{'rocm' if sys.modules['cupy'].cuda.runtime.is_hip else 'cuda'}:{device.id}"


def current_stream(array: Any, index: int) -> Any:
    """CuPy's current stream on a device. No array knows the stream that it was written on."""
    return sys.modules["cupy"].cuda.get_current_stream(index)


def element_type(array: Any) -> str | None:
    """The dtype where it is one of ml_dtypes, by whose typestr nobody can tell it from other bytes."""
    name = str(array.dtype)
    return name if name in ("bfloat16", *FLOAT8) else None


def rearranged(array: Any, dtype: str | None) -> Any:
    """A compact copy; bools, which memory of others may have as any byte, are compared with 0."""
    cupy = sys.modules["cupy"]
    with array.device:
        if array.dtype == bool:
            return cupy.asarray(array.view("uint8") != 0, order="C")    # ascontiguousarray() makes an axis of none
        if dtype is None:
            return array.copy("C")
        made = array.astype(dtype, "C")
        if dtype == "int32":
            kept = made == array
        else:       # each part of a complex number is one
            kept = (cupy.isfinite(made.real) | ~cupy.isfinite(array.real)) & (
                cupy.isfinite(made.imag) | ~cupy.isfinite(array.imag))
        if not kept.all():
            raise TooWide
        return made


def keeps_handle(stream: Any) -> bool:
    """Whether a stream is CuPy's own, or made of an object of another library that keeps its stream alive."""
    foreign = getattr(stream, "_foreign_stream_ref", None)
    return foreign is None or keeps_stream(foreign)


# ---- sparse arrays ---------------------------------------------------------------------------------------------------

SPARSE_DTYPES = ("bool", "float32", "float64", "complex64", "complex128")


def parts_of_coo(matrix: Any) -> tuple[tuple[int, ...], list[Any]]:
    return matrix.shape, [matrix.data, matrix.coords if hasattr(matrix, "coords") else (matrix.row, matrix.col)]


def parts_of_compressed(matrix: Any) -> tuple[tuple[int, ...], list[Any]]:
    return matrix.shape, [matrix.data, matrix.indices, matrix.indptr]


def check_sparse(kind: Any, shape: tuple[int, ...], dtype: str, values: Any) -> None:
    if dtype not in SPARSE_DTYPES:
        raise refusal(ConversionError, "cupy", "dtype", dtype, "is none that its sparse arrays have",
                      "convert it to float32 first")


def form_of(form: str, take_apart: Any) -> Form:
    def put_together(
        kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool,
    ) -> Any:
        sparse = importlib.import_module("cupyx.scipy.sparse")
        kind = kind or getattr(sparse, f"{form}_array", None) or getattr(sparse, f"{form}_matrix")
        with parts[0].device:               # whose kernels the constructor runs
            return kind(tuple(parts), shape=shape)

    return Form((f"{form}_array", f"{form}_matrix"), take_apart, put_together, check_sparse, dense="x.toarray()",
                of_dense=f'cupyx.scipy.sparse.{form}_matrix(dlbridge.convert(x, "cupy"))', elements=attrgetter("data"),
                index_types=index_types, sparse=Sparse(made=f"x.to{form}()"))


def index_types(kind: Any) -> tuple[str, ...]:
    """Before CuPy 14, which has arrays beside its matrices, there is int32 alone."""
    has_arrays = hasattr(importlib.import_module("cupyx.scipy.sparse"), "csr_array")
    return ("int32", "int64") if has_arrays else ("int32",)


LIBRARY = Library(
    name="cupy",
    roots=("cupy", "cupyx"),
    install="'dlbridge[cupy]'",
    arrays=(
        Arrays(
            "ndarray",
            preferred=Fact("cuda_array_interface", "seen in 14.2",
                           "names its current stream, so the way back can be ordered too; __dlpack__ is told the "
                           "consumer's, and waits by itself"),
            unordered_export=Fact(True, "seen in 14.2",
                                  "makes a capsule in a third of the time that its interface takes; but it divides "
                                  "strides as unsigned numbers, without a remainder: where they go backwards or are no "
                                  "whole elements, the interface is read", since="14"),
            element_type=Fact(element_type, "seen in 14.2", "says of bfloat16 that it is 2 bytes of anything"),
            rearranged=Fact(rearranged, "seen in 14.2", "has the kernels for it, and dlbridge has none"),
            stream_object=Fact(current_stream, "seen in 14.2",
                               "names the current stream of the current device, which need not be the array's"),
        ),
        *(Arrays(name, {"": "pass x.toarray()"}, form_name=Fact(attrgetter("format"), "seen in 14.2"))
          for name in ("_spbase", "spmatrix")),
    ),
    delivery="cupy",
    array_types=("ndarray",),
    forms={"csr": form_of("csr", parts_of_compressed), "csc": form_of("csc", parts_of_compressed),
           "coo": form_of("coo", parts_of_coo)},
    devices=Fact({"Device": device_named}, "seen in 14.2"),
    streams=Fact({"Stream": keeps_handle, "ExternalStream": lambda stream: False}, "seen in 14.2",
                 "leaves the life of an external stream to the program"),
    lacks=(
        Fact("HOST", "seen in 14.2", "has the memory of GPUs only"),
        Fact("PINNED", "seen in 14.2", "refuses the device type"),
        Fact("ODD_STRIDES", "seen in 14.2", "exports strides as whole elements"),
        LENGTH_1_STRIDES,
        Fact("SWAPPED_BYTES", "seen in 14.2", "has native byte order only"),
        Fact("READ_ONLY", "seen in 14.2", "ignores the read-only flag"),
        Fact("PACKED", "seen in 14.2", "has no elements below a byte"),
        Fact("PADDED", "seen in 14.2", "has no elements below a byte"),
    ),
    dtypes=(Fact(("bool", *INTEGERS, *FLOATS, *COMPLEX, "bfloat16"), "seen in 14.2"),),
)
