"""From torch to NumPy; a float tensor needs more checks than a tensor of integers."""

from bench.rows import Group, Row

GROUP = Group("torch to NumPy", (
    Row("tensor -> numpy", 'dlbridge.convert(tensor, to="numpy")', {
        "Tensor.numpy": "tensor.numpy()",
        "numpy.from_dlpack": "numpy.from_dlpack(tensor)",
    }, "floors.torch_to_numpy(tensor)"),
    Row("int64 tensor -> numpy", 'dlbridge.convert(integers, to="numpy")', {
        "Tensor.numpy": "integers.numpy()",
        "numpy.from_dlpack": "numpy.from_dlpack(integers)",
    }, "floors.torch_to_numpy(integers)"),
), {"integers": "torch.ones(3, 4, dtype=torch.int64)"})
