"""What ``convert_tree``, ``accepts`` and ``collate`` do."""

import functools
import importlib
import inspect
import operator
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NoReturn, ParamSpec, TypeGuard, TypeVar

import numpy as np

from dlbridge._core.containers import EXACT, attributes_of, kind_of
from dlbridge._core.leaf import ARRAY, OTHER, TABLE, VALUE, columns_of, columns_without_rows, role_of, why_no_array
from dlbridge._core.walk import Plainly, give_values, has_numbers
from dlbridge.convert import check_keywords, check_target, convert
from dlbridge.errors import (
    AGAIN,
    ConversionError,
    DeviceError,
    DLBridgeError,
    MissingLibraryError,
    UnsupportedError,
    refusal,
    shown,
)
from dlbridge.libraries.library import Facts

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Memo = dict[int, tuple[Any, Any]]               # by the id of a leaf: the leaf, which keeps its id, and its copy
Takers = dict[int, Callable[[Any, Memo], Any]]  # a function of a leaf for each role

OTHERS = ("pass", "raise")
# Elements that no other library has: kinds of NumPy's dtypes, and names of other libraries' types.
WORD_KINDS = ("O", "S", "U", "T")
WORD_TYPES = ("string", "large_string", "string_view", "str", "binary", "large_binary", "object", "resource", "variant")


def convert_tree(tree: Any, to: Any, others: str, columns: str, keywords: dict[str, Any]) -> Any:
    """Convert every array in a container, as :func:`dlbridge.convert_tree`."""
    plain = not keywords and all(type(given) is str for given in (to, others, columns))
    try:
        take = plain_takers(to, others, columns) if plain else takers(to, others, columns, keywords)
    except UnsupportedError:
        from dlbridge._core.meant import check_order

        check_order(tree, "convert_tree")
        raise
    try:
        return map_leaves(take, tree, {})
    except Failure as failure:
        report(failure, [("", tree)])


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
) -> NoReturn:
    """Raise the error of a failure. It says where the leaf is, behind the name of its tree.

    ``passes``: whether the function has ``columns="pass"``. ``call``: how a call of a function is written, with {} for
    the place of the leaf; nothing for convert_tree().
    """
    error, others = failure.error, failure.others
    parts = {part.rest: part.error for part in (failure, *others)}
    reason = "; ".join(f"{rest} {part.reason}" for rest, part in parts.items()) if others else error.reason
    hint = "; ".join(f"for {rest} {hint_of(part)}" for rest, part in parts.items()) if others else hint_of(error)
    if passes and failure.word == "column" and is_of_column(error):
        then = "and then" if failure.by_pyarrow else "or"
        hint = f'pass columns="pass" to hand {"them" if others else "it"} on, {then} {hint}'
    if failure.again:
        hint += f"; {AGAIN}"
    path = next((path for name, tree in trees for path, leaf in leaves(name, tree) if leaf is failure.leaf), "")
    where = ", ".join(path + rest for rest in parts)
    word = f"{failure.word}s" if others else failure.word
    try:
        if call and not others:
            raise refusal(type(error), f"{call.format(where)}: {error.stage}", error.field, error.value, error.wrong,
                          hint) from error
        if not where:
            raise error from error.__cause__
        raise refusal(type(error), call.format(path) or "convert_tree", word, where, reason, hint) from error
    finally:
        error.__context__ = None        # it is the failure, which has the error: the leaf would live on in a cycle
        del error, failure, others, parts   # so it would by the traceback, which has this frame


def takers(to: Any, others: str, columns: str, keywords: dict[str, Any]) -> Takers:
    """What is done with a leaf, by its role: :func:`convert_tree` for one leaf."""
    check_given(to, others, columns, keywords)

    other = unchanged if others == "pass" else refuse_leaf
    convert_array = converter(to, keywords, others)
    return {OTHER: other, VALUE: other, ARRAY: convert_array, TABLE: Tables(to, columns, keywords, convert_array)}


