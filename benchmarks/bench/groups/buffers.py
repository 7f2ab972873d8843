"""From the buffer protocol."""

from bench.rows import Group, Row

GROUP = Group("buffers", (
    Row("bytearray -> torch", 'dlbridge.convert(buffer, to="torch")', {
        "torch.frombuffer": "torch.frombuffer(buffer, dtype=torch.uint8)",
    }, "floors.buffer_to_torch(buffer)"),
    Row("bytes -> torch", 'dlbridge.convert(read_only, to="torch", readonly="share")', {
        "torch.frombuffer": "torch.frombuffer(read_only, dtype=torch.uint8)",
    }),
    Row("bytearray -> numpy", 'dlbridge.convert(buffer, to="numpy")', {
        "numpy.frombuffer": "numpy.frombuffer(buffer, 'u1')",
    }),
), {"read_only": "bytes(48)"})
