"""What people wait for: images, files in the other byte order, batches, tables; goals_all.json has the goals.

The sizes are those of one image, one column or one batch.
"""

from typing import Any

from bench.rows import Group, Row

IMAGES = {"flipped": "[:, ::-1]", "BGR to RGB": "[..., ::-1]"}
TYPES = {"uint8": "u1", "float32": "f4", "float64": "f8"}
ORDERS = {
    "Fortran order": "numpy.asfortranarray(numpy.ones((1000, 2000), '>f4'))",
    "channels_last": "numpy.ones((8, 64, 64, 32), '>f4').transpose(0, 3, 1, 2)",
    "C order": "numpy.ones((1000, 1000), '>f8')",
}
NARROW = {"float64": "f4", "int64": "i4", "complex128": "c8"}
SAMPLES = {
    "64 ints": "list(range(64))",
    "64 numbers of NumPy": "list(numpy.arange(64))",
    "64 small tensors": "[torch.ones(3) for _ in range(64)]",
    "64 dictionaries": "[{'x': torch.ones(3), 'y': index} for index in range(64)]",
    "64 small ndarrays": "[numpy.ones((3, 4), 'f4') for _ in range(64)]",
    "16 images": "[numpy.ones((3, 224, 224), 'f4') for _ in range(16)]",
}
COLUMNS = "{f'c{index}': numpy.arange(1000.0) + index for index in range(100)}"


def accepting(dlbridge: Any, to: str) -> Any:
    """Make a function that returns its argument, behind ``dlbridge.accepts``."""
    return dlbridge.accepts(to, returns="like")(lambda array: array)


def image_rows() -> list[Row]:
    return [
        Row(f"image of {bands} bands of {name}, {view} -> torch",
            f'dlbridge.convert(image_{code}_{bands}{index}, to="torch")',
            {"copy": f"torch.from_numpy(image_{code}_{bands}{index}.copy())"}, share=0.15)
        for bands in (3, 4) for name, code in TYPES.items() for view, index in IMAGES.items()]


def copy_rows() -> list[Row]:
    swapped = [
        Row(f"big-endian, {name} -> torch", f'dlbridge.convert(swapped_{number}, to="torch")',
            {"astype": f"torch.from_numpy(swapped_{number}.astype(native_{number}))"}, share=0.15)
        for number, name in enumerate(ORDERS)]
    narrowed = [
        Row(f"{wide} -> jax, narrowed", f'dlbridge.convert({wide}, to="jax", narrow=True)',
            {"astype": f"jax.dlpack.from_dlpack({wide}.astype('{narrow}'))"}, share=0.15)
        for wide, narrow in NARROW.items()]
    return [*swapped, *narrowed, Row("read-only bools -> torch", 'dlbridge.convert(bools, to="torch")',
                                     {"astype": "torch.from_numpy(bools.astype(bool))"})]


def collate_rows() -> list[Row]:
    return [
        Row(f"collate {name}", f"dlbridge.collate(samples_{number})",
            {"default_collate": f"torch.utils.data.default_collate(samples_{number})"}, share=0.15)
        for number, name in enumerate(SAMPLES)]


TABLES = [
    Row("pandas.DataFrame of 100 columns -> torch", 'dlbridge.convert_tree(frame, to="torch", readonly="share")', {
        "from_numpy": "{name: torch.from_numpy(frame[name].to_numpy()) for name in frame}"}, share=0.1),
    Row("pyarrow.Table of 100 columns -> torch", 'dlbridge.convert_tree(table, to="torch", readonly="share")', {
        "from_numpy": "{name: torch.from_numpy(table[name].to_numpy()) for name in table.column_names}"}, share=0.1),
    Row("pandas.Series -> numpy", 'dlbridge.convert(pandas_series, to="numpy")', {
        "to_numpy": "pandas_series.to_numpy()"}),
    Row("pyarrow.Array -> numpy", 'dlbridge.convert(arrow_array, to="numpy")', {"to_numpy": "arrow_array.to_numpy()"}),
    Row("polars.Series -> numpy", 'dlbridge.convert(polars_series, to="numpy")', {
        "to_numpy": "polars_series.to_numpy()"}),
]

GROUP = Group("everyday", (
    *image_rows(), *copy_rows(), *collate_rows(), *TABLES,
    Row("number of NumPy -> torch", 'dlbridge.convert(number, to="torch")', {"as_tensor": "torch.as_tensor(number)"}),
    Row("accepts, returns like, one array", "there_and_back(ndarray)", {
        "by hand": "torch.from_numpy(ndarray).numpy()"}),
), {
    **{f"image_{code}_{bands}": f"numpy.ones((480, 640, {bands}), '{code}')"
       for code in TYPES.values() for bands in (3, 4)},
    **{f"swapped_{number}": expression for number, expression in enumerate(ORDERS.values())},
    **{f"native_{number}": f"swapped_{number}.dtype.newbyteorder('=')" for number in range(len(ORDERS))},
    "float64": "numpy.ones((1000, 1000))",
    "int64": "numpy.ones((1000, 1000), 'i8')",
    "complex128": "numpy.ones((500, 1000), 'c16')",
    "bools": "numpy.broadcast_to(numpy.ones((1000, 1000), bool), (1000, 1000))",
    **{f"samples_{number}": expression for number, expression in enumerate(SAMPLES.values())},
    "frame": f"pandas.DataFrame({COLUMNS})",
    "table": f"pyarrow.table({COLUMNS})",
    "pandas_series": "pandas.Series(numpy.arange(1000.0))",
    "arrow_array": "pyarrow.array(numpy.arange(1000.0))",
    "polars_series": "polars.Series(numpy.arange(1000.0))",
    "number": "numpy.float64(3)",
    "there_and_back": "accepting(dlbridge, 'torch')",
})
