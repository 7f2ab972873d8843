"""What gradients ask of torch's internals, each with what happens without it.

- ``torch._C._are_functorch_transforms_active``: whether torch.func.grad, vmap or another transformation runs. Without
  it, none is taken to run, and torch's own error comes where one does.
- ``torch._C._functorch.is_legacy_batchedtensor``: whether torch.autograd.grad hands over a batch of cotangents. Without
  it, convert() refuses that batch.
- ``torch._subclasses.fake_tensor``: the shapes and dtypes of a function's results, found without a value. Without it,
  there is an ImportError where a function of torch is called under jax.jit or vmap.
- ``torch.utils._python_dispatch.TorchDispatchMode``: which operations a function calls, so that it is seen whether it
  draws random numbers, or would write a tensor. It is what FakeTensorMode is made of.

torch's own compiler stands on the last two. Seen in 2.13.0.
"""

from collections.abc import Callable
from typing import Any

import torch


def no(*given: Any) -> bool:
    return False


is_transformed = getattr(torch._C, "_are_functorch_transforms_active", no)
is_batched = getattr(torch._C._functorch, "is_legacy_batchedtensor", no)


class Unforeseeable(Exception):
    """What a function gives is not known without values."""


def run_without_values(function: Callable[[], Any]) -> tuple[Any, bool]:
    """What a function gives where tensors have shapes and dtypes alone, and whether it draws random numbers.

    Tensors that it is closed over are not written, and no random numbers are used up.
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorMode,
    )
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Sees each operation before it runs."""

        draws = False

        def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            draws = torch.Tag.nondeterministic_seeded in operation.tags
            self.draws |= draws
            if draws or operation._schema.is_mutable:       # it would run as it is if all of its tensors had values
                given, named = tree_map_only(torch.Tensor, without_values, (given, named or {}))
            return operation(*given, **(named or {}))

    def without_values(tensor: Any) -> Any:
        return tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)

    try:
        with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode, Watch() as watch:  # type: ignore[no-untyped-call]
            return function(), watch.draws
    except (DynamicOutputShapeException, DataDependentOutputException) as error:
        raise Unforeseeable("has results whose shapes, or whose path, depend on values") from error
    except (RuntimeError, TypeError) as error:
        raise Unforeseeable(f"fails where tensors have no values ({type(error).__name__}: {error})") from error
