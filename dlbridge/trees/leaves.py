"""What ``convert_tree`` does, and what is done with each leaf of a tree, by its role."""

import re
import sys
from _thread import get_ident
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dlbridge._core.calls import check_keywords
from dlbridge._core.late import load_module
from dlbridge._core.route import target_facts, target_name
from dlbridge.convert import asdlpack
from dlbridge.errors import DeviceError, DLBridgeError, UnsupportedError, refusal, shown
from dlbridge.libraries.library import Facts, finder_of_form, form_meant
from dlbridge.trees.containers import attributes_of, container_of, functions_of
from dlbridge.trees.failure import Failure, is_of_column, name_copies, report
from dlbridge.trees.leaf import (
    ARRAY,
    FORM,
    OTHER,
    TABLE,
    VALUE,
    columns_of,
    columns_without_rows,
    role_of,
    why_no_array,
)
from dlbridge.trees.walk import Converter, TakeArray, convert_columns, map_tree
from dlbridge.watch import pending

Memo = dict[int, tuple[Any, Any]]               # by the id of a leaf: the leaf, which keeps its id, and its copy
Takers = dict[int, Callable[[Any, Memo], Any]]  # a function of a leaf for each role
Keep = Callable[[Any], Any]

OTHERS = ("pass", "raise")
OWN_KEYWORDS = {
    "convert_tree": ("others", "columns"), "prefetch": ("depth", "others", "columns"),
    "accepts": ("returns", "gradients", "callback", "others", "columns"), "collate": (),
}
# Elements that no other library has: kinds of NumPy's dtypes, and names of other libraries' types.
TEXT_KINDS = ("O", "S", "U", "T")
TEXT_TYPES = ("string", "large_string", "string_view", "str", "binary", "large_binary", "object", "resource", "variant")


def convert_tree(tree: Any, to: Any, others: str, columns: str, keywords: dict[str, Any]) -> Any:
    """Convert every array in a container, as :func:`dlbridge.convert_tree`."""
    try:
        take = TAKERS.get((to, others, columns)) if type(to) is str and not keywords else None
    except TypeError:
        take = None                 # others or columns is none of the policies
    try:
        return map_tree(take or takers_for(tree, to, others, columns, keywords), tree)
    except Failure as failure:
        report(failure, [("", tree)])
    finally:
        if pending:
            name_copies([("", tree)])


# By the arguments of convert_tree(), where they are names of targets and policies, of which there are few.
TAKERS: dict[tuple[str, str, str], Takers] = {}


def takers_for(tree: Any, to: Any, others: str, columns: str, keywords: dict[str, Any]) -> Takers:
    try:
        if type(to) is not str or keywords:
            return takers("convert_tree", to, others, columns, keywords, queued=[])
        take = TAKERS[to, others, columns] = takers("convert_tree", to, others, columns, {})
        return take
    except UnsupportedError:
        load_module("dlbridge._core.meant").check_order(tree, "convert_tree")
        raise


def takers(
    call: str, to: Any, others: str, columns: str, keywords: dict[str, Any],
    convert: Callable[..., Any] | None = None, queued: list[Any] | None = None, keep: Keep | None = None,
) -> Takers:
    """What is done with a leaf, by its role: :func:`convert_tree` for one leaf. ``convert`` may convert the arrays.

    ``queued`` is a list, for one tree at a time, of uploads that map_tree() waits for. A column of a table is waited
    for at once. ``keep`` gives what is handed on for an array of strings or objects, or for a column that is no array.

    Errors about what was given name the function that was called.
    """
    check_given(call, to, others, columns, keywords)
    other = unchanged if others == "pass" else refuse_leaf
    convert, keep = convert or converter(to, keywords), keep or itself
    take_array = taker(convert, to, others, queued, keep)
    several = take_array if forms_of(to).keys() - {"masked"} else other
    return {OTHER: other, VALUE: other, ARRAY: take_array, FORM: several,
            TABLE: Tables(call, columns, keywords.get("copy") is not False, take_array, convert, keep)}


def converter(to: Any, keywords: dict[str, Any], own: bool = False) -> Callable[..., Any]:
    library = target_facts(to, imported=False)
    if library.delivery != "forms" or form_meant(library, to) == "masked":
        return Converter(to, keywords, own=own)
    return OneOrSeveral(Converter(to, keywords, own=own), Converter(library.parts_of, keywords, own=own))


class OneOrSeveral:
    """What converts for a target whose arrays are several arrays each; one array becomes one of those of its parts."""

    def __init__(self, several: Converter, one: Converter) -> None:
        self.several, self.one = several, one

    def __call__(self, array: Any, queued: list[Any] | None = None) -> Any:
        return (self.several if is_several(array) else self.one)(array)


