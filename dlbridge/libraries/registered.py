"""Classes whose objects are several arrays each, as users registered them."""

from collections.abc import Callable, Mapping
from typing import Any

from dlbridge.errors import ConversionError, DLBridgeError, full_name, refusal, shown
from dlbridge.libraries.library import PARTS, REGISTERED, Arrays, Fact, Form, Library, finder_of_form

USERS = "register_form"
SEVERAL = "an array of that form"
DENSE = {"ragged": 'dlbridge.convert(x, "pyarrow").flatten()', "bsc": 'dlbridge.convert(x, "torch").to_dense()'}


def add(
    form: str, array_type: type[Any], take_apart: Callable[[Any], Any], put_together: Callable[..., Any] | None,
    parts_of: str, coordinates: str, index_types: tuple[str, ...],
) -> None:
    """Note a class, in the place of what was registered for it before."""
    names = PARTS[form]
    dense = DENSE.get(form, 'dlbridge.convert(x, "scipy").toarray()')

    def parts_of_array(array: Any) -> tuple[tuple[int, ...], list[Any]]:
        try:
            parts = take_apart(array)
        except (DLBridgeError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise refusal(ConversionError, form, "take_apart", full_name(array_type),
                          f"raised {type(error).__qualname__}: {error}", "mend that function") from error
        wanted = names if form == "ragged" else ("shape", *names)
        if not isinstance(parts, Mapping) or not parts.keys() >= set(wanted):
            raise refusal(ConversionError, form, "parts", shown(list(parts) if isinstance(parts, Mapping) else parts),
                          f"are no dictionary of {', '.join(wanted)}",
                          f"let take_apart of {full_name(array_type)} give these")
        found = [parts[name] for name in names]
        if isinstance(found[1], list):
            found[1] = tuple(found[1])
        if form == "ragged" and not isinstance(found[1], tuple):
            found[1] = (found[1],)
        return parts.get("shape", ()), found

    def made(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
        if kind not in (None, array_type):
            raise refusal(ConversionError, array_type.__name__, "to", full_name(kind),
                          f"is a class below {full_name(array_type)}, which was registered", "register it as well")
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
        roots=("builtins",),        # its module need not be imported as such
        arrays=(Arrays(array_type.__name__, {"": f"pass {dense}"}, form_name=Fact(lambda array: form, USERS)),),
        delivery="" if put_together is None else "forms",
        parts_of=parts_of,
        forms={form: Form((array_type.__name__,), parts_of_array, made if put_together else None, SEVERAL, SEVERAL,
                          dense, elements=lambda array: parts_of_array(array)[1][0],
                          coordinates=coordinates, index_types=index_types, dense_axes=form == "ragged")},
    )
    finder_of_form.cache_clear()
