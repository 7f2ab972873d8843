"""Sources, targets and containers that users add."""

import builtins
import sys

from dlbridge._core.dtypes cimport rows_named
from dlbridge._core.late cimport load_module
from dlbridge._core.sources.offer cimport library, top_module
from dlbridge._core.target cimport ANY_ORDER, ANY_STRIDES, ZERO_STRIDES, Target
from dlbridge._core.targets.registry cimport new_unlisted

from dlbridge._core.dtypes import NAMES
from dlbridge._core.cache import clear_cache
from dlbridge._core.route import target_name
from dlbridge._core.sources.registry import add_source
from dlbridge._core.target import Supports
from dlbridge._core.targets.registry import add_target, names
from dlbridge.errors import shown


# What a registered target can say that it supports: a Tensor tells its consumer these facts of the memory.
SUPPORTED = ("NEGATIVE_STRIDES", "READ_ONLY", "PACKED", "PADDED")
ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def register_source(type_or_predicate, acquire, *, readonly=None):
    """Teach dlbridge to take a type.

    Parameters
    ----------
    type_or_predicate : type or callable
        The type, subclasses included, or ``predicate(type) -> bool``. The source that was registered last is asked
        first, before any protocol that the type has.
    acquire : callable
        ``acquire(obj)`` gives anything that dlbridge takes: an object with ``__dlpack__``, a DLPack capsule, an array.
        It must keep the memory alive.
    readonly : bool, optional
        Whether the memory is read-only, where a producer does not say so: a legacy DLPack capsule cannot. True: it is,
        whatever gives it. False: memory of a legacy capsule is not, which you promise. By default dlbridge concludes it
        from the library that made the capsule, and takes memory of which it knows nothing as writable.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> class Image:
    ...     pixels = numpy.zeros((2, 2), "uint8")
    >>> dlbridge.register_source(Image, lambda image: image.pixels)
    >>> dlbridge.convert(Image(), "numpy").shape
    (2, 2)
    """
    if isinstance(acquire, type) and not isinstance(type_or_predicate, type):
        raise TypeError(f"register_source: type {shown(type_or_predicate)}: is a function (pass the type first)")
    if isinstance(type_or_predicate, type):
        def accepts(kind):
            return issubclass(kind, type_or_predicate)
    elif callable(type_or_predicate):
        accepts = type_or_predicate
    else:
        raise TypeError(f"register_source: type {type_or_predicate!r}: is neither a type nor callable (pass one)")
    if not callable(acquire):
        raise TypeError(f"register_source: acquire {acquire!r}: is not callable (pass a function of the object)")
    if readonly is not None and not isinstance(readonly, bool):
        raise TypeError(f"register_source: readonly {shown(readonly)}: is neither a bool nor None (pass one)")
    add_source(accepts, acquire, readonly)
    clear_cache()