def refuse_leaf(leaf: Any, memo: Memo) -> Any:
    wrong, hint = "is no array", why_no_array(leaf).hint
    name = next((name for name, value in attributes_of(leaf) if role_of(value) in (ARRAY, TABLE)), None)
    if name is not None and Facts(type(leaf)).hint("type", leaf) is None:
        wrong, hint = f"has arrays, such as its {name}, and is no container", REGISTER
    raise Failure(leaf, refusal(UnsupportedError, "source", "value", shown(leaf), wrong,
                                f'pass others="pass" to hand it on, or {hint}'))


def arrays_in(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays in a container, and the columns of its tables, after what is written to get them.

    Left out is what would have to be read for that: tables that give their rows once, files, and what a function takes
    apart.
    """
    kind: Any = type(tree)
    role = role_of(tree)
    if role in (ARRAY, FORM):
        yield path, tree
    elif role == TABLE and columns_without_rows(tree, False) is None:
        columns = columns_of(tree, False)
        yield from ((f"{path}[{name!r}]", column) for name, column in columns) if isinstance(columns, list) else ()
    elif role == OTHER and functions_of(kind) is None and (container := container_of(tree)) is not None:
        for label, value in zip(container.labels(tree), container.values(tree), strict=True):
            yield from arrays_in(value, path + label)


REGISTER = "call dlbridge.register_container(type(x), flatten, unflatten) once"


RECORDS = np.ndarray, np.void           # these can be read again, so their rows need not stay unread


class Tables:
    """A function that converts a table to a dictionary of its columns."""

    def __init__(
        self, call: str, columns: str, unpack: bool, take_array: TakeArray, convert: Callable[[Any], Any], keep: Keep,
    ) -> None:
        self.call = call
        self.passes = columns == "pass"
        self.unpack = unpack
        self.take_array = take_array
        self.convert_array = convert
        self.keep = keep

    def __call__(self, table: Any, memo: Memo) -> Any:
        if isinstance(table, RECORDS):
            return self.convert(table, columns_of(table, self.unpack), memo)
        unread, was_read = columns_without_rows(table, self.unpack), False
        try:
            if unread is not None and not self.passes:
                self.convert(table, unread, memo)       # what is refused for its type leaves the rows unread
            columns = columns_of(table, self.unpack)
            was_read = unread is not None
            return self.convert(table, columns, memo)
        except DLBridgeError as error:
            raise Failure(table, error) from None
        except Failure as failure:
            failure.by_pyarrow, failure.again = unread is not None, was_read
            raise

    def convert(self, table: Any, columns: Any, memo: Memo) -> Any:
        if not isinstance(columns, list):
            return self.convert_unknown(table, columns, memo)
        failures: list[Failure] = []
        try:
            made = convert_columns(self, table, columns, memo, failures)
            if pending:
                name_columns(table, columns)
            if failures:
                raise together(failures) from None
            return made
        finally:
            failures.clear()        # their tracebacks have frames with them: the table would live on in a cycle

    def repeated(self, table: Any, columns: list[tuple[Any, Any]]) -> Failure:
        return Failure(table, refusal(UnsupportedError, self.call, "columns", [name for name, _ in columns],
                                      "have a name more than once", "rename them"))

    def convert_column(self, table: Any, name: Any, column: Any, memo: Memo, failures: list[Failure]) -> Any:
        """The array of a column, or what ``keep_refused`` gives."""
        try:
            return self(column, memo) if role_of(column) == TABLE else self.convert_array(column)
        except Failure as raised:
            if self.passes or not is_of_column(raised.error):
                raise in_column(table, name, raised) from None
            failures.append(in_column(table, name, raised))
        except DLBridgeError as raised:
            return self.keep_refused(table, name, column, raised, failures)
        return self.keep(column)

    def keep_refused(
        self, table: Any, name: Any, column: Any, error: DLBridgeError, failures: list[Failure],
    ) -> Any:
        """A column that is no array, as it is; it is noted, unless it may pass."""
        failure = Failure(table, error, "column", f"[{name!r}]")
        if not is_of_column(error):
            raise failure from None
        if not self.passes:
            failures.append(failure)
        return self.keep(column)

    def convert_unknown(self, table: Any, array: Any, memo: Memo) -> Any:
        """Take the array of a table without columns. One of strings is handed on, since a stream is used up."""
        try:
            return self.take_array(array, memo)
        except Failure as failure:
            raise Failure(table, failure.error) from None


def name_columns(table: Any, columns: list[tuple[str, Any]]) -> None:
    """Say of the columns that were copied which of the table's they are."""
    for name, column in columns:
        for each in pending.get(get_ident(), ()):
            if each.leaf is column:
                each.leaf, each.rest = table, f"[{name!r}]{each.rest}"


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


def check_given(call: str, to: Any, others: str, columns: str, keywords: dict[str, Any]) -> None:
    for name, option in (("others", others), ("columns", columns)):
        if not isinstance(option, str) or option not in OTHERS:
            raise ValueError(f'{call}: {name} {shown(option)}: is neither "pass" nor "raise" (pass one)')
    check_keywords(call, OWN_KEYWORDS[call], keywords)
    target_name(to, imported=False)


def itself(array: Any) -> Any:
    return array


def taker(
    convert: Callable[..., Any], to: Any, others: str, queued: list[Any] | None = None, keep: Keep = itself,
) -> TakeArray:
    """What is given for an array, which is copied once for all its places."""
    def failed(leaf: Any, error: DLBridgeError) -> Any:
        passes = others == "pass" and not isinstance(error, DeviceError)
        if passes and (has_texts(leaf) or has_no_form(leaf, error, to)):
            target_name(to)        # the error may be about that
            return keep(leaf)
        raise Failure(leaf, error) from None

    return TakeArray(convert, failed, queued)


def forms_of(to: Any) -> Mapping[str, Any]:
    """The forms of a target's arrays that are several arrays, which those of others may become."""
    return target_facts(to, imported=False).forms


def has_no_form(leaf: Any, error: DLBridgeError, to: Any) -> bool:
    """Whether an error says that the target's library has no such array, of a leaf that is several arrays."""
    form = form_of_several(leaf)
    return form is not None and (
        isinstance(error, UnsupportedError) or (error.field == "form" and form not in forms_of(to)))


def is_several(array: Any) -> bool:
    """Whether an array is several arrays, as a sparse one is."""
    return form_of_several(array) is not None


def form_of_several(array: Any) -> str | None:
    """The form of an array that is several arrays; None of all others."""
    kind: Any = type(array)
    find = finder_of_form(kind)
    return None if find is None else find(array)


def convert_alike(like: Any, keywords: dict[str, Any]) -> Callable[[Any, Memo], Any]:
    """What becomes of an array of a result that shall be like an array, where one of both may be several arrays.

    It goes to the device of that array, which the name of a library does not say.
    """
    give = taker(Converter(like, keywords), like, "pass")

    def convert(leaf: Any, memo: Memo) -> Any:
        to = alike(leaf, like)
        if to is like:
            return give(leaf, memo)
        return taker(Converter(to, {**keywords, "device": device_of(like)}), to, "pass")(leaf, memo)

    return convert


def device_of(array: Any) -> str:
    """The device of an array, which may be several arrays."""
    facts, form = Facts(type(array)), form_of_several(array)
    library = facts.library_of_forms()
    if form is None and facts.has_mask is not None and facts.has_mask(array):
        form, library = "masked", facts.library_of_masks()
    known = library.forms.get(form) if library is not None and form is not None else None
    elements = array if form is None else None if known is None else known.part_on_device(array)
    return "cpu" if elements is None else asdlpack(elements, readonly="share", detach=True).device


def alike(result: Any, like: Any) -> Any:
    """What an array is converted to, to be like another one, where one of both may be several arrays.

    One array becomes one of those that the parts are. Of several, their form stays, and whether it is a matrix.
    """
    form, wanted = form_of_several(like), form_of_several(result)
    library = target_facts(like)
    if form is None:
        return library.name if wanted in library.forms else like
    if wanted is None:
        return library.parts_of if library.delivery == "forms" else library.name
    if wanted not in library.forms or form not in library.forms:
        return like
    types, kinds = library.forms[form].types, [kind.__name__ for kind in type(like).__mro__]
    place = next((types.index(kind) for kind in kinds if kind in types), None)
    if place is not None and wanted == form:
        return type(like)
    named = library.forms[wanted].types[place or 0:][:1]
    return getattr(sys.modules[library.top], named[0], library.name) if named else library.name


def has_texts(array: Any) -> bool:
    """Whether the elements of an array are strings or objects."""
    try:
        return is_text_type(array.dtype if hasattr(array, "dtype") else array.type)
    except Exception:
        return False            # the array's own error is the one to report


def is_text_type(dtype: Any) -> bool:
    kind = getattr(dtype, "kind", None)
    if isinstance(kind, str) or isinstance(dtype, str):
        return kind in TEXT_KINDS
    # Types of lists end with that of their elements: "var * string", "list<item: string not null>".
    words = re.findall(r"\w+", str(getattr(dtype, "name", dtype)).lower().replace(" not null", ""))
    return bool(words) and words[-1] in TEXT_TYPES


def unchanged(leaf: Any, memo: Memo) -> Any:
    return leaf


AS_THEY_ARE: Takers = dict.fromkeys((OTHER, VALUE, ARRAY, TABLE, FORM), unchanged)
