"""Classes whose objects are several arrays each, as users registered them."""

from collections.abc import Callable, Mapping
from typing import Any

from dlbridge.errors import ConversionError, DLBridgeError, full_name, refusal, shown
from dlbridge.libraries.library import PARTS, REGISTERED, Arrays, Fact, Form, Library, Sparse, finder_of_form

USERS = "register_form"
SEVERAL = "an array of that form"
DENSE = {"ragged": 'dlbridge.convert(x, "pyarrow").flatten()', "bsc": 'dlbridge.convert(x, "torch").to_dense()'}


def add(
    form: str, array_type: type[Any], take_apart: Callable[[Any], Any], put_together: Callable[..., Any] | None,
    parts_of: str, coordinates: str, index_types: tuple[str, ...],
) -> None:
    """Note a class, in the place of what was registered for it before."""
    dense = DENSE.get(form, 'dlbridge.convert(x, "scipy").toarray()')
    apart = taker(form, array_type, take_apart)
    made = None if put_together is None else maker(form, array_type, put_together)
    REGISTERED[array_type] = Library(
        name=array_type.__name__,
        module=array_type.__module__,
        roots=("builtins",),        # its module need not be imported as such
        arrays=(Arrays(array_type.__name__, {"": f"pass {dense}"}, form_name=Fact(form, USERS)),),
        delivery="" if made is None else "forms",
        parts_of=parts_of,
        lacks=(Fact("SWAPPED_BYTES", USERS, "has what NumPy has, which may not be expected there"),),
        forms={form: Form(
            (array_type.__name__,), apart, made, None if made is None else checker(array_type), dense=dense,
            of_dense=SEVERAL, elements=lambda array: apart(array)[1][0], index_types=index_types,
            dense_axes=form == "ragged", sparse=Sparse(coordinates, made=SEVERAL))},
    )
    finder_of_form.cache_clear()


def taker(
    form: str, array_type: type[Any], take_apart: Callable[[Any], Any],
) -> Callable[[Any], tuple[tuple[int, ...], list[Any]]]:
    """A function of an object that gives its shape and its parts, as a user's function has them by name."""
    names = PARTS[form]
    wanted = names if form == "ragged" else ("shape", *names)

    def parts_of_array(array: Any) -> tuple[tuple[int, ...], list[Any]]:
        try:
            parts = take_apart(array)
            parts = dict(parts) if isinstance(parts, Mapping) else parts
        except (DLBridgeError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise refusal(ConversionError, form, "take_apart", full_name(array_type),
                          f"raised {type(error).__qualname__}: {error}", "mend that function") from error
        if not isinstance(parts, dict) or not parts.keys() >= set(wanted):
            raise refusal(ConversionError, form, "parts", shown(list(parts) if isinstance(parts, dict) else parts),
                          f"are no dictionary of {', '.join(wanted)}",
                          f"let take_apart of {full_name(array_type)} give these")
        found = [parts[name] for name in names]
        if form in ("coo", "ragged") and isinstance(found[1], list):
            found[1] = tuple(found[1])
        if form == "ragged" and not isinstance(found[1], tuple):
            found[1] = (found[1],)
        return parts.get("shape", ()), found

    return parts_of_array


def checker(array_type: type[Any]) -> Callable[..., None]:
    def check(kind: Any, shape: tuple[int, ...], dtype: str, values: Any) -> None:
        if kind is not None and kind is not array_type:
            raise refusal(ConversionError, array_type.__name__, "to", full_name(kind),
                          f"is a class below {full_name(array_type)}, which was registered", "register it as well")

    return check


def maker(form: str, array_type: type[Any], put_together: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives the parts to a user's function by name."""
    def made(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
        given = dict(zip(PARTS[form], parts, strict=True))
        if form != "ragged":
            given["shape"] = shape
        elif len(given["offsets"]) == 1:
            given["offsets"], = given["offsets"]
        return put_together(**given)

    return made
