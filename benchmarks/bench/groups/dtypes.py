"""bfloat16, which NumPy has through ml_dtypes; the libraries' own way is a view as int16 in between."""

from bench.rows import Group, Row

GROUP = Group("bfloat16", (
    Row("bfloat16 ndarray -> torch", 'dlbridge.convert(bfloat16_ndarray, to="torch")', {
        "int16 views": 'torch.from_numpy(bfloat16_ndarray.view("i2")).view(torch.bfloat16)',
    }, "floors.bfloat16_to_torch(bfloat16_ndarray)"),
    Row("bfloat16 tensor -> numpy", 'dlbridge.convert(bfloat16_tensor, to="numpy")', {
        "int16 views": "bfloat16_tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)",
    }, "floors.bfloat16_to_numpy(bfloat16_tensor)"),
))