def register_form(form, array_type, take_apart, put_together=None, *, parts_of="numpy", coordinates="each",
                  index_types=()):
    """Teach dlbridge a class whose objects are several arrays each, such as sparse matrices.

    Parameters
    ----------
    form : {"csr", "csc", "bsr", "bsc", "coo", "ragged"}
        How its objects keep their elements. The parts of each form have names: "data", "indices" and "indptr" of the
        compressed ones, with "shape"; "data", "coords" and "shape" of "coo"; "values" and "offsets" of "ragged".
    array_type : type
        The class. With ``put_together`` it names the target, too: ``convert(x, Matrix)``, ``convert(x, matrix)``.
        Objects of subclasses are taken as well; a subclass as ``to`` has to be registered itself. It is kept for ever,
        as all that is registered; what is registered last counts.
    take_apart : callable
        ``take_apart(array)`` gives a dictionary of the parts, which are arrays of any library over the memory of the
        array, and of "shape", a tuple. Offsets begin with 0; those of several ragged axes are a tuple, from the
        outermost on.
    put_together : callable, optional
        ``put_together(**parts)`` gives an object of the class. It may trust the indices, which were looked at, if they
        are on the host. Without it the class is a source alone.
    parts_of : str
        The library whose arrays ``put_together`` takes, as in ``convert(x, to=parts_of)``.
    coordinates : {"each", "rows", "columns"}
        How "coords" lie: a tuple of an array for each axis, or one array with their rows, or with their columns.
    index_types : iterable of str
        The names of the dtypes that indices and offsets may have, of which there may be one or "int32" and "int64".
        Others are converted. By default they stay as they are.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> class Matrix:
    ...     def __init__(self, shape, data, indices, indptr):
    ...         self.shape, self.data, self.indices, self.indptr = shape, data, indices, indptr
    >>> dlbridge.register_form("csr", Matrix, vars, Matrix)
    >>> matrix = Matrix((2, 2), numpy.ones(2), numpy.array([0, 1]), numpy.array([0, 1, 2]))
    >>> dlbridge.convert(matrix, Matrix, copy=True).indices.tolist()
    [0, 1]
    """
    forms = [name for name in library().PARTS if name != "masked"]
    if not isinstance(form, str) or form not in forms:
        raise ValueError(f"register_form: form {shown(form)}: is none of {', '.join(forms)} (pass one)")
    if not isinstance(array_type, type) or is_not_a_users(array_type):
        raise TypeError(f"register_form: array_type {shown(array_type)}: is no class of yours (pass the class itself)")
    known_library = library().library_of(top_module(array_type))
    if known_library is not None and known_library.name not in ("builtins", "dlbridge"):
        raise ValueError(f"register_form: array_type {shown(array_type)}: is of a library that dlbridge knows (pass a "
                         "class of your own)")
    for name, function in (("take_apart", take_apart), ("put_together", put_together)):
        if not callable(function) and (function is not None or name == "take_apart"):
            raise TypeError(f"register_form: {name} {shown(function)}: is not callable (pass a function)")
    if not isinstance(coordinates, str) or coordinates not in ("each", "rows", "columns"):
        raise ValueError(f'register_form: coordinates {shown(coordinates)}: is none of "each", "rows" and "columns" '
                         "(pass one)")
    if coordinates != "each" and form != "coo":
        raise ValueError(f'register_form: coordinates {shown(coordinates)}: are parts of "coo" alone (leave it out)')
    if not isinstance(parts_of, str):
        raise TypeError(f"register_form: parts_of {shown(parts_of)}: is no name (pass a string)")
    target_name(parts_of, False)
    load_module("dlbridge.libraries.registered").add(
        form, array_type, take_apart, put_together, parts_of, coordinates,
        known("register_form", "index_types", index_types, ("int32", "int64")))
    clear_cache()


cdef bint is_not_a_users(object kind) except -1:
    """Whether a class is one of Python's, or of dlbridge's own."""
    module = sys.modules.get(kind.__module__)
    ours = top_module(kind) == "dlbridge" or top_module(kind) in sys.stdlib_module_names
    return ours and getattr(module, kind.__name__, None) is kind


def register_container(type, flatten, unflatten):
    """Teach :func:`convert_tree` and :func:`accepts` a class whose objects hold arrays.

    Parameters
    ----------
    type : type
        The class, subclasses included. What is registered for the nearest class counts.
    flatten : callable
        ``flatten(container)`` gives what is in a container: a dictionary, whose keys say in errors where a leaf is, or
        a list or a tuple. Its values may be arrays, containers and anything else.
    unflatten : callable
        ``unflatten(container, parts)`` gives a container of the same form, with ``parts`` in place of what flatten
        gave: a dictionary with the same keys, or a list. It must not change the container that it is given.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> class Graph:
    ...     def __init__(self, nodes, edges):
    ...         self.nodes, self.edges = nodes, edges
    >>> dlbridge.register_container(Graph, vars, lambda graph, parts: Graph(**parts))
    >>> graph = Graph(numpy.zeros((3, 2)), numpy.array([[0, 1], [1, 2]]))
    >>> dlbridge.convert_tree({"graph": graph}, "memoryview")["graph"].edges.tolist()
    [[0, 1], [1, 2]]
    """
    containers = load_module("dlbridge.trees.containers")
    if not isinstance(type, builtins.type) or type in containers.EXACT:
        wrong = "is a container already" if isinstance(type, builtins.type) else "is no class"
        raise TypeError(f"register_container: type {shown(type)}: {wrong} (pass a class of your own)")
    for name, function in (("flatten", flatten), ("unflatten", unflatten)):
        if not callable(function):
            raise TypeError(f"register_container: {name} {shown(function)}: is not callable (pass a function)")
    containers.REGISTERED[type] = flatten, unflatten
    containers.functions_of.cache_clear()
    clear_cache()


