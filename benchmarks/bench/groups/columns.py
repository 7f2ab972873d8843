"""What people's tables, files and frameworks hold beside plain arrays; goals_all.json has the goals."""

from typing import Any

from bench.rows import Group, Row

PIXELS = {"float32": "f4", "float64": "f8"}


def subclass_of(torch: Any) -> type[Any]:
    """Make a subclass of torch.Tensor that adds nothing, as most do."""
    return type("Image", (torch.Tensor,), {})


GROUP = Group("columns", (
    Row("pandas.DataFrame of one block -> numpy", 'dlbridge.convert(block, to="numpy")', {
        "to_numpy": "block.to_numpy()"}),
    Row("pandas.DataFrame of one block, 50 columns -> torch", 'dlbridge.convert(wide_block, to="torch")', {
        "tensor": "torch.tensor(wide_block.to_numpy())"}, share=0.1),
    Row("pandas.Series, int64[pyarrow] -> numpy", 'dlbridge.convert(arrow_series, to="numpy")', {
        "to_numpy": "arrow_series.to_numpy()"}),
    Row("pandas.Series, Int64 -> numpy", 'dlbridge.convert(nullable, to="numpy")', {
        "to_numpy": 'nullable.to_numpy("int64")'}, share=0.1),
    Row("pandas.Series, boolean -> numpy", 'dlbridge.convert(nullable_bools, to="numpy")', {
        "to_numpy": 'nullable_bools.to_numpy("bool")'}, share=0.1),
    Row("pandas.Series -> numpy", 'dlbridge.convert(series, to="numpy")', {"to_numpy": "series.to_numpy()"}),
    Row("MaskedArray without a mask -> torch", 'dlbridge.convert(masked, to="torch")', {
        "from_numpy": "torch.from_numpy(masked)"}),
    Row("subclass of torch.Tensor -> numpy", 'dlbridge.convert(image, to="numpy")', {"Tensor.numpy": "image.numpy()"}),
    Row("ndarray -> subclass of torch.Tensor", "dlbridge.convert(ndarray, to=image)", {
        "from_numpy": "torch.from_numpy(ndarray)"}),
    Row("transposed float64 -> jax, narrowed", 'dlbridge.convert(numbers.T, to="jax", narrow=True)', {
        "in C order": 'dlbridge.convert(numbers, to="jax", narrow=True)'}, share=0.15),
    *(Row(f"square image of {name}, flipped -> torch", f'dlbridge.convert(square_{code}[:, ::-1], to="torch")', {
        "copy": f"torch.from_numpy(square_{code}[:, ::-1].copy())"}, share=0.15) for name, code in PIXELS.items()),
    Row("image of uint8, upside down -> torch", 'dlbridge.convert(high[::-1], to="torch")', {
        "copy": "torch.from_numpy(high[::-1].copy())"}, share=0.15),
), {
    "block": "pandas.DataFrame(numpy.ones((1000, 4)))",
    "wide_block": "pandas.DataFrame(numpy.ones((1000, 50)))",
    "arrow_series": "pandas.Series(pandas.array(numpy.arange(1000), dtype='int64[pyarrow]'))",
    "nullable": "pandas.Series(numpy.arange(100_000), dtype='Int64')",
    "nullable_bools": "pandas.Series(numpy.ones(100_000, bool), dtype='boolean')",
    "series": "pandas.Series(numpy.arange(1000.0))",
    "masked": "numpy.ma.array(numpy.ones(5))",
    "image": "torch.ones(3, 4).as_subclass(subclass_of(torch))",
    "numbers": "numpy.random.default_rng(0).random((512, 512))",
    **{f"square_{code}": f"numpy.ones((512, 512, 3), '{code}')" for code in PIXELS.values()},
    "high": "numpy.ones((1080, 1920, 3), 'u1')",
})
