"""Functions that have gradients, each written in torch and in jax.numpy.

Both are called with the same arrays, of the shapes in the table. What is not defined for complex numbers is real.
"""

import random
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

from support import optional


class Function(NamedTuple):
    """A function in both libraries, and what it is called with."""

    torch: object
    jax: object
    shapes: tuple
    real: bool = False

    def inputs(self, dtype):
        """Arrays whose numbers all differ, none of them 0, so that no function here has a kink at one or near it.

        They are exact in every type, and small: a complex ``tanh`` has its first pole at 1.57 i.
        """
        parts = 2 if dtype.startswith("complex") else 1
        numbers = random.Random(7).sample(range(-127, 128, 2), parts * sum(map(prod, self.shapes)))
        arrays = []
        for shape in self.shapes:
            taken = [np.array([numbers.pop() for _ in range(prod(shape))]) for _ in range(parts)]
            arrays.append((taken[0] / 256 if parts == 1 else (taken[0] + 1j * taken[1]) / 512).reshape(shape))
        return arrays


def cotangent(result):
    """Numbers of size 1 for the numbers of a result, in any direction where those are complex."""
    turned = np.exp(1j * np.arange(prod(result.shape))).reshape(result.shape)
    return turned if "complex" in str(result.dtype) else turned.real


# How far two libraries may differ, of the largest number: some dozens of roundings.
TOLERANCES = {"float32": 1e-5, "float64": 1e-13, "bfloat16": 5e-2, "complex64": 1e-5, "complex128": 1e-13}


