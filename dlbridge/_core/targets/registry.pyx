"""The targets, and how ``to`` names them."""

import sys
from types import ModuleType

from dlbridge._core.late cimport load_module
from dlbridge._core.sources.offer cimport library, top_module
from dlbridge._core.target cimport Target, new_target

from dlbridge.errors import UnsupportedError, refusal

# By name: the targets that were asked for, and those that users registered.
registered = {}
cdef dict targets = registered
# The targets that have no name in convert().
cdef dict unnamed = {}


cdef Target target_of(object facts):
    """The target of a library, or None if its facts name no delivery."""
    if facts is None or not facts.delivery:
        return None
    return cached_target(targets, facts)


cdef Target versioned_capsule():
    """The target with which to_dlpack() makes versioned capsules."""
    return cached_target(unnamed, load_module("dlbridge.libraries.dlpack").VERSIONED)


cdef Target cached_target(dict kept, object facts):
    cdef Target target = kept.get(facts.name)
    if target is None:
        target = new_target(facts)
        prepare(target, facts.delivery)
        target = kept.setdefault(facts.name, target)      # another thread's may have come first
    return target


cdef object prepare(Target target, str delivery):
    """Let a file of this folder, ``file`` or ``file:function``, set how the arrays of a library are made.

    A file is imported when its first target is asked for, because all of them would slow the import of dlbridge.
    """
    file, _, function = delivery.partition(":")
    getattr(load_module(f"dlbridge._core.targets.{file}"), function or "prepare")(target)


cdef Target find_target(object to):
    """Find the target for ``to``: a name, a module, an array type, an array, or any namespace with from_dlpack."""
    cdef Target target = None
    if isinstance(to, Target) and (<Target> to).deliver != NULL:
        return to
    if isinstance(to, str):
        target = _by_name(str.__str__(to))
    elif isinstance(to, ModuleType):
        target = _by_module(getattr(to, "__name__", None)) or _by_namespace(to)
    else:
        # An array stands for its library. Any other object or class stands for itself, as a namespace.
        kind = to if isinstance(to, type) else type(to)
        target = _by_type(kind) or _by_form(to) or _by_form(kind) or _by_namespace(to)
    if target is None:
        text, wrong, hint = load_module("dlbridge._core.meant").about_target(to, names())
        raise refusal(UnsupportedError, "convert", "to", text, wrong, hint)
    return target


cdef Target loaded_target(object to):
    cdef Target target = find_target(to)
    target.load()
    return target


def _by_name(name):
    target = targets.get(name)
    if target is not None:
        return target
    target = target_of(library().library_named(name))
    if target is None:
        plugins = load_module("dlbridge._core.plugins")         # it reads the metadata of all packages
        target = targets.get(name) if plugins.load(plugins.TARGETS, name) else None
    return target


def _by_module(name):
    if not isinstance(name, str):
        return None             # a module may say anything there, or nothing
    root = library().root_of(name)
    return targets.get(root) or target_of(library().library_of(root))


cdef Target new_unlisted(str name, object function):
    lacks = load_module("dlbridge.libraries.profiles").UNKNOWN
    target = new_target(library().Library(name=name, lacks=lacks))
    prepare(target, "importer")
    target.function = function
    return target


def _by_namespace(space):
    function = getattr(space, "from_dlpack", None)
    if not callable(function):
        return None
    cdef Target target = new_unlisted(
        str(getattr(space, "__name__", type(space).__qualname__)).partition(".")[0], function)
    target.namespace = space
    return target


def _by_type(kind):
    """The target whose arrays have this type or a base of it; or the type's module, with from_dlpack; or None.

    A type of a library need not be one of its arrays: numpy.float32 is none.
    """
    cdef Target target
    if kind is memoryview:
        return _by_name("memoryview")
    registered_forms = library().REGISTERED
    for base in kind.__mro__:
        if base in registered_forms and registered_forms[base].delivery:
            target = new_target(registered_forms[base])
            prepare(target, target.facts.delivery)
            target.array_types = (base,)
            return target
        target = _by_module(top_module(base))
        if target is not None:
            target.load()
            if issubclass(kind, target.array_types):
                return target
        for target in reversed(tuple(targets.values())):        # those that users registered
            if any([each is base for each in target.array_types]):
                return target
    module = sys.modules.get(top_module(kind))
    return _by_namespace(module) if hasattr(kind, "__dlpack__") else None


def _by_form(to):
    """The target that has arrays of several arrays which ``to`` is for, as torch.sparse_csr is; or None."""
    for base in (to if isinstance(to, type) else type(to)).__mro__:
        root = top_module(base)
        target = _by_module(root)
        if target is not None and library().form_meant(target.facts, to) is not None:
            return target
        facts = library().library_of(root)
        if target is None and facts is not None and library().form_meant(facts, to) is not None:
            return cached_target(unnamed, facts._replace(delivery="forms"))     # of what is a source otherwise
    return None


cdef object key_of(object to):
    """What stands for ``to`` in a route, which keeps it: of an array its type, so that the array itself may go."""
    if isinstance(to, (str, type, ModuleType, Target)):
        return to
    return to if _by_type(type(to)) is None and _by_form(type(to)) is None else type(to)


def names():
    """The names that ``to`` takes."""
    plugins = load_module("dlbridge._core.plugins")
    known = {name for name, facts in library().libraries().items() if facts.delivery}
    return sorted(targets.keys() | known | plugins.names(plugins.TARGETS))


def add_target(Target target):
    """Add a target. It replaces any other target of its name."""
    targets[target.name] = target
