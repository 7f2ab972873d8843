"""The forms in which the call is written, beside the shortest one: keywords, and what ``to`` can be."""

from bench.rows import Group, Row

POSITIONAL = 'dlbridge.convert(ndarray, "torch")'


def row(name: str, *arguments: str) -> Row:
    """Make the row of a form, which is the slowest of its calls."""
    return Row(name, tuple(f"dlbridge.convert(ndarray, {text})" for text in arguments), {"positional": POSITIONAL})


GROUP = Group("forms of a call", (
    row("to=", 'to="torch"'),
    row("copy=, readonly=, detach=", 'to="torch", copy=None', 'to="torch", copy=False', 'to="torch", readonly="share"',
        'to="torch", detach=True'),
    row('device="cpu"', 'to="torch", device="cpu"'),
    row("to= a module or a type", "to=torch", "to=tensor_type"),
    row("to= an array", "to=tensor"),
    Row("tensor -> numpy, to= an array", "dlbridge.convert(tensor, to=ndarray)", {
        "positional": 'dlbridge.convert(tensor, "numpy")',
    }),
), {"tensor_type": "torch.Tensor"})
