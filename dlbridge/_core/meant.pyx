"""What a user may have meant by something that is no target, source, keyword or dtype. Only a mistake imports it.

It is compiled because CPython 3.11 loses the arguments of a Python function, and so an array, if there is no memory for
the function's frame.
"""

from difflib import get_close_matches
from types import ModuleType

from dlbridge._core.dtypes import NAMES
from dlbridge.errors import UnsupportedError, full_name, refusal, shown
from dlbridge.libraries.library import REGISTERED, libraries, library_of, root_of
from dlbridge.libraries.names import AS_NUMPY, DEVICES, FUNCTIONS, INSTEAD, MEANT, NUMBERS, SAFETENSORS


def about_target(to, list names):
    """Of something that is no target: how a message shows it, what is wrong with it, and the hint."""
    text, path = written(to)
    kind = full_name(type(to)).rpartition(".")[2]
    root, last = path.partition(".")[0], path.rpartition(".")[2]
    meant = MEANT.get(root, root)
    usual = f"one of {', '.join(names)}, any namespace with from_dlpack, or register_target()"
    if (to if isinstance(to, type) else type(to)) in REGISTERED:
        return text, "was registered as a source only", "call register_form with put_together"
    if last in NUMBERS or kind == "dtype" or kind.endswith("DType"):
        return text, "is a type of elements, and no library", f'call {AS_NUMPY}.astype("float32"), for example'
    if root.partition(":")[0] in DEVICES or kind == "device":
        return text, "is a device, and no library", 'call dlbridge.convert(x, "torch", device="cpu"), for example'
    if kind in ("dict", "list", "tuple"):
        return text, "is a container, and no library", 'call dlbridge.convert_tree(x, "torch"), the target second'
    if meant in INSTEAD and meant not in names:
        made = INSTEAD.get(f"{meant}.{last}", INSTEAD[meant])
        return text, "is a source only" if library_of(meant) else "is no library of arrays", f"call {made}"
    if kind in FUNCTIONS:
        return text, "is a function, and no library", usual
    if meant not in names:
        meant = closest(path, names) if isinstance(to, str) else None
    return text, "is no target that dlbridge knows", f"did you mean {meant!r}? {usual}" if meant else usual


cdef tuple written(object to):
    """How a message shows what was given for ``to``, and the path that it names, in small letters."""
    if isinstance(to, str):
        text = str.__str__(to)
        return shown(to) if len(text) < 80 else f"of {len(text)} characters", text.strip().lower()
    if isinstance(to, ModuleType):
        name = getattr(to, "__name__", "")          # a module may say anything there, or nothing
        return f"module {shown(name)}", shown(name, str).lower()
    kind = to if isinstance(to, type) else type(to)
    name = full_name(kind).removeprefix("builtins.")
    if kind is to:
        return f"class {name}", name.lower()
    if to is None or isinstance(to, int) or name.endswith(("dtype", "DType", "device", "Device", *FUNCTIONS)):
        return shown(to), shown(to, str).lower()
    return f"of type {name}", name.lower()


cdef object closest(str path, list names):
    """The name that was mistyped, or None."""
    for near in get_close_matches(path, [*names, *MEANT], 1, cutoff=0.7):
        return MEANT.get(near, near) if MEANT.get(near, near) in names else None


def about_keyword(str function, name, options):
    """The error of a keyword that a function does not have."""
    near = get_close_matches(name.lower(), options, 1, cutoff=0.5)
    meant = f"did you mean {near[0]}? " if near else ""
    return TypeError(f"{function}: keyword {name}: is none that it has ({meant}one of {', '.join(options)})")


def about_dtype(dtype):
    """The hint for something that names no dtype."""
    text = shown(dtype, str).rpartition(".")[2]
    near = [SAFETENSORS[text]] if text in SAFETENSORS else get_close_matches(text, NAMES, 1)
    return f'did you mean "{near[0]}"?' if near else "describe it as integers of the same size"


def check_order(src, str function="convert"):
    """Refuse a source that is the name or the module of a target: the arguments were swapped."""
    library = None
    if isinstance(src, ModuleType):
        library = library_of(root_of(shown(getattr(src, "__name__", ""), str)))
    elif isinstance(src, str):
        name = str.__str__(src).lower()
        library = libraries().get(MEANT.get(name, name))
    if library is not None and library.delivery:
        raise refusal(UnsupportedError, function, "src", written(src)[0], "names a target, which comes second",
                      f'call dlbridge.{function}(x, "{library.name}")')
