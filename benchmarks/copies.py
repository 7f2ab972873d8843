"""Copies beside NumPy's, from the allocation of the result to its end."""

from typing import NamedTuple

from dlbridge.bench.rows import Group, Row

SIZES = {"4 KiB": 32, "256 KiB": 256, "16 MiB": 2048}          # the side of a square of float32
GIBIBYTE = 2**30


class Copy(NamedTuple):
    """A reason to copy: the source as an expression, our call, and the element that NumPy copies instead."""

    name: str
    source: str
    ours: str
    element: str = "f4"
    natives: dict[str, str] = {}            # noqa: RUF012  (a NamedTuple's default)


COPIES = (
    Copy("every second column", "numpy.ones(({0}, {0} * 2), 'f4')[:, ::2]", 'dlbridge.convert({}, "numpy", copy=True)'),
    Copy("transposed", "numpy.ones(({0}, {0} + 1), 'f4')[:, :-1].T", 'dlbridge.convert({}, "numpy", copy=True)'),
    Copy("reversed -> torch", "numpy.ones(({0}, {0}), 'f4')[::-1]", 'dlbridge.convert({}, "torch")'),
    Copy("big-endian -> torch", "numpy.ones(({0}, {0}), '>f4')", 'dlbridge.convert({}, "torch")'),
    Copy("bfloat16, reversed -> torch", "numpy.ones(({0}, {0} * 2), ml_dtypes.bfloat16)[::-1]",
         'dlbridge.convert({}, "torch")', "u2"),
    Copy("negative bit -> numpy", "torch._neg_view(torch.ones({0}, {0}))", 'dlbridge.convert({}, "numpy")',
         natives={"resolve_neg": "{}.resolve_neg().numpy()"}),
    Copy("conjugate bit -> numpy", "torch.ones({0}, {0} // 2, dtype=torch.complex64).conj()",
         'dlbridge.convert({}, "numpy")', "c8", {"resolve_conj": "{}.resolve_conj().numpy()"}),
)


def as_numpy(copy: Copy, name: str) -> str:
    """The same elements as NumPy copies them: those of torch without the bit, those of ml_dtypes as words."""
    if copy.source.startswith("torch"):
        return f"numpy.ones({name}.shape, '{copy.element}')"
    return f"{name}.view('u2')" if copy.element == "u2" else name


def row(copy: Copy, number: int, size: str) -> Row:
    """One copy in one size."""
    name = f"source_{number}_{SIZES[size]}"
    return Row(f"{copy.name}, {size}", copy.ours.format(name), {
        "numpy.copyto": f"numpy.copyto(numpy.empty(numpy_{name}.shape, '{copy.element}'), numpy_{name})",
        **{label: native.format(name) for label, native in copy.natives.items()},
    }, share=0.1 if size == "16 MiB" else 1.0)


def inputs() -> dict[str, str]:
    """The sources of every copy in every size, ours and NumPy's."""
    made = {}
    for number, copy in enumerate(COPIES):
        for side in SIZES.values():
            name = f"source_{number}_{side}"
            made[name] = copy.source.format(side)
            made[f"numpy_{name}"] = as_numpy(copy, name)
    return made


GROUP = Group("copies", (
    *(row(copy, number, size) for number, copy in enumerate(COPIES) for size in SIZES),
    Row("every second column, 1 GiB", 'dlbridge.convert(gibibyte, "numpy", copy=True)', {
        "numpy.copyto": "numpy.copyto(numpy.empty(gibibyte.shape, 'f4'), gibibyte)",
    }, share=0.0125, pinned=False, memory=5 * GIBIBYTE),
), {**inputs(), "gibibyte": "numpy.ones((2**14, 2**15), 'f4')[:, ::2]"})