def refuse_leaf(leaf: Any, memo: Memo) -> Any:
    wrong, hint = "is no array", why_no_array(leaf).hint
    name = next((name for name, value in attributes_of(leaf) if role_of(value) in (ARRAY, TABLE)), None)
    if name is not None and Facts(type(leaf)).hint("type", leaf) is None:
        wrong, hint = f"has arrays, such as its {name}, and is no container", REGISTER
    raise Failure(leaf, refusal(UnsupportedError, "source", "value", shown(leaf), wrong,
                                f'pass others="pass" to hand it on, or {hint}'))


REGISTER = "call dlbridge.register_container(type(x), flatten, unflatten) once"


class Tables:
    """A function that converts a table to a dictionary of its columns."""

    def __init__(self, to: Any, columns: str, keywords: dict[str, Any], convert_array: Callable[[Any, Memo], Any]):
        self.to = to
        self.passes = columns == "pass"
        self.keywords = keywords
        self.convert_array = convert_array
        self.unpack = keywords.get("copy") is not False

    def __call__(self, table: Any, memo: Memo) -> Any:
        unread, was_read = columns_without_rows(table, self.unpack), False
        try:
            if unread is not None and not self.passes:
                self.convert(table, unread, memo)       # what is refused for its type leaves the rows unread
            given = columns_of(table, self.unpack)
            was_read = unread is not None
            return self.convert(table, given, memo)
        except DLBridgeError as error:
            raise Failure(table, error) from None
        except Failure as failure:
            failure.by_pyarrow, failure.again = unread is not None, was_read
            raise

    def convert(self, table: Any, given: Any, memo: Memo) -> Any:
        if not isinstance(given, list):
            return self.convert_unknown(table, given, memo)
        if len(dict(given)) < len(given):
            raise Failure(table, refusal(UnsupportedError, "convert_tree", "columns", [name for name, _ in given],
                                         "have a name more than once", "rename them"))
        made: dict[Any, Any] = {}
        failures: list[Failure] = []
        try:
            for name, column in given:
                made[name] = self.convert_column(table, name, column, memo, failures)
            if failures:
                raise together(failures) from None
            return made
        finally:
            failures.clear()        # their tracebacks have frames with them: the table would live on in a cycle

    def convert_column(self, table: Any, name: Any, column: Any, memo: Memo, failures: list[Failure]) -> Any:
        """The array of a column, or the column as it is; a column that is no array is noted, unless it may pass."""
        try:
            return self(column, memo) if role_of(column) == TABLE else convert(column, self.to, **self.keywords)
        except Failure as raised:
            if self.passes or not is_of_column(raised.error):
                raise in_column(table, name, raised) from None
            failures.append(in_column(table, name, raised))
        except DLBridgeError as raised:
            if not is_of_column(raised):
                raise Failure(table, raised, "column", f"[{name!r}]") from None
            if not self.passes:
                failures.append(Failure(table, raised, "column", f"[{name!r}]"))
        return column

    def convert_unknown(self, table: Any, array: Any, memo: Memo) -> Any:
        """An array of words is handed on, since the table may have been a stream."""
        try:
            return self.convert_array(array, memo)
        except Failure as failure:
            raise Failure(table, failure.error) from None


def together(failures: list[Failure]) -> Failure:
    """The first failure, which has all the others."""
    first = failures[0]
    first.others = [each for failure in failures for each in (failure, *failure.others) if each is not first]
    return first


def in_column(table: Any, name: Any, inner: Failure) -> Failure:
    """The failure of a column that has columns itself, with those of its others."""
    failure = Failure(table, inner.error, "column", f"[{name!r}]{inner.rest}")
    failure.others = [Failure(table, other.error, "column", f"[{name!r}]{other.rest}") for other in inner.others]
    return failure


def check_given(to: Any, others: str, columns: str, keywords: dict[str, Any]) -> None:
    for name, given in (("others", others), ("columns", columns)):
        if not isinstance(given, str) or given not in OTHERS:
            raise ValueError(f'convert_tree: {name} {shown(given)}: is neither "pass" nor "raise" (pass one)')
    check_keywords("convert_tree", keywords)
    check_target(to, imported=False)


plain_takers = functools.lru_cache(maxsize=32)(functools.partial(takers, keywords={}))


