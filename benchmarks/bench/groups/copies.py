"""Copies beside NumPy's and beside other ways to the same result, from the allocation of the result to its end.

A copy of a page or two spends most of its time on finding out what to do and on making the result, so the smallest size
is compared with statements that make a result of the same kind. The larger sizes are bound by the memory, so they are
compared with ``numpy.copyto`` into a new array. A dense copy is one ``memcpy`` on either side, so its goal leaves room
for noise.
"""

from typing import NamedTuple

from bench.rows import Group, Row, Statements

SIZES = {"4 KiB": 32, "256 KiB": 256, "16 MiB": 2048}          # the side of a square of float32 that has this size
GIBIBYTE = 2**30


class Copy(NamedTuple):
    """A case in which dlbridge copies; ``{0}`` in the source is the side, and ``{}`` elsewhere the source."""

    name: str
    source: str                         # the expression that makes the source
    ours: str
    natives: dict[str, Statements]
    element: str = "f4"                 # the type that NumPy copies


TO_NUMPY = 'dlbridge.convert({}, to="numpy")'
TO_TORCH = 'dlbridge.convert({}, to="torch")'
COPY_TO_NUMPY = 'dlbridge.convert({}, to="numpy", copy=True)'
COPY_TO_TORCH = 'dlbridge.convert({}, to="torch", copy=True)'
FROM_NUMPY = ("torch.from_numpy({}.copy())", "torch.from_numpy(numpy.ascontiguousarray({}))")
COPIES = (
    Copy("every second column", "numpy.ones(({0}, {0} * 2), 'f4')[:, ::2]", COPY_TO_NUMPY,
         {"ndarray.copy": "{}.copy()"}),
    Copy("transposed", "numpy.ones(({0}, {0} + 1), 'f4')[:, :-1].T", COPY_TO_NUMPY, {"ndarray.copy": "{}.copy()"}),
    Copy("dense -> torch", "numpy.ones(({0}, {0}), 'f4')", COPY_TO_TORCH,
         {"torch.from_numpy": ("torch.from_numpy({}.copy())", "torch.from_numpy({}).clone()", "torch.tensor({})")}),
    Copy("reversed -> torch", "numpy.ones(({0}, {0}), 'f4')[::-1]", TO_TORCH, {"torch.from_numpy": FROM_NUMPY}),
    Copy("big-endian -> torch", "numpy.ones(({0}, {0}), '>f4')", TO_TORCH,
         {"torch.from_numpy": "torch.from_numpy({}.astype('f4'))"}),
    Copy("big-endian, transposed -> torch", "numpy.ones(({0}, {0} // 2 + 1), '>f8')[:, :-1].T", TO_TORCH,
         {"torch.from_numpy": "torch.from_numpy({}.astype('f8', order='C'))"}, "f8"),
    Copy("bfloat16, reversed -> torch", "numpy.ones(({0}, {0} * 2), ml_dtypes.bfloat16)[::-1]", TO_TORCH,
         {"torch.from_numpy": "torch.from_numpy({}.view('i2').copy()).view(torch.bfloat16)"}, "u2"),
    Copy("dense tensor -> numpy", "torch.ones({0}, {0})", COPY_TO_NUMPY,
         {"Tensor.numpy": ("{}.numpy().copy()", "{}.clone().numpy()", "numpy.array({})")}),
    Copy("negative bit -> numpy", "torch._neg_view(torch.ones({0}, {0}))", TO_NUMPY,
         {"resolve_neg": "{}.resolve_neg().numpy()"}),
    Copy("conjugate bit -> numpy", "torch.ones({0}, {0} // 2, dtype=torch.complex64).conj()", TO_NUMPY,
         {"resolve_conj": "{}.resolve_conj().numpy()"}, "c8"),
    Copy("strided tensor -> torch", "torch.ones({0}, {0} * 2)[:, ::2]", COPY_TO_TORCH,
         {"Tensor.clone": ("{}.clone(memory_format=torch.contiguous_format)", "{}.contiguous()")}),
)


def as_numpy(copy: Copy, name: str) -> str:
    """Write the source for numpy.copyto: torch's memory without a lazy bit, and types of ml_dtypes as words."""
    if copy.source.startswith("torch"):
        return f"torch.ones({name}.shape, dtype={name}.dtype).numpy()" if "bit" in copy.name else f"{name}.numpy()"
    return f"{name}.view('u2')" if copy.element == "u2" else name


def filled(native: Statements, name: str) -> Statements:
    """Put the name of a source into the statements of a copy."""
    return native.format(name) if isinstance(native, str) else tuple(one.format(name) for one in native)


def row(copy: Copy, number: int, size: str) -> Row:
    """Make the row of one copy in one size; it stays on one core, so that copying is compared and not threads."""
    name = f"source_{number}_{SIZES[size]}"
    return Row(f"{copy.name}, {size}", copy.ours.format(name), {
        "numpy.copyto": f"numpy.copyto(numpy.empty(numpy_{name}.shape, '{copy.element}'), numpy_{name})",
        **{label: filled(native, name) for label, native in copy.natives.items()},
    }, share=0.1 if size == "16 MiB" else 1.0)


def inputs() -> dict[str, str]:
    """Write the sources of every copy in every size, for dlbridge and for NumPy."""
    made = {}
    for number, copy in enumerate(COPIES):
        for side in SIZES.values():
            name = f"source_{number}_{side}"
            made[name] = copy.source.format(side)
            made[f"numpy_{name}"] = as_numpy(copy, name)
    return made


GROUP = Group("copies", (
    *(row(copy, number, size) for number, copy in enumerate(COPIES) for size in SIZES),
    # The system sometimes takes a second to find a gibibyte, and in five rounds one such second could decide.
    Row("every second column, 1 GiB", 'dlbridge.convert(gibibyte, to="numpy", copy=True)', {
        "numpy.copyto": "numpy.copyto(numpy.empty(gibibyte.shape, 'f4'), gibibyte)",
    }, share=0.03, pinned=False, memory=5 * GIBIBYTE),
), {**inputs(), "gibibyte": "numpy.ones((2**14, 2**15), 'f4')[:, ::2]"})
