"""Arrays that are several arrays, beside what people write by hand; goals_all.json has the goals."""

from typing import Any

from bench.rows import Group, Row

CSR = ("torch.sparse_csr_tensor(torch.from_numpy({0}.indptr), torch.from_numpy({0}.indices), "
       "torch.from_numpy({0}.data), ")
COO = 'torch.sparse_coo_tensor(torch.from_numpy(numpy.stack({0}.coords).astype("i8")), torch.from_numpy({0}.data), '
JAGGED = "torch.nested.nested_tensor_from_jagged(torch.from_numpy({}), torch.from_numpy({}))"


def matrix(scipy: Any, numpy: Any, form: str, rows: int, columns: int, density: float) -> Any:
    """Make a sparse matrix of float32, with int32 indices."""
    return scipy.sparse.random_array((rows, columns), density=density, format=form, dtype="float32",
                                     rng=numpy.random.default_rng(0))


def to_torch(name: str, code: str, by_hand: str, share: float = 1.0) -> Row:
    """Make the row of a matrix of SciPy."""
    return Row(f"{name} -> torch", f'dlbridge.convert({code}, to="torch")', {
        "by hand": f"{by_hand.format(code)}{code}.shape)",
        "by hand, checked": f"{by_hand.format(code)}{code}.shape, check_invariants=True)"}, share=share)


GROUP = Group("several arrays in one", (
    to_torch("CSR of SciPy, 20 x 30", "small", CSR),
    to_torch("COO of SciPy, 20 x 30", "small_coo", COO),
    Row("CSR of torch, 20 x 30 -> SciPy", 'dlbridge.convert(tensor_csr, to="scipy")', {
        "by hand": "scipy.sparse.csr_array((tensor_csr.values().numpy(), tensor_csr.col_indices().numpy(), "
                   "tensor_csr.crow_indices().numpy()), shape=tuple(tensor_csr.shape))"}),
    to_torch("CSR of SciPy, 6,000,000 elements", "large", CSR, share=0.02),
    to_torch("COO of SciPy, 6,000,000 elements", "large_coo", COO, share=0.02),
    Row("lists of pyarrow -> torch", 'dlbridge.convert(lists, to="torch", readonly="share")', {
        "by hand": JAGGED.format("lists.values.to_numpy()", "lists.offsets.to_numpy()")}),
    Row("awkward -> torch", 'dlbridge.convert(ragged, to="torch")', {
        "by hand": JAGGED.format("ragged.layout.content.data", "ragged.layout.offsets.data")}),
), {
    "small": "matrix(scipy, numpy, 'csr', 20, 30, 0.2)",
    "small_coo": "small.tocoo()",
    "tensor_csr": "dlbridge.convert(small, 'torch')",
    "large": "matrix(scipy, numpy, 'csr', 100_000, 20_000, 0.003)",
    "large_coo": "large.tocoo()",
    "lists": "pyarrow.array([[1.0, 2.0], [], [3.0]] * 10, pyarrow.large_list(pyarrow.float64()))",
    "ragged": "awkward.Array([[1.0, 2.0], [], [3.0]] * 10)",
})
