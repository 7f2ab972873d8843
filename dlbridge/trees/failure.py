"""The error of one leaf, and where in the tree that is."""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from dlbridge.errors import AGAIN, ConversionError, DLBridgeError, MissingLibraryError, UnsupportedError, refusal
from dlbridge.libraries.library import PARTS
from dlbridge.trees.containers import container_of, functions_of
from dlbridge.trees.leaf import OTHER, role_of
from dlbridge.watch import in_this_tree


class Failure(Exception):
    """An error over a leaf, on its way to where the whole tree is known."""

    def __init__(self, leaf: Any, error: DLBridgeError, word: str = "leaf", rest: str = "") -> None:
        self.leaf = leaf
        self.error = error
        self.word = word
        self.rest = rest            # what is written after the leaf's path
        self.others: list[Failure] = []     # of other columns of the same table
        self.again = False          # whether the leaf was read, and may give its rows once
        self.by_pyarrow = False     # whether the leaf's columns are pyarrow's, and not its own


def report(
    failure: Failure, trees: Iterable[tuple[str, Any]], passes: bool = True,
    hint_of: Callable[[DLBridgeError], str] = operator.attrgetter("hint"), call: str = "",
    function: str = "convert_tree",
) -> NoReturn:
    """Raise the error of a failure. It says where the leaf is, behind the name of its tree.

    ``passes``: whether the function has ``columns="pass"``. ``call``: how a call of a function is written, with {} for
    the place of the leaf; nothing for a ``function`` of dlbridge, which is called with the tree.
    """
    error, several = failure.error, bool(failure.others)
    parts = {part.rest: part.error for part in (failure, *failure.others)}      # by what is written after the leaf
    reason = "; ".join(f"{rest} {part.reason}" for rest, part in parts.items()) if several else error.reason
    hint = whole_hint(failure, parts, passes, hint_of)
    path = next((path for name, tree in trees for path, leaf in leaves(name, tree) if leaf is failure.leaf), "")
    where = ", ".join(path + rest for rest in parts)
    try:
        if call and not several and error.stage:        # a user's own error has no stage
            raise refusal(type(error), f"{call.format(where)}: {error.stage}", error.field, error.value, error.wrong,
                          hint) from error
        if not where:
            raise error from error.__cause__
        word = f"{failure.word}s" if several else failure.word
        raise refusal(type(error), call.format(path) or function, word, where, reason, hint) from error
    finally:
        error.__context__ = None        # it is the failure, which has the error: the leaf would live on in a cycle
        del error, failure, parts       # so it would by the traceback, which has this frame


def whole_hint(
    failure: Failure, parts: dict[str, DLBridgeError], passes: bool, hint_of: Callable[[DLBridgeError], str],
) -> str:
    several = bool(failure.others)
    hint = "; ".join(f"for {rest} {hint_of(part)}" for rest, part in parts.items()) if several else hint_of(
        failure.error)
    if passes and failure.word == "column" and is_of_column(failure.error):
        then = "and then" if failure.by_pyarrow else "or"
        hint = f'pass columns="pass" to hand {"them" if several else "it"} on, {then} {hint}'
    return f"{hint}; {AGAIN}" if failure.again else hint


def is_of_column(error: DLBridgeError) -> bool:
    """Whether an error is about what a column has in it, and not about the target, a keyword or a copy."""
    kinds = ConversionError, UnsupportedError, MissingLibraryError
    return type(error) in kinds and (error.stage in ("arrow", "numpy", "source", *PARTS) or error.field == "form")


def note_place(failure: Failure, tree: Any, parts: Iterable[tuple[str, Any]]) -> None:
    """Note where in a tree a leaf is: its values may be others when the tree is taken apart again."""
    paths = (path for label, value in parts for path, leaf in leaves(label, value) if leaf is failure.leaf)
    failure.leaf, failure.rest = tree, next(paths, "") + failure.rest


def name_copies(trees: Iterable[tuple[str, Any]]) -> None:
    """Say where in some trees the leaves are that were copied, in this thread, while somebody watches."""
    in_this_tree(lambda: (pair for name, tree in trees for pair in leaves(name, tree)))


def leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Each leaf, after what is written to get it; the path is what is written to get the tree."""
    kind: Any = type(tree)
    # What a function takes apart is not taken apart a second time.
    container = container_of(tree) if role_of(tree) == OTHER and functions_of(kind) is None else None
    if container is None or container.is_described:
        yield path, tree
    else:
        for label, value in zip(container.labels(tree), container.values(tree), strict=True):
            yield from leaves(path + label, value)
