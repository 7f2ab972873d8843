"""sparse, of PyData: sparse arrays with any number of axes, over arrays of NumPy."""

import sys
from typing import Any

from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.library import Arrays, Fact, Form, Library, Sparse
from dlbridge.libraries.profiles import COMPLEX, INTEGERS

SEEN = "seen in 0.19.3"
AXES = {"csr": (0,), "csc": (1,)}


def form_name(array: Any) -> str:
    """COO; of GCXS the compressed axis of a matrix says it."""
    axes = getattr(array, "compressed_axes", None)
    names = [name for name, compressed in AXES.items() if axes == compressed and array.ndim == len(AXES)]
    return names[0] if names else type(array).__name__.lower()


def check_fill(array: Any) -> None:
    if array.fill_value != 0:
        raise refusal(ConversionError, "sparse", "fill_value", array.fill_value, "is not 0, which it is elsewhere",
                      "pass x.todense()")


def parts_of_coo(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    check_fill(array)
    return array.shape, [array.data, array.coords]


def new_coo(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    data, coords = parts
    is_canonical = is_sorted and is_unique
    return (kind or sys.modules["sparse"].COO)(
        coords, data, shape, has_duplicates=not is_canonical, sorted=is_canonical)


def parts_of_compressed(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    check_fill(array)
    return array.shape, [array.data, array.indices, array.indptr]


def compressed(form: str) -> Form:
    def put_together(
        kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool,
    ) -> Any:
        return (kind or sys.modules["sparse"].GCXS)(tuple(parts), shape, compressed_axes=AXES[form])

    axes = AXES[form]
    return Form(("GCXS",), parts_of_compressed, put_together, dense="x.todense()",
                of_dense=f'sparse.GCXS.from_numpy(dlbridge.convert(x, "numpy"), compressed_axes={axes})',
                sparse=Sparse(looks=True, canonical=True, ordered=f"sparse.GCXS(x.tocoo(), compressed_axes={axes})",
                              made=f'x.asformat("gcxs", compressed_axes={axes})'))


LIBRARY = Library(
    name="sparse",
    arrays=(Arrays("SparseArray", {"": "pass x.todense()"}, form_name=Fact(form_name, SEEN)),),
    delivery="forms",
    array_types=("SparseArray",),
    parts_of="numpy",
    lacks=(Fact("SWAPPED_BYTES", SEEN, "compiles functions for native byte order alone"),),
    dtypes=(Fact(("bool", *INTEGERS, "float32", "float64", *COMPLEX), SEEN, "compiles functions for these alone"),),
    duplicate=Fact(lambda array, detach: array.copy(), SEEN),
    forms={
        "coo": Form(("COO",), parts_of_coo, new_coo, dense="x.todense()",
                    of_dense='sparse.COO.from_numpy(dlbridge.convert(x, "numpy"))',
                    sparse=Sparse("rows", lambda array: (True, True), canonical=True, made='x.asformat("coo")')),
        **{form: compressed(form) for form in AXES},
    },
)