def converter(to: Any, keywords: dict[str, Any], others: str) -> Callable[[Any, Memo], Any]:
    """A function that converts a leaf, which is copied once for all its places. It is most of what a batch costs."""
    def failed(leaf: Any, error: DLBridgeError) -> Any:
        if others == "pass" and not isinstance(error, DeviceError) and has_words(leaf):
            check_target(to)        # the error may be about that
            return leaf
        raise Failure(leaf, error) from None

    def convert_with_keywords(leaf: Any, memo: Memo) -> Any:
        try:
            if id(leaf) not in memo:
                memo[id(leaf)] = leaf, convert(leaf, to, **keywords)
            return memo[id(leaf)][1]
        except DLBridgeError as error:
            return failed(leaf, error)

    return convert_with_keywords if keywords else Plainly(to, failed)


def has_words(array: Any) -> bool:
    """Whether the elements of an array are strings or objects."""
    try:
        return is_word_type(array.dtype if hasattr(array, "dtype") else array.type)
    except Exception:
        return False            # the array's own error is the one to report


def is_word_type(dtype: Any) -> bool:
    kind = getattr(dtype, "kind", None)
    if isinstance(kind, str) or isinstance(dtype, str):
        return kind in WORD_KINDS
    return str(getattr(dtype, "name", dtype)).lower() in WORD_TYPES


def is_of_column(error: DLBridgeError) -> bool:
    """Whether an error is about what a column has in it, and not about the target, a keyword or a copy."""
    kinds = ConversionError, UnsupportedError, MissingLibraryError
    return type(error) in kinds and error.stage in ("arrow", "numpy", "source")


def unchanged(leaf: Any, memo: Memo) -> Any:
    return leaf


AS_THEY_ARE: Takers = dict.fromkeys((OTHER, VALUE, ARRAY, TABLE), unchanged)


def map_leaves(take: Takers, tree: Any, memo: Memo) -> Any:
    """A container of what the function of each leaf's role gives for it."""
    role = role_of(tree)
    if role != OTHER:
        return take[role](tree, memo)
    kind = EXACT.get(type(tree))
    if kind is not None:
        return kind.remake(tree, give_values(take, kind.values(tree), memo, map_leaves))
    kind = kind_of(tree)
    if kind is None:
        return take[OTHER](tree, memo)
    before = list(kind.values(tree))
    try:
        values = [map_leaves(take, value, memo) for value in before]
    except Failure as failure:
        if kind.is_described:
            locate(failure, tree, zip(kind.labels(tree), before, strict=True))
        raise
    # Many objects of a batch have no arrays in them, and not all of them can be made again.
    return tree if not kind.is_read and all(map(operator.is_, values, before)) else kind.remake(tree, values)


def locate(failure: Failure, tree: Any, parts: Iterable[tuple[str, Any]]) -> None:
    """Note where in a tree a leaf is: its values may be others when the tree is taken apart again."""
    paths = (path for label, value in parts for path, leaf in leaves(label, value) if leaf is failure.leaf)
    failure.leaf, failure.rest = tree, next(paths, "") + failure.rest


def leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Each leaf, after what is written to get it; the path is what is written to get the tree."""
    kind = kind_of(tree) if role_of(tree) == OTHER else None
    if kind is None or kind.is_described:
        yield path, tree
    else:
        for label, value in zip(kind.labels(tree), kind.values(tree), strict=True):
            yield from leaves(path + label, value)


# ---- collate ---------------------------------------------------------------------------------------------------------

def collate(samples: Iterable[Any]) -> Any:
    """Stack the samples of a batch, as :func:`dlbridge.collate`."""
    check_target("torch")
    return stack_alike(samples if type(samples) is list else list(samples), "")


def stack_alike(samples: list[Any], path: str) -> Any:
    """Stack samples: Python's own containers part by part, as torch does, numbers of one type of NumPy at once.

    ``path`` is what is written behind a sample of the batch to get one of these.
    """
    stack = torch_data().default_collate
    kinds = {*map(type, samples)}
    kind: Any = type(samples[0]) if samples else None
    if len(kinds) == 1 and kind in NUMBERS:
        return stack_numbers(samples)
    if kinds <= torchs_own():
        return stack(samples)
    if len(kinds) == 1 and kind is dict:
        return {key: stack_alike([sample[key] for sample in samples], f"{path}[{key!r}]") for key in samples[0]}
    if len(kinds) == 1 and is_sequence(kind) and len({*map(len, samples)}) == 1:
        parts = [stack_alike(list(parts), f"{path}[{index}]") for index, parts in enumerate(zip(*samples, strict=True))]
        return kind(*parts) if hasattr(kind, "_fields") else parts
    return stack([as_tensors(sample, path) for sample in samples])


NUMBERS = {np.dtype(letter).type for letter in "?bBhHiIlLqQefdFD"}      # NumPy's numbers that torch has too


def is_sequence(kind: type[Any]) -> bool:
    return kind in (tuple, list) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def as_tensors(sample: Any, path: str) -> Any:
    """A sample with torch's tensors. What is read-only is shared too, since only copies leave :func:`collate`."""
    try:
        return map_leaves(sharing(), sample, {})
    except Failure as failure:
        report(failure, [(path, sample)], passes=False)


@functools.cache
def sharing() -> Takers:
    return takers("torch", "pass", "raise", {"readonly": "share"})


@functools.cache
def torch_data() -> Any:
    return importlib.import_module("torch.utils.data")


@functools.cache
def torchs_own() -> set[type]:
    """What torch stacks itself, or leaves as it is; numbers of several types as well as those of one."""
    return {int, float, bool, str, bytes, importlib.import_module("torch").Tensor, *NUMBERS}


def stack_numbers(numbers: list[Any]) -> Any:
    stacked: Any = convert(np.array(numbers), "torch")
    return stacked if torch_data().get_worker_info() is None else stacked.share_memory_()


# ---- accepts ---------------------------------------------------------------------------------------------------------

DIFFERENTIABLE = ("torch", "jax")       # accepts(…, gradients=True) is for functions of these
HINTS_AT_GRADIENTS = {
    "requires_grad": 'pass gradients=True and returns="like" to dlbridge.accepts, or detach=True to end the gradient',
    "is_traced": 'pass gradients=True and returns="like" to dlbridge.accepts, or {}',
}
KEYWORD = re.compile(r'pass (?:device|copy|stream|readonly|detach|narrow)=[\w"]+')


def accepts(
    to: Any, returns: str | None, keywords: dict[str, Any],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Any]]:
    """Make a decorator, as :func:`dlbridge.accepts`."""
    check_decorator(to, returns)
    others, columns = keywords.pop("others", "pass"), keywords.pop("columns", "raise")
    check_keywords("accepts", keywords)
    take = takers(to, others, columns, keywords)
    target = check_target(to, imported=False)
    # The device is that of the first array.
    back = {name: value for name, value in keywords.items() if name not in ("device", "stream")}

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Any]:
        check_decorated(function)
        boundary = Boundary(function, take, back if returns else None, target in DIFFERENTIABLE)

        if is_asynchronous(function):
            @functools.wraps(function)
            async def wait(*given: Parameters.args, **named: Parameters.kwargs) -> Any:
                like = boundary.first(given, named)
                arguments, words = boundary.inward(given, named)
                return boundary.outward(await function(*arguments, **words), like)

            return wait

        @functools.wraps(function)
        def call(*given: Parameters.args, **named: Parameters.kwargs) -> Any:
            like = boundary.first(given, named)
            arguments, words = boundary.inward(given, named)
            return boundary.outward(function(*arguments, **words), like)

        return call

    return decorate


def check_decorator(to: Any, returns: Any) -> None:
    if returns not in (None, "like"):
        raise ValueError(f'accepts: returns {shown(returns)}: is neither None nor "like" (pass one)')
    if inspect.isroutine(to):
        raise TypeError(f'accepts: to {shown(to)}: is the function itself (write @dlbridge.accepts("torch") above it)')


def check_decorated(function: Any) -> None:
    if not callable(function) or isinstance(function, staticmethod):
        raise TypeError(f"accepts: function {shown(function)}: cannot be called (put @classmethod, @staticmethod or "
                        "@property above @dlbridge.accepts)")


