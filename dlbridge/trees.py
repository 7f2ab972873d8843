"""Batches: every array in a container, and every array that a function is called with."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from dlbridge.convert import asdlpack, check_target, convert, is_source
from dlbridge.errors import MissingLibraryError, UnsupportedError, refusal, shown

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Types that offer a protocol or look like a container, and yet are neither arrays nor containers in a batch.
ATOMS = (str, bytes, int, float, complex, type(None))
# What walks through containers, before the target library's own walker (Library.walker).
WALKER = "optree"
OTHERS = ("pass", "raise")


def convert_tree(tree: Any, to: Any, *, others: str = "pass", **keywords: Any) -> Any:
    """Give every array in a container to a library: a training batch, in one call.

    Parameters
    ----------
    tree : dict, list, tuple, namedtuple, dataclass, or anything that the walking library knows
        Arrays in containers, nested to any depth. The tree is not changed: the result is a new one of the same form.
    to
        As for :func:`dlbridge.convert`.
    others : {"pass", "raise"}
        What becomes of leaves that are no arrays: they are handed on as they are, or raise an error. Strings, bytes and
        numbers count as no arrays here.
    **keywords
        As for :func:`dlbridge.convert`; they hold for every array.

    Returns
    -------
    object
        A container of the same form.

    Raises
    ------
    MissingLibraryError
        No library that walks through containers is installed: optree (``pip install dlbridge[tree]``), or the library
        that ``to`` names, if that is torch or JAX.
    UnsupportedError
        A leaf is no array, with ``others="raise"``.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> batch = {"image": numpy.zeros((2, 3)), "label": [numpy.ones(2)], "name": "a"}
    >>> converted = dlbridge.convert_tree(batch, "torch")
    >>> converted["image"].shape, converted["label"][0].dtype, converted["name"]
    (torch.Size([2, 3]), torch.float64, 'a')
    """
    if others not in OTHERS:
        raise ValueError(f'convert_tree: others {shown(others)}: is neither "pass" nor "raise" (pass one)')

    def convert_leaf(leaf: Any) -> Any:
        if is_array(leaf):
            return convert(leaf, to, **keywords)
        if others == "raise":
            raise refusal(UnsupportedError, "convert_tree", "leaf", shown(leaf), "is no array",
                          'pass others="pass" to hand it on')
        return leaf

    return map_leaves(convert_leaf, tree, walker(to))


def is_array(leaf: Any) -> bool:
    """Whether a leaf of a batch counts as an array."""
    return not isinstance(leaf, ATOMS) and is_source(leaf)


def map_leaves(function: Callable[[Any], Any], tree: Any, walk: Callable[..., Any]) -> Any:
    """A container of what ``function`` gives for each leaf; the fields of a dataclass are leaves, or containers."""
    def go(leaf: Any) -> Any:
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and not is_array(leaf):
            there = [field for field in dataclasses.fields(leaf) if hasattr(leaf, field.name)]
            made = walk(go, {field.name: getattr(leaf, field.name) for field in there})
            result = dataclasses.replace(leaf, **{field.name: made[field.name] for field in there if field.init})
            for field in there:
                if not field.init:
                    object.__setattr__(result, field.name, made[field.name])       # the dataclass may be frozen
            return result
        return function(leaf)

    return walk(go, tree)


def walker(to: Any) -> Callable[..., Any]:
    """The function that calls another one on each leaf of a container."""
    from dlbridge.libraries.library import library_named

    name = to if isinstance(to, str) else to.__name__ if isinstance(to, ModuleType) else ""
    library = library_named(name)
    for module in (WALKER, library.walker if library is not None else ""):
        if module:
            try:
                walk: Callable[..., Any] = importlib.import_module(module).tree_map
            except ImportError:
                continue
            return walk
    raise refusal(MissingLibraryError, "convert_tree", "module", "optree", "is not installed",
                  "pip install dlbridge[tree]")


def accepts(
    to: Any, *, returns: str | None = None, **keywords: Any,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Any]]:
    """Let a function that was written for one library be called with the arrays of any.

    Parameters
    ----------
    to
        As for :func:`dlbridge.convert`: what the function's arrays shall be.
    returns : {None, "like"}
        What becomes of the arrays that it returns: they stay as they are, or become arrays of the library and on the
        device of the first array that it was called with.
    **keywords
        As for :func:`dlbridge.convert`; they hold for every argument.

    Returns
    -------
    callable
        A decorator. The function keeps its name, signature and annotations. Arrays are converted in positional and
        keyword arguments and in containers (see :func:`convert_tree`); everything else is handed on, and so is a first
        parameter called ``self`` or ``cls``. The result of a coroutine function is converted when it is awaited. What a
        generator yields is left as it is.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> @dlbridge.accepts("torch", returns="like")
    ... def double(x):
    ...     return x.mul(2)
    >>> double(numpy.arange(3))
    array([0, 2, 4])
    """
    if returns not in (None, "like"):
        raise ValueError(f'accepts: returns {shown(returns)}: is neither None nor "like" (pass one)')

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Any]:
        bound = first_parameter(function) in ("self", "cls")

        def prepare(given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any, Any]:
            like = first_array((given[bound:], named), walker(to)) if returns else None
            if like is not None:
                check_target(like)      # an error is raised before the function runs
            arguments, words = convert_tree((given[bound:], named), to, **keywords)
            return (*given[:bound], *arguments), words, like

        def finish(result: Any, like: Any) -> Any:
            if like is None:
                return result
            device = asdlpack(like, detach=True).device
            return map_leaves(
                lambda leaf: convert(leaf, like, device=device) if is_array(leaf) else leaf, result, walker(to))

        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def wait(*given: Parameters.args, **named: Parameters.kwargs) -> Any:
                arguments, words, like = prepare(given, named)
                return finish(await function(*arguments, **words), like)

            return wait

        @functools.wraps(function)
        def call(*given: Parameters.args, **named: Parameters.kwargs) -> Any:
            arguments, words, like = prepare(given, named)
            return finish(function(*arguments, **words), like)

        return call

    return decorate


def first_parameter(function: Callable[..., Any]) -> str:
    """The name of a function's first parameter, or nothing: not every builtin says its parameters."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except ValueError:
        return ""


def first_array(tree: Any, walk: Callable[..., Any]) -> Any:
    """The first array in a container, or None."""
    found: list[Any] = []

    def look(leaf: Any) -> Any:
        if not found and is_array(leaf):
            found.append(leaf)
        return leaf

    map_leaves(look, tree, walk)
    return found[0] if found else None
