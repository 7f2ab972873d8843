"""SciPy: sparse arrays and matrices, over arrays of NumPy."""

import sys
from operator import attrgetter
from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Form, Library, Sparse
from dlbridge.libraries.profiles import COMPLEX, INTEGERS
from dlbridge.libraries.scipy_flags import known

SEEN = "seen in 1.17.1"
MATRIX = {"": "pass x.as_matrix()"}
COEFFICIENTS = {"": "pass x.c, its coefficients"}


def hint_for_sparse(matrix: Any) -> str:
    """What shares the memory of the three arrays that some formats have, too."""
    compressed = ", or call dlbridge.convert_tree((x.indptr, x.indices, x.data), to)"
    return "pass x.toarray()" + (compressed if hasattr(matrix, "indptr") else "")


def hint_for_variables(file: Any) -> str:
    name = next(iter(file.variables), None)
    return "it has no variables" if name is None else f"pass its variables one by one, x.variables[{name!r}][:]"


def parts_of_coo(matrix: Any) -> tuple[tuple[int, ...], list[Any]]:
    coords = matrix.coords if hasattr(matrix, "coords") else (matrix.row, matrix.col)       # before 1.13
    return matrix.shape, [matrix.data, coords]


def parts_of_compressed(matrix: Any) -> tuple[tuple[int, ...], list[Any]]:
    return matrix.shape, [matrix.data, matrix.indices, matrix.indptr]


def new(form: str, kind: Any, shape: tuple[int, ...], data: Any) -> Any:
    """A matrix without elements, of a type or of the form's own.

    Its constructor would narrow the indices that it is given, by a copy.
    """
    kind = kind or getattr(sys.modules["scipy.sparse"], f"{form}_array")
    blocks = {"blocksize": data.shape[1:]} if form == "bsr" else {}
    return kind(shape, dtype=data.dtype, **blocks)


def new_coo(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    made = new("coo", kind, shape, parts[0])
    made.data, coords = parts
    if hasattr(made, "coords"):
        made.coords = coords
    else:
        made.row, made.col = coords
    made.has_canonical_format = is_sorted and is_unique
    return made


def compressed(form: str) -> Form:
    def put_together(
        kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool,
    ) -> Any:
        made = new(form, kind, shape, parts[0])
        made.data, made.indices, made.indptr = parts
        if is_sorted:           # else SciPy looks when it needs to know
            made.has_canonical_format = is_unique
            made.has_sorted_indices = True
        return made

    return Form((f"{form}_array", f"{form}_matrix"), parts_of_compressed, put_together, dense="x.toarray()",
                of_dense=f'scipy.sparse.{form}_array(dlbridge.convert(x, "numpy"))', elements=attrgetter("data"),
                index_types=("int32", "int64"),
                sparse=Sparse(says=known, ordered=f"x.tocoo().to{form}()", made=f"x.to{form}()"))


FORMS = {
    "csr": compressed("csr"),
    "coo": Form(("coo_array", "coo_matrix"), parts_of_coo, new_coo, dense="x.toarray()",
                of_dense='scipy.sparse.coo_array(dlbridge.convert(x, "numpy"))', elements=attrgetter("data"),
                index_types=("int32", "int64"),
                sparse=Sparse(says=lambda matrix: (matrix.has_canonical_format, matrix.has_canonical_format),
                              made="x.tocoo()")),
    "csc": compressed("csc"),
    "bsr": compressed("bsr"),
}

LIBRARY = Library(
    name="scipy",
    module="scipy.sparse",
    versions="scipy",
    install="scipy",
    arrays=(
        *(Arrays(f"{form}_{kind}", form_name=Fact(form, SEEN)) for form in FORMS for kind in ("array", "matrix")),
        Arrays("_spbase", {"": hint_for_sparse}, form_name=Fact(attrgetter("format"), SEEN)),
        Arrays("netcdf_file", {"": hint_for_variables}),
        Arrays("netcdf_variable", {"": "pass x[:]"}),
        Arrays("Rotation", MATRIX),
        Arrays("RigidTransform", MATRIX),
        Arrays("BSpline", COEFFICIENTS),
        Arrays("PPoly", COEFFICIENTS),
    ),
    private=Fact("libraries.scipy_flags", SEEN, "looks at all indices when it is asked, and keeps the answer",
                 below="1.18"),
    delivery="forms",
    array_types=("sparray", "spmatrix"),
    parts_of="numpy",
    lacks=(Fact("SWAPPED_BYTES", SEEN, "computes with native byte order only"),),
    dtypes=(Fact(("bool", *INTEGERS, "float32", "float64", *COMPLEX), SEEN),),
    duplicate=Fact(lambda matrix, detach: matrix.copy(), SEEN, "has formats that are no arrays side by side"),
    forms=FORMS,
)