def assert_close(found, expected):
    """Compare two arrays of one library, whose numbers are those of two libraries."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    tolerance = TOLERANCES[str(expected.dtype).removeprefix("torch.")]
    found, expected = (np.asarray(array.tolist()) for array in (found, expected))
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


INDEX = [2, 0, 0, 1]


def network_of_torch(x, first, bias, second):
    return torch.tanh(x @ first + bias) @ second


def network_of_jax(x, first, bias, second):
    return jnp.tanh(x @ first + bias) @ second


def attention_of_torch(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def attention_of_jax(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / jnp.asarray(query.shape[-1] ** 0.5, query.dtype)
    return jax.nn.softmax(scores, axis=-1) @ value


def recurrence_of_torch(x, weight):
    state = torch.zeros_like(x[0])
    for row in x:
        state = torch.tanh(row + state @ weight)
    return state


def recurrence_of_jax(x, weight):
    return jax.lax.scan(lambda state, row: (jnp.tanh(row + state @ weight), None), jnp.zeros_like(x[0]), x)[0]


def newton_of_torch(x):
    root = torch.ones_like(x)
    for _ in range(4):
        root = (root + (x * x + 1) / root) / 2
    return root


def newton_of_jax(x):
    return jax.lax.fori_loop(0, 4, lambda _, root: (root + (x * x + 1) / root) / 2, jnp.ones_like(x))


def convolved(x, kernel, axes):
    return jax.lax.conv_general_dilated(x, kernel, (1,) * axes, "VALID")


FUNCTIONS = {
    # elementwise
    "product": Function(lambda x, y: x * y, lambda x, y: x * y, ((3, 4), (3, 4))),
    "broadcast": Function(lambda x, y: x / (y * y + 3), lambda x, y: x / (y * y + 3), ((3, 4), (4,))),
    "sin": Function(lambda x: torch.sin(x).exp(), lambda x: jnp.exp(jnp.sin(x)), ((3, 4),)),
    "power": Function(lambda x: x ** 3, lambda x: x ** 3, ((5,),)),
    "conjugate": Function(lambda x, y: x.conj() * y, lambda x, y: jnp.conj(x) * y, ((5,), (5,))),
    "absolute": Function(torch.abs, jnp.abs, ((5,),)),
    "sigmoid": Function(torch.sigmoid, jax.nn.sigmoid, ((5,),), real=True),
    "where": Function(lambda x, y: torch.where(x > y, x * 2, y), lambda x, y: jnp.where(x > y, x * 2, y),
                      ((5,), (5,)), real=True),
    "maximum": Function(torch.maximum, jnp.maximum, ((5,), (5,)), real=True),
    # products of matrices
    "matmul": Function(torch.matmul, jnp.matmul, ((3, 4), (4, 2))),
    "batched matmul": Function(torch.matmul, jnp.matmul, ((2, 3, 4), (2, 4, 2))),
    "einsum": Function(lambda x, y: torch.einsum("ij,kj->ik", x, y), lambda x, y: jnp.einsum("ij,kj->ik", x, y),
                       ((3, 4), (2, 4))),
    "outer": Function(torch.outer, jnp.outer, ((3,), (4,))),
    # reductions
    "sum": Function(lambda x: x.sum(), lambda x: x.sum(), ((3, 4),)),
    "mean": Function(lambda x: x.mean(1), lambda x: x.mean(1), ((3, 4),)),
    "variance": Function(lambda x: x.var(0, correction=0), lambda x: x.var(0), ((3, 4),), real=True),
    "prod": Function(lambda x: x.prod(), lambda x: x.prod(), ((4,),)),
    "norm": Function(lambda x: torch.linalg.norm(x), lambda x: jnp.linalg.norm(x), ((3, 4),)),
    "max": Function(lambda x: x.amax(1), lambda x: x.max(1), ((3, 4),), real=True),
    "cumsum": Function(lambda x: x.cumsum(0), lambda x: x.cumsum(0), ((3, 4),)),
    "logsumexp": Function(lambda x: x.logsumexp(1), lambda x: jax.nn.logsumexp(x, axis=1), ((3, 4),), real=True),
    "softmax": Function(lambda x: x.softmax(-1), jax.nn.softmax, ((3, 4),), real=True),
    # indexing
    "slice": Function(lambda x: x[1:, ::2], lambda x: x[1:, ::2], ((3, 4),)),
    "flip": Function(lambda x: x.flip(0), lambda x: x[::-1], ((3, 4),)),
    "gather": Function(lambda x: x[INDEX], lambda x: x[jnp.array(INDEX)], ((3, 4),)),
    "scatter": Function(lambda x, y: x.index_add(0, torch.tensor(INDEX), y), lambda x, y: x.at[jnp.array(INDEX)].add(y),
                        ((3, 2), (4, 2))),
    "concatenate": Function(lambda x, y: torch.cat([x, y * 2]), lambda x, y: jnp.concatenate([x, y * 2]),
                            ((3, 2), (1, 2))),
    "pad": Function(lambda x: F.pad(x, (1, 2)), lambda x: jnp.pad(x, ((0, 0), (1, 2))), ((3, 4),)),
    "transpose": Function(lambda x: x.mT.reshape(-1), lambda x: x.T.reshape(-1), ((3, 4),)),
    "sort": Function(lambda x: x.sort(-1).values, lambda x: jnp.sort(x, -1), ((6,),), real=True),
    # networks
    "convolution": Function(F.conv1d, lambda x, kernel: convolved(x, kernel, 1), ((2, 3, 8), (4, 3, 3)), real=True),
    "convolution of images": Function(F.conv2d, lambda x, kernel: convolved(x, kernel, 2), ((1, 2, 5, 5), (3, 2, 3, 3)),
                                      real=True),
    "network": Function(network_of_torch, network_of_jax, ((5, 3), (3, 4), (4,), (4, 2))),
    "attention": Function(attention_of_torch, attention_of_jax, ((2, 3, 4),) * 3, real=True),
    # loops
    "recurrence": Function(recurrence_of_torch, recurrence_of_jax, ((4, 3), (3, 3))),
    "newton": Function(newton_of_torch, newton_of_jax, ((4,),)),
}


def in_turn(dtypes):
    """The name of each function, with one of the dtypes in turn; with ``pytest --full`` with all."""
    cases = []
    for index, (name, function) in enumerate(FUNCTIONS.items()):
        own = [dtype for dtype in dtypes if not (function.real and dtype.startswith("complex"))]
        cases += [(name, dtype) for dtype in (own if optional.FULL else (own[index % len(own)],))]
    return cases