def register_target(name, deliver, *, array_type=None, supports=(), dtypes=None, alignment=1, order=None,
                    replace=False):
    """Teach dlbridge to make a library's arrays.

    Parameters
    ----------
    name : str
        The name in ``convert(src, to=name)``. It replaces a target that was registered by that name.
    deliver : callable
        ``deliver(tensor)`` gives the library's array from a :class:`Tensor`, commonly the library's ``from_dlpack``.
    array_type : type or tuple of types, optional
        The type of the library's arrays, subclasses included. Instances are returned as they are, and the type and its
        instances name the target, too: ``convert(src, to=Grid)``, ``convert(src, to=grid)``. A type that is an array of
        another target already, such as :class:`numpy.ndarray`, goes on naming that.
    supports : iterable of str
        What the library supports beyond writable, native-endian memory on the host with strides that are not negative:
        any of "NEGATIVE_STRIDES", "READ_ONLY" (it heeds the flag), "PACKED" and "PADDED". Other memory is copied for
        it.
    dtypes : iterable of str, optional
        The names of the dtypes that the library has; None for all.
    alignment : int
        The alignment of the first element, in bytes, that the library needs in order to share: a power of two up to
        256, which is the alignment of copies.
    order : {None, "C"}
        "C" if the library needs compact memory in C order.
    replace : bool
        Whether it replaces a target that dlbridge has itself, such as "torch".

    Examples
    --------
    >>> import numpy, dlbridge
    >>> dlbridge.register_target("total", lambda tensor: float(numpy.from_dlpack(tensor).sum()))
    >>> dlbridge.convert(b"abc", "total")
    294.0
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"register_target: name {shown(name)}: is no name (pass a string first)")
    if not callable(deliver):
        raise TypeError(f"register_target: deliver {shown(deliver)}: is not callable (pass a function of the Tensor)")
    if not replace and getattr(library().library_named(name), "delivery", ""):
        raise ValueError(f"register_target: name {shown(name)}: is a target of dlbridge's own (pass another name, or "
                         "replace=True)")
    abilities = known("register_target", "supports", supports, SUPPORTED)
    wanted = NAMES if dtypes is None else known("register_target", "dtypes", dtypes, NAMES)
    if not isinstance(alignment, int) or alignment not in ALIGNMENTS:
        raise ValueError(f"register_target: alignment {shown(alignment)}: is none of {ALIGNMENTS}, and copies have no "
                         "more (pass one of these, and let deliver copy to what needs more)")
    if order is not None and not (isinstance(order, str) and order == "C"):
        raise ValueError(f'register_target: order {shown(order)}: is neither None nor "C" (pass one)')
    if order is not None and "NEGATIVE_STRIDES" in abilities:
        raise ValueError('register_target: order "C": has no NEGATIVE_STRIDES (leave one of them out)')
    kinds = () if array_type is None else array_type if isinstance(array_type, tuple) else (array_type,)
    if not all([isinstance(kind, type) for kind in kinds]):
        raise TypeError(f"register_target: array_type {shown(array_type)}: is neither a type nor a tuple of types "
                        "(pass the class itself)")

    def adjust(Target target):
        for flag in abilities:
            target.supports |= <unsigned int> Supports[flag]
        if order is not None:
            target.supports &= ~(ANY_STRIDES | ANY_ORDER | ZERO_STRIDES)
        target.rows = rows_named(wanted)
        target.alignment = alignment

    cdef Target target = new_unlisted(name, deliver)
    target.adjust = adjust
    target.array_types = kinds
    add_target(target)
    clear_cache()


def known(call, field, given, allowed):
    """The given names as a tuple. Each of them has to be one of ``allowed``."""
    if isinstance(given, str):
        raise TypeError(f"{call}: {field} {given!r}: is one string (pass [{given!r}])")
    given = tuple(given)
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise ValueError(f"{call}: {field} {unknown}: is not known (of {', '.join(allowed)})")
    return given


def targets():
    """The names that ``to`` takes, whether or not the libraries are installed.

    Examples
    --------
    >>> import dlbridge
    >>> "numpy" in dlbridge.targets() and "torch" in dlbridge.targets()
    True
    """
    return names()
