"""As right.py, with torch."""

from collections.abc import Coroutine
from typing import Any, assert_type

import numpy
import torch

import dlbridge

tensor = torch.zeros(3)
array = numpy.zeros(3)

assert_type(dlbridge.convert(b"", "torch"), torch.Tensor)
assert_type(dlbridge.convert(b"", torch.Tensor), torch.Tensor)
assert_type(dlbridge.convert(b"", torch), torch.Tensor)
assert_type(dlbridge.convert(b"", tensor), torch.Tensor)
assert_type(dlbridge.convert(tensor, "torch", device=torch.device("cuda", 1)), torch.Tensor)
assert_type(dlbridge.convert(tensor, "torch", stream=torch.cuda.current_stream()), torch.Tensor)
assert_type(dlbridge.asdlpack(tensor, device=tensor.device, detach=True), dlbridge.Tensor)


# A function with accepts takes any array; what it returns is its own, or like what it was called with.
@dlbridge.accepts("torch")
def double(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return x * factor


assert_type(double(array), torch.Tensor)
assert_type(double(array, factor=3.0), torch.Tensor)


@dlbridge.accepts(torch.Tensor, device="cpu", narrow=True)
async def double_later(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@dlbridge.accepts(torch, returns="like")
async def like_later(x: torch.Tensor) -> torch.Tensor:
    return x * 2


async def await_them() -> None:
    assert_type(await double_later(array), torch.Tensor)
    assert_type(await like_later(array), Any)


coroutine: Coroutine[Any, Any, torch.Tensor] = double_later(array)


@dlbridge.accepts("torch", returns="like")
def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return x * factor


assert_type(scale(array), numpy.ndarray[Any, Any])
assert_type(scale(tensor, 3.0), torch.Tensor)
assert_type(scale(dlbridge.asdlpack(array)), dlbridge.Tensor)
assert_type(scale(x=array), Any)


@dlbridge.accepts("torch", returns="like")
def loss(found: torch.Tensor, wanted: torch.Tensor, *, reduction: str = "mean") -> torch.Tensor:
    return torch.nn.functional.mse_loss(found, wanted, reduction=reduction)


assert_type(loss(array, tensor, reduction="sum"), numpy.ndarray[Any, Any])
assert_type(loss(tensor, array), torch.Tensor)
assert_type(loss(found=array, wanted=tensor), Any)
assert_type(scale(array, factor=2.0), numpy.ndarray[Any, Any])
assert_type(scale(x=tensor, factor=2.0), Any)


@dlbridge.accepts("torch", returns="like")
def extremes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.min(), x.max()


assert_type(extremes(array), Any)


@dlbridge.accepts("torch", returns="like")
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
    return q @ k.T @ v * scale


assert_type(attention(array, array, tensor, scale=2.0), numpy.ndarray[Any, Any])
assert_type(attention.__name__, str)


class Module(torch.nn.Module):
    @dlbridge.accepts("torch", returns="like")
    def forward(self, x: torch.Tensor, factor: int = 2) -> torch.Tensor:  # pyright: ignore
        return x * factor

    @dlbridge.accepts("torch")
    def loss(self, found: torch.Tensor, wanted: torch.Tensor, *, power: int = 2) -> torch.Tensor:
        return ((found - wanted) ** power).mean()


assert_type(Module().loss(array, array, power=3), torch.Tensor)
assert_type(Module().forward(array, factor=3), numpy.ndarray[Any, Any])


class Model:
    @dlbridge.accepts("torch", returns="like")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @dlbridge.accepts("torch")
    def features(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x * scale

    @classmethod
    @dlbridge.accepts("torch", returns="like")
    def normalised(cls, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    @dlbridge.accepts("torch", returns="like")
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x


assert_type(Model().forward(array), numpy.ndarray[Any, Any])
assert_type(Model().features(array, scale=2.0), torch.Tensor)
assert_type(Model().features(x=tensor, scale=2.0), torch.Tensor)
assert_type(Model.normalised(array), numpy.ndarray[Any, Any])
assert_type(Model.rounded(array), numpy.ndarray[Any, Any])
assert_type(dlbridge.convert(b"", "torch", dtype=torch.bfloat16), torch.Tensor)
