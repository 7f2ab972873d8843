"""Arrays of every layout, and what a copy of one has to be; needs NumPy alone."""

import numpy as np

import dlbridge

DTYPES = ("bool", "int8", "uint16", "float16", "int32", "float32", "uint64", "float64", "complex64", "complex128")


def random_bits(shape, dtype, seed=0):
    """Elements of which no two neighbours are alike; their values mean nothing, but a bool is 0 or 1."""
    dtype = np.dtype(dtype)
    return random_bytes(int(np.prod(shape)) * dtype.itemsize, dtype, seed).view(dtype).reshape(shape)


def random_bytes(count, dtype, seed=0):
    return np.random.default_rng(seed).integers(0, 2 if dtype.kind == "b" else 256, count, "uint8")


def records(dtype, count):
    """Strides that are no multiple of the item size."""
    dtype = np.dtype(dtype)
    return random_bytes(count * (dtype.itemsize + 1), dtype).view([("before", "u1"), ("value", dtype)])["value"]


def unaligned(dtype, count):
    dtype = np.dtype(dtype)
    return random_bytes(count * dtype.itemsize + 1, dtype)[1:].view(dtype)


# Extents around the sides of a tile, and around the length of a block.
LAYOUTS = {
    "contiguous": lambda dtype: random_bits((37, 129), dtype),
    "transposed": lambda dtype: random_bits((130, 131), dtype).T,
    "transposed, whole tiles": lambda dtype: random_bits((128, 256), dtype)[:, :128].T,
    "transposed, edges": lambda dtype: random_bits((67, 141), dtype)[:, :133].T,
    "transposed, few rows": lambda dtype: random_bits((3, 700), dtype)[:, :650].T,
    "transposed, few columns": lambda dtype: random_bits((700, 5), dtype)[:, :3].T,
    "transposed, every other": lambda dtype: random_bits((140, 300), dtype)[:, ::2].T,
    "transposed, backwards": lambda dtype: random_bits((140, 150), dtype)[::-1].T,
    "transposed, both backwards": lambda dtype: random_bits((140, 150), dtype)[::-1, ::-1].T,
    "backwards": lambda dtype: random_bits((1000,), dtype)[::-1],
    "every second": lambda dtype: random_bits((2001,), dtype)[::2],
    "every third": lambda dtype: random_bits((3001,), dtype)[1::3],
    "every fourth": lambda dtype: random_bits((4001,), dtype)[3::4],
    "every fifth": lambda dtype: random_bits((5001,), dtype)[::5],
    "every third backwards": lambda dtype: random_bits((5001,), dtype)[::-3],
    "every seventh backwards": lambda dtype: random_bits((5001,), dtype)[::-7],
    "rows": lambda dtype: random_bits((50, 90), dtype)[:, 3:70],
    "short rows": lambda dtype: random_bits((500, 9), dtype)[:, :5],
    "pairs": lambda dtype: random_bits((500, 3), dtype)[:, :2],
    "short rows backwards": lambda dtype: random_bits((500, 3), dtype)[:, ::-1],
    "channels first": lambda dtype: random_bits((30, 40, 4), dtype)[..., :3].transpose(2, 0, 1),
    "channels last": lambda dtype: random_bits((4, 30, 40), dtype)[:3].transpose(1, 2, 0),
    "heads": lambda dtype: random_bits((2, 33, 9, 16), dtype)[:, :, :8].transpose(0, 2, 1, 3),
    "four axes": lambda dtype: random_bits((3, 17, 5, 19), dtype)[:, :, :4].transpose(2, 0, 3, 1),
    "many short axes": lambda dtype: random_bits((2, 3, 2, 3, 2, 3), dtype)[::-1].transpose(4, 2, 0, 5, 3, 1),
    "two short axes": lambda dtype: random_bits((2, 2, 900), dtype)[:, :, ::2].transpose(2, 1, 0),
    "one row repeated": lambda dtype: np.broadcast_to(random_bits((140,), dtype), (50, 140)),
    "one column repeated": lambda dtype: np.broadcast_to(random_bits((140, 1), dtype), (140, 50)),
    "one element repeated": lambda dtype: np.broadcast_to(random_bits((), dtype), (30, 40)),
    "repeated between": lambda dtype: np.broadcast_to(random_bits((20, 1, 30), dtype), (20, 7, 30)).transpose(2, 1, 0),
    "overlapping": lambda dtype: np.lib.stride_tricks.sliding_window_view(random_bits((300,), dtype), 70),
    "overlapping, transposed": lambda dtype: np.lib.stride_tricks.sliding_window_view(random_bits((300,), dtype), 70).T,
    "fields of records": lambda dtype: records(dtype, 700),
    "fields of records, transposed": lambda dtype: records(dtype, 71 * 73).reshape(71, 73).T,
    "unaligned": lambda dtype: unaligned(dtype, 71 * 73).reshape(71, 73)[::-1].T,
    "one element": lambda dtype: random_bits((1, 1, 1), dtype),
    "no axes": lambda dtype: random_bits((), dtype),
    "empty": lambda dtype: random_bits((3, 0, 4), dtype).transpose(2, 0, 1),
    "sixty-four axes": lambda dtype: random_bits((1,) * 58 + (2, 3, 2, 3, 2, 3), dtype)[..., ::-1].T,
}


def check(array, target="numpy"):
    """A copy of our own has the same bits, in native order, and is nobody else's memory."""
    result = dlbridge.convert(array, target, copy=True)
    copied = np.asarray(result)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    assert copied.dtype == native.dtype
    assert copied.shape == array.shape
    assert copied.squeeze().tobytes() == native.squeeze().tobytes()     # NumPy 2.0 writes 32 axes at most
    assert not np.shares_memory(copied, array)
    assert copied.flags.writeable
    return result
