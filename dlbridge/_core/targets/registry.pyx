"""The targets by every name that ``to`` may have."""


import sys
from types import ModuleType

from dlbridge._core.sources.offer cimport top_module
from dlbridge._core.targets cimport (
    buffer,
    cupy,
    dlpack,
    exchange,
    jax,
    libraries,
    namespace,
    numba,
    numpy,
    onnxruntime,
    pyarrow,
    tensor,
)
from dlbridge._core.targets.target cimport Target

from dlbridge.errors import UnsupportedError, refusal, shown

cdef dict targets = {}          # by name


def _add(Target target):
    targets[target.name] = target


_add(numpy.new_target())
_add(exchange.new_torch())
_add(exchange.new_paddle())
_add(jax.new_target())
_add(cupy.new_target())
_add(numba.new_target())
_add(onnxruntime.new_target())
_add(pyarrow.new_target())
for _target in libraries.new_targets():
    _add(_target)
_add(buffer.new_target())
_add(dlpack.new_legacy())
_add(tensor.new_target())

# Modules, and modules of array types, that go by another name.
ALIASES = {"jaxlib": "jax"}


cdef Target find_target(object to):
    """By name, module, array type, an array of the library, or any namespace with from_dlpack."""
    cdef Target target = None
    if isinstance(to, Target) and (<Target> to).deliver != NULL:
        return to
    if isinstance(to, str):
        target = _by_name(str.__str__(to))
    elif isinstance(to, ModuleType):
        target = _by_module(getattr(to, "__name__", None)) or _by_namespace(to)
    else:
        # An array stands for its library, any other object or class for itself.
        target = _by_type(to if isinstance(to, type) else type(to)) or _by_namespace(to)
    if target is None:
        text = shown(to) if isinstance(to, (str, type)) else f"of type {type(to).__qualname__}"
        meant = _meant(to) if isinstance(to, str) else ""
        raise refusal(UnsupportedError, "convert", "to", text, "is no target that dlbridge knows",
                      f"{meant}one of {', '.join(names())}, any namespace with from_dlpack, or register_target()")
    return target


def _by_name(name):
    target = targets.get(name)
    if target is None:
        from dlbridge._core.plugins import TARGETS, load      # reads the metadata of all packages

        target = targets.get(name) if load(TARGETS, name) else None
    return target


def _meant(name):
    from difflib import get_close_matches       # a sixth of what importing dlbridge takes, for a mistake

    near = get_close_matches(name, names(), 1)
    return f"did you mean {near[0]!r}? " if near else ""


def _by_module(name):
    if not isinstance(name, str):
        return None             # a module may say anything there, or nothing
    library = name.partition(".")[0]
    return targets.get(ALIASES.get(library, library))


def _by_namespace(space):
    return namespace.new_target(space) if callable(getattr(space, "from_dlpack", None)) else None


def _by_type(kind):
    """The library of an array type, or of a subclass or an unknown library's; numpy.float32 is no array type."""
    cdef Target target
    if kind is memoryview:
        return targets["memoryview"]
    for base in kind.__mro__:
        target = _by_module(top_module(base))
        if target is not None:
            target.load()
            if issubclass(kind, target.array_types):
                return target
    module = sys.modules.get(top_module(kind))
    return _by_namespace(module) if hasattr(kind, "__dlpack__") else None


def names():
    """The names that ``to`` takes."""
    from dlbridge._core.plugins import TARGETS
    from dlbridge._core.plugins import names as offered

    return sorted(targets.keys() | offered(TARGETS))


def add_target(Target target):
    """Put a target under its name, in place of any other of that name."""
    _add(target)
