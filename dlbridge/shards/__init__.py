"""Arrays that are in parts on several devices, or in several processes."""

from collections.abc import Iterable, Sequence
from typing import Any

from dlbridge._core.late import load_module


def shards(x: object, to: Any, **keywords: Any) -> list[tuple[tuple[slice, ...], Any]]:
    """Give each part of an array that is on several devices, or in several processes, to a library.

    Parameters
    ----------
    x
        A ``jax.Array``, whose parts are on the devices of its sharding, or a ``DTensor`` of torch, which has a part in
        each process. Any other array is one part.
    to
        As for :func:`convert`.
    **keywords
        As for :func:`convert`, for each part: ``copy``, ``stream``, ``readonly``, ``detach``, ``narrow`` and ``order``.
        Each part stays on its device.

    Returns
    -------
    list of tuple
        The parts of this process, in the order of the mesh, each as ``(index, array)``. The index has a slice for each
        axis, in elements of the whole array: ``whole[index]`` has the values of the part. Where several devices have
        the same part, each of them is there. The memory of a part is shared as :func:`convert` shares it.

    Raises
    ------
    ConversionError
        A part cannot be converted, which the message names; or the tensors of a DTensor are no parts, but summands.

    See Also
    --------
    from_shards : The way back.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> [(index, part)] = dlbridge.shards(numpy.zeros((2, 3)), "numpy")
    >>> index, part.shape
    ((slice(0, 2, None), slice(0, 3, None)), (2, 3))
    """
    parts: list[tuple[tuple[slice, ...], Any]] = load_module("dlbridge.shards.parts").shards(x, to, keywords)
    return parts


def from_shards(
    parts: Iterable[tuple[tuple[slice, ...], Any]], like: Any, *, shape: Sequence[int] | None = None, **keywords: Any,
) -> Any:
    """Make an array of parts on several devices, or in several processes, as :func:`shards` gives them.

    Parameters
    ----------
    parts : iterable of tuple
        ``(index, array)`` for each part of this process, in any order. The arrays may be of any library. One that is on
        the device that its part is for is shared as :func:`convert` shares it; others are copied there.
    like
        How the parts lie: a ``jax.sharding.Sharding``, or an array that lies so, a ``jax.Array`` or a ``DTensor``. The
        result is of its library. Where several devices have the same part, one of it is enough, and
        several are believed to be equal.
    shape : sequence of int, optional
        The shape of the whole. By default it is that of ``like``, or what the parts of this process span.
    **keywords
        As for :func:`shards`.

    Raises
    ------
    ConversionError
        A part is missing, is none of those of ``like``, or has another shape than its index says.
    UnsupportedError
        ``like`` is neither a sharding nor an array that has one.

    Examples
    --------
    >>> import jax, numpy, dlbridge
    >>> like = jax.numpy.zeros(4, "float32")
    >>> dlbridge.from_shards([((slice(0, 4),), numpy.ones(4, "float32"))], like)
    Array([1., 1., 1., 1.], dtype=float32)
    """
    return load_module("dlbridge.shards.parts").from_shards(parts, like, shape, keywords)