class Boundary:
    """What is done with the arguments of a function, and with its result."""

    def __init__(
        self, function: Callable[..., Any], take: Takers, back: dict[str, Any] | None, hints_at_gradients: bool,
    ) -> None:
        """``back`` has the keywords for the result; None leaves it as it is."""
        self.function = function
        self.hints_at_gradients = hints_at_gradients
        self.take = take
        self.back = back
        self.bound = first_parameter(function) in ("self", "cls")
        name = getattr(function, "__name__", None)
        name = name if isinstance(name, str) else type(function).__name__
        self.name = name.replace("{", "{{").replace("}", "}}")

    def first(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The first array that the function is called with, if its result shall be like it."""
        if self.back is None:
            return None
        found = first_array((*given[self.bound:], *named.values()) if named else given[self.bound:])
        found = np.ndarray if isinstance(found, np.generic) else found
        if found is not None:
            self.check_returned(found)
        return found

    def check_returned(self, like: Any) -> None:
        """Refuse an array whose library dlbridge makes no arrays of, before the function runs."""
        try:
            check_target(like)
        except UnsupportedError as error:
            raise refusal(UnsupportedError, "accepts", 'returns "like"', error.value, error.wrong,
                          'call it with dlbridge.convert(x, "numpy"), or leave out returns=') from None

    def inward(self, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        take = self.take
        memo: Memo = {}
        try:
            arguments = give_values(take, given[self.bound:], memo, map_leaves)
            words = {name: map_leaves(take, value, memo) for name, value in named.items()} if named else named
        except Failure as failure:
            self.report(failure, given, named)
        return [*given[:1], *arguments] if self.bound else arguments, words

    def report(self, failure: Failure, given: tuple[Any, ...], named: dict[str, Any]) -> NoReturn:
        """Raise the error of an argument, by the names of the function and of its parameter."""
        report(failure, named_arguments(self.function, given, named)[self.bound:], hint_of=self.hint,
               call=f"{self.name}({{}})")

    def hint(self, error: DLBridgeError) -> str:
        """The hint for whoever wrote the decorator, whose keywords they are."""
        if self.hints_at_gradients and error.field in HINTS_AT_GRADIENTS:
            return HINTS_AT_GRADIENTS[error.field].format(error.hint)
        return KEYWORD.sub(r"\g<0> to dlbridge.accepts", error.hint)

    def outward(self, result: Any, like: Any) -> Any:
        if like is None or self.back is None:
            return result
        try:
            if role_of(result) == ARRAY:
                return convert(result, like, **self.back) if self.back else convert(result, like)
            return map_leaves({**AS_THEY_ARE, ARRAY: converter(like, self.back, "pass")}, result, {})
        except DLBridgeError as error:
            if has_words(result):
                return result
            report(Failure(result, error), [("result", result)], hint_of=self.hint, call=f"{self.name}, {{}}")
        except Failure as failure:
            report(failure, [("result", result)], hint_of=self.hint, call=f"{self.name}, {{}}")


def is_asynchronous(function: Callable[..., Any]) -> TypeGuard[Callable[..., Awaitable[Any]]]:
    """Whether a call gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def first_parameter(function: Callable[..., Any]) -> str:
    """The name of a function's first parameter, or nothing: not every builtin says its parameters."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except ValueError:
        return ""


def named_arguments(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any],
) -> list[tuple[str, Any]]:
    """The arguments of a call by the names of the parameters, or by their places."""
    try:
        return list(inspect.signature(function).bind(*given, **named).arguments.items())
    except (TypeError, ValueError):
        return [(f"[{index}]", value) for index, value in enumerate(given)] + list(named.items())


def first_array(values: Iterable[Any]) -> Any:
    """The first array in some values, which may be containers; or None."""
    for value in values:
        role = role_of(value)
        if role == TABLE or (role == ARRAY and (has_numbers(value) or not has_words(value))):
            return value
        kind = kind_of(value) if role == OTHER else None
        if kind is not None and (found := first_array(kind.values(value))) is not None:
            return found
    return None
