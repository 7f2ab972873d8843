"""From NumPy to torch."""

from dlbridge.bench.rows import Group, Row

GROUP = Group("numpy to torch", (
    Row("ndarray -> torch", 'dlbridge.convert(ndarray, "torch")', {
        "torch.from_numpy": "torch.from_numpy(ndarray)",
        "torch.from_dlpack": "torch.from_dlpack(ndarray)",
    }, "floors.numpy_to_torch(ndarray)"),
    Row("eight ndarrays -> torch", "; ".join(f'dlbridge.convert(a{i}, "torch")' for i in range(8)), {
        "torch.from_numpy": "; ".join(f"torch.from_numpy(a{i})" for i in range(8)),
    }, "; ".join(f"floors.numpy_to_torch(a{i})" for i in range(8))),
), {f"a{i}": "numpy.ones((3, 4), 'f4')" for i in range(8)})
