"""Groups that are rows and nothing else: one library's arrays as another's, each call beside the library's own.

Paddle and the tables are of the extra ``all``; their goals are in ``benchmarks/goals_all.json``.
"""

from bench.rows import Group, Row

COLUMNS = "{str(n): numpy.arange(1000.0) for n in range(8)}"

PAIRS = {
    "numpy_torch": Group("NumPy to torch", (
        Row("ndarray -> torch", 'dlbridge.convert(ndarray, to="torch")', {
            "torch.from_numpy": "torch.from_numpy(ndarray)",
            "torch.from_dlpack": "torch.from_dlpack(ndarray)",
        }, "floors.numpy_to_torch(ndarray)"),
    )),
    "torch_numpy": Group("torch to NumPy", (
        Row("tensor -> numpy", 'dlbridge.convert(tensor, to="numpy")', {
            "Tensor.numpy": "tensor.numpy()",
            "numpy.from_dlpack": "numpy.from_dlpack(tensor)",
        }, "floors.torch_to_numpy(tensor)"),
        Row("int64 tensor -> numpy", 'dlbridge.convert(integers, to="numpy")', {
            "Tensor.numpy": "integers.numpy()",
            "numpy.from_dlpack": "numpy.from_dlpack(integers)",
        }, "floors.torch_to_numpy(integers)"),
    ), {"integers": "torch.ones(3, 4, dtype=torch.int64)"}),
    "from_jax": Group("from JAX", (
        Row("jax -> torch", 'dlbridge.convert(jax_array, to="torch", readonly="share")', {
            "torch.from_dlpack": "torch.from_dlpack(jax_array)",
            "torch.from_numpy": "torch.from_numpy(numpy.asarray(jax_array))",
        }, "floors.jax_to_torch(jax_array)"),
        Row("jax -> numpy", 'dlbridge.convert(jax_array, to="numpy")', {
            "numpy.asarray": "numpy.asarray(jax_array)",
            "numpy.from_dlpack": "numpy.from_dlpack(jax_array)",
        }, "floors.jax_to_numpy(jax_array)"),
    )),
    "buffers": Group("buffers", (
        Row("bytearray -> torch", 'dlbridge.convert(buffer, to="torch")', {
            "torch.frombuffer": "torch.frombuffer(buffer, dtype=torch.uint8)",
        }, "floors.buffer_to_torch(buffer)"),
        Row("bytes -> torch", 'dlbridge.convert(read_only, to="torch", readonly="share")', {
            "torch.frombuffer": "torch.frombuffer(read_only, dtype=torch.uint8)",
        }),
        Row("bytearray -> numpy", 'dlbridge.convert(buffer, to="numpy")', {
            "numpy.frombuffer": "numpy.frombuffer(buffer, 'u1')",
        }),
    ), {"read_only": "bytes(48)"}),
    "dtypes": Group("bfloat16", (
        Row("bfloat16 ndarray -> torch", 'dlbridge.convert(bfloat16_ndarray, to="torch")', {
            "int16 views": 'torch.from_numpy(bfloat16_ndarray.view("i2")).view(torch.bfloat16)',
        }, "floors.bfloat16_to_torch(bfloat16_ndarray)"),
        Row("bfloat16 tensor -> numpy", 'dlbridge.convert(bfloat16_tensor, to="numpy")', {
            "int16 views": "bfloat16_tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)",
        }, "floors.bfloat16_to_numpy(bfloat16_tensor)"),
    )),
    "paddle": Group("Paddle", (
        Row("ndarray -> paddle", 'dlbridge.convert(ndarray, to="paddle")', {
            "paddle.from_dlpack": "paddle.from_dlpack(ndarray)",
            "paddle.to_tensor": "paddle.to_tensor(ndarray)",
        }),
        Row("paddle -> numpy", 'dlbridge.convert(paddle_tensor, to="numpy")', {
            "Tensor.numpy": "paddle_tensor.numpy()",
            "numpy.from_dlpack": "numpy.from_dlpack(paddle_tensor)",
        }),
        Row("tensor -> paddle", 'dlbridge.convert(tensor, to="paddle")', {
            "paddle.from_dlpack": "paddle.from_dlpack(tensor)",
        }),
        Row("paddle -> torch", 'dlbridge.convert(paddle_tensor, to="torch")', {
            "torch.from_dlpack": "torch.from_dlpack(paddle_tensor)",
        }),
    ), {"paddle_tensor": "paddle.ones([3, 4])"}),
    "tables": Group("tables", (
        Row("pandas.DataFrame -> torch", 'dlbridge.convert_tree(pandas_frame, to="torch", readonly="share")', {
            "values": "{name: torch.tensor(pandas_frame[name].values) for name in pandas_frame}",
        }, share=0.1),
        Row("polars.DataFrame -> torch", 'dlbridge.convert_tree(polars_frame, to="torch", readonly="share")', {
            "DataFrame.to_torch": 'polars_frame.to_torch("dict")',
        }, share=0.1),
        Row("polars.DataFrame -> torch, copied", 'dlbridge.convert_tree(polars_frame, to="torch")', {
            "DataFrame.to_torch": 'polars_frame.to_torch("dict")',
        }, share=0.1),
    ), {
        "pandas_frame": f"pandas.DataFrame({COLUMNS})",
        "polars_frame": f"polars.DataFrame({COLUMNS})",
    }),
}
