"""Paddle, which is in the extra ``all``; its goals are in ``benchmarks/goals_all.json``."""

from bench.rows import Group, Row

GROUP = Group("Paddle", (
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
), {"paddle_tensor": "paddle.ones([3, 4])"})
