"""Several arrays to torch, each by a call of its own: eight that are alike, and a mix of different sources."""

from bench.rows import Group, Row


def all_of(pattern: str, names: str) -> str:
    """Write one statement for each name."""
    return "; ".join(pattern.format(name) for name in names.split())


EIGHT = "a0 a1 a2 a3 a4 a5 a6 a7"
FLOATS, BFLOATS, JAX, BYTES, TENSORS = "a0 a1", "b0 b1", "j0 j1", "buffer", "tensor"
INPUTS = dict.fromkeys(EIGHT.split(), "numpy.ones((3, 4), 'f4')")
INPUTS |= dict.fromkeys(BFLOATS.split(), "numpy.ones((3, 4), ml_dtypes.bfloat16)")
INPUTS |= dict.fromkeys(JAX.split(), "jax.device_put(numpy.ones((3, 4), 'f4'), jax.devices('cpu')[0])")

GROUP = Group("several arrays", (
    Row("eight ndarrays -> torch", all_of('dlbridge.convert({}, to="torch")', EIGHT), {
        "torch.from_numpy": all_of("torch.from_numpy({})", EIGHT),
    }, all_of("floors.numpy_to_torch({})", EIGHT)),
    Row("mix -> torch", "; ".join((
        all_of('dlbridge.convert({}, to="torch")', f"{FLOATS} {BFLOATS}"),
        all_of('dlbridge.convert({}, to="torch", readonly="share")', JAX),
        all_of('dlbridge.convert({}, to="torch")', f"{BYTES} {TENSORS}"),
    )), {
        "best calls": "; ".join((
            all_of("torch.from_numpy({})", FLOATS),
            all_of('torch.from_numpy({}.view("i2")).view(torch.bfloat16)', BFLOATS),
            all_of("torch.from_numpy(numpy.asarray({}))", JAX),
            all_of("torch.frombuffer({}, dtype=torch.uint8)", BYTES),
            all_of("torch.as_tensor({})", TENSORS),
        )),
    }),
), INPUTS)
