"""Classes whose objects are several arrays each, as users registered them."""

from collections.abc import Callable
from typing import Any

from dlbridge.errors import ConversionError, full_name, refusal, shown
from dlbridge.libraries.library import PARTS, REGISTERED, Arrays, Fact, Form, Library, finder_of_form, top_module

USERS = "register_form"
SEVERAL = "an array of that form"


def add(
    form: str, array_type: type[Any], take_apart: Callable[[Any], Any], put_together: Callable[..., Any] | None,
    parts_of: str, coordinates: str, index_types: tuple[str, ...],
) -> None:
    """Note a class, in the place of what was registered for it before."""
    names = PARTS[form]

    def parts_of_array(array: Any) -> tuple[tuple[int, ...], list[Any]]:
        parts = take_apart(array)
        wanted = names if form == "ragged" else ("shape", *names)
        if not isinstance(parts, dict) or not parts.keys() >= set(wanted):
            raise refusal(ConversionError, form, "parts", shown(list(parts) if isinstance(parts, dict) else parts),
                          f"are no dictionary of {', '.join(wanted)}",
                          f"let take_apart of {full_name(array_type)} give these")
        found = [parts[name] for name in names]
        if form == "ragged":
            found[1] = found[1] if isinstance(found[1], tuple) else (found[1],)
        return parts.get("shape", ()), found

    def made(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
        given = dict(zip(names, parts, strict=True))
        if form != "ragged":
            given["shape"] = shape
        elif len(given["offsets"]) == 1:
            given["offsets"], = given["offsets"]
        assert put_together is not None
        return put_together(**given)

    REGISTERED[array_type] = Library(
        name=array_type.__name__,
        module=array_type.__module__,
        roots=(top_module(array_type),),
        arrays=(Arrays(array_type.__name__, form_name=Fact(lambda array: form, USERS)),),
        delivery="" if put_together is None else "forms",
        parts_of=parts_of,
        forms={form: Form((array_type.__name__,), parts_of_array, made if put_together else None, SEVERAL, SEVERAL,
                          "a dense array of it", elements=lambda array: parts_of_array(array)[1][0],
                          coordinates=coordinates, index_types=index_types, dense_axes=form == "ragged")},
    )
    finder_of_form.cache_clear()
