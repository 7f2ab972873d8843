"""From NumPy to torch."""

from bench.rows import Group, Row

GROUP = Group("NumPy to torch", (
    Row("ndarray -> torch", 'dlbridge.convert(ndarray, to="torch")', {
        "torch.from_numpy": "torch.from_numpy(ndarray)",
        "torch.from_dlpack": "torch.from_dlpack(ndarray)",
    }, "floors.numpy_to_torch(ndarray)"),
))
