"""The cost of size and of axes where nothing is copied; the 1 GiB of memory is reserved, and never touched."""

from bench.rows import Group, Row

NDIMS = (*range(1, 9), 64)
INPUTS = {
    "large_ndarray": "numpy.empty((2**14, 2**14), 'f4')",
    "large_tensor": "torch.empty(2**14, 2**14)",
    **{f"ndarray_{ndim}": f"numpy.ones((1,) * {ndim - 1} + (12,), 'f4')" for ndim in NDIMS},
    **{f"tensor_{ndim}": f"torch.ones((1,) * {ndim - 1} + (12,))" for ndim in NDIMS},
}


def rows(source: str, to: str, native: str) -> tuple[Row, ...]:
    """Make the rows of one pair of libraries."""
    each = tuple(f'dlbridge.convert({source}_{ndim}, to="{to}")' for ndim in range(1, 9))
    return (
        Row(f"1 GiB {source} -> {to}", f'dlbridge.convert(large_{source}, to="{to}")', {
            "48 bytes": f'dlbridge.convert({source}, to="{to}")',
        }),
        Row(f"slowest of ndim 1 to 8, {source} -> {to}", each, {
            "the fastest": each,
            f"{native}, 8-d": f"{native}({source}_8)",
        }),
        Row(f"64-d {source} -> {to}", f'dlbridge.convert({source}_64, to="{to}")', {native: f"{native}({source}_64)"}),
    )


GROUP = Group("size and axes", (
    *rows("ndarray", "torch", "torch.from_numpy"),
    *rows("tensor", "numpy", "torch.Tensor.numpy"),
), INPUTS)
