"""The targets by every name that ``to`` may have."""


from types import ModuleType

from dlbridge.managed cimport refusal
from dlbridge.targets cimport buffer, dlpack, exchange, jax, namespace, numpy, tensor
from dlbridge.targets.target cimport Target

from dlbridge.errors import UnsupportedError

cdef dict targets = {}          # by name


def _add(Target target):
    targets[target.name] = target


_add(numpy.new_target())
_add(exchange.new_torch())
_add(jax.new_target())
_add(buffer.new_target())
_add(dlpack.new_legacy())
_add(tensor.new_target())

# Modules, and modules of array types, that go by another name.
ALIASES = {"jaxlib": "jax", "jax.numpy": "jax", "builtins": "memoryview"}


cdef Target find_target(object to):
    """By name, module, array type, an array of the library, or any namespace with from_dlpack."""
    if isinstance(to, Target):
        return to
    if isinstance(to, str):
        target = targets.get(to)
        if target is None:
            raise refusal(UnsupportedError, "convert", "to", repr(to), "is no target that dlbridge knows",
                          f"one of {', '.join(sorted(targets))}, a module with from_dlpack, or register_target()")
        return target
    if isinstance(to, ModuleType):
        found = _by_module(to.__name__)
    else:
        kind = to if isinstance(to, type) else type(to)
        found = _by_module(kind.__module__) if kind.__module__ != "builtins" or kind is memoryview else None
        if found is not None and isinstance(to, type):
            (<Target> found).load()
            # numpy.float32 is no array type, nor is torch.nn.Linear.
            if not issubclass(to, (<Target> found).array_types):
                found = None
    if found is None and callable(getattr(to, "from_dlpack", None)):
        return namespace.new_target(to)
    if found is None:
        raise refusal(UnsupportedError, "convert", "to", repr(to), "is no target that dlbridge knows",
                      f"one of {', '.join(sorted(targets))}, or any namespace with from_dlpack")
    return found





def _by_module(name):
    return targets.get(ALIASES.get(name)) or targets.get(ALIASES.get(name.partition(".")[0], name.partition(".")[0]))


def names():
    """The names that ``to`` takes."""
    return sorted(targets)


def add_target(Target target):
    """Put a target under its name, in place of any other of that name."""
    _add(target)
