"""What an object is in a batch: an array, a table, a value that is neither, or something that may contain others."""

from cpython.object cimport PyObject

from dlbridge._core.cache cimport OFFERS, cached_of_type, steal
from dlbridge._core.late cimport load_module
from dlbridge._core.numpy_api cimport NPY_VOID, array_type
from dlbridge._core.sources.offer cimport Offer, facts_of, library, top_module
from dlbridge._core.sources.registry cimport (
    Offers, find_offers, gives_buffer, has_offer, has_slot_alone, offers_for_type, unsupported,
)

import sys
import weakref
from functools import partial

import numpy as np

from dlbridge.trees.containers import registered_container


cdef type ndarray = np.ndarray
OTHER, VALUE, ARRAY, TABLE, FORM = ROLE_OTHER, ROLE_VALUE, ROLE_ARRAY, ROLE_TABLE, ROLE_FORM
# Some of these offer a protocol, and yet they are no arrays in a batch.
VALUES = (str, bytes, int, float, complex, type(None))
cdef frozenset EXACT_VALUES = frozenset((*VALUES, bool))


cpdef Role role_of(object obj) except *:
    """The role of an object, which is found once for each type that says it."""
    cdef Offers found = None
    try:
        found = with_role(obj)
        if found.role == IN_REFERENT:
            return role_of(obj.__init__.__self__)
        if found.records and has_fields(obj):
            return ROLE_TABLE
        if found.slot_alone and not gives_buffer(obj):
            return ROLE_OTHER
        if found.role != IN_INSTANCE:
            return <Role> found.role
        if not has_offer(found.offers, obj) or registered_container(obj) is not None:
            return ROLE_OTHER
        return ROLE_ARRAY if table_behind(obj) is None else ROLE_TABLE
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return ROLE_ARRAY if is_of_a_class(obj) and found is None else ROLE_OTHER


cdef Offers with_role(object obj):
    """What is known of the type of an object, with its role."""
    cdef object kind = type(obj)
    cdef PyObject* entry = cached_of_type(OFFERS, <PyObject*> kind, <PyObject*> None)
    cdef Offers found = of_no_protocol(kind) if entry == NULL else <Offers> steal(entry)
    if found is None:
        found = find_offers(kind)
    if not found.has_role:
        found.role = find_role(kind, obj)
        found.records = found.role == ROLE_ARRAY and issubclass(kind, (np.ndarray, np.void))
        found.slot_alone = found.role == ROLE_ARRAY and has_slot_alone(found.offers, kind)
        found.has_role = found.role != ROLE_ARRAY or is_of_a_library(kind)
    return found


cdef bint is_of_a_library(object kind) except -1:
    """Whether a type of arrays is a library's own. The role of any other type may change: it may yet be registered as
    a container with JAX, which does not say when that happens.
    """
    root = top_module(kind)
    return root in sys.stdlib_module_names or library().library_of(root) is not None


cdef bint is_of_a_class(object obj) except -1:
    """Whether an object says its class.

    If one does and its type has no role, a registered predicate raised an error, which convert() will show. Otherwise
    the error was the object's own: a dictionary with its items as attributes may raise a KeyError.
    """
    try:
        return isinstance(obj.__class__, type)
    except Exception:
        return False


cdef Offers with_this_role(Role role):
    cdef Offers made = Offers.__new__(Offers)
    made.offers, made.role, made.has_role = (), role, True
    return made


cdef Offers of_values = with_this_role(ROLE_VALUE)
cdef Offers of_proxies = with_this_role(IN_REFERENT)


cdef Offers of_no_protocol(object kind):
    """The role of a type whose protocols a batch does not ask for; None of all others.

    No predicate of register_source() sees these types: it may raise for them.
    """
    if kind in EXACT_VALUES:
        return of_values
    # numpy.float64 is a float, and numpy.complex128 a complex.
    if issubclass(kind, VALUES) and not issubclass(kind, np.number):
        return of_values
    return of_proxies if issubclass(kind, weakref.ProxyTypes) else None


cdef Role find_role(object kind, object obj) except *:
    """The role of a type, of which obj is the first object. What libraries know as a container is one: flax.nnx."""
    cdef Offers alone = of_no_protocol(kind)
    if alone is not None:
        return <Role> alone.role
    # The first offer of a type for which a user registered a source has no facts: that source gives the whole.
    if (<Offer> offers_for_type(kind)[0]).facts.partial is not None:
        return ROLE_OTHER
    if columns_in(kind) is not None:
        return ROLE_TABLE
    if len(offers_for_type(kind)) == 1:
        if (<Offer> offers_for_type(kind)[0]).facts.form_name is not None:
            return ROLE_FORM
        return ROLE_OTHER if kind in (dict, list, tuple) else IN_INSTANCE       # these three have no attributes
    return ROLE_ARRAY if registered_container(obj) is None else ROLE_OTHER


cdef inline bint has_fields(object array) except -1:
    """Whether an ndarray, or one of its elements, is of records."""
    return (not isinstance(array, ndarray) or array_type(array) == NPY_VOID) and array.dtype.names is not None


def why_no_array(leaf):
    """The error that convert() raises for what is no array."""
    return unsupported(leaf, facts_of(type(leaf)))


cdef object table_behind(object obj):
    """The table that a proxy hands on the methods of, or None."""
    for name in ("__arrow_c_stream__", "__arrow_c_array__"):
        table = getattr(getattr(obj, name, None), "__self__", None)
        if table is not None and table is not obj and columns_in(type(table)) is not None:
            return table
    return None


def columns_of(table, unpack):
    """The columns of a table, each with its name, or an array if it has none after all. Records have their fields.

    ``unpack`` says whether bools of one bit are unpacked, which is a copy.
    """
    if isinstance(table, (np.ndarray, np.void)):
        return [(name, table[name]) for name in table.dtype.names]
    columns = columns_in(type(table))
    if columns is None:
        table = table_behind(table)
        columns = columns_in(type(table))
    return columns(table, unpack)


def columns_without_rows(table, unpack):
    """The columns, without rows, of a table that may give its rows only once; nothing is read.

    The list is empty if the table does not say its columns beforehand. None for a table that can be read again.
    ``unpack`` is as for columns_of().
    """
    offer = <Offer> offers_for_type(type(table))[0]
    if not offer.facts.records and offer.protocol == "arrow":
        by_schema = load_module("dlbridge.libraries.pyarrow").columns_by_schema
        return by_schema(table, unpack) if hasattr(table, "__arrow_c_stream__") else None
    find = offer.facts.without_rows
    return None if find is None else find(table, unpack)


cdef object columns_in(object kind):
    """The function that takes the objects of a type apart into columns, or None."""
    cdef Offer first = <Offer> offers_for_type(kind)[0]
    if first.protocol == "arrow" and not first.facts.records:
        # A library that is not known; its objects say themselves whether they have columns.
        return partial(
            load_module("dlbridge.libraries.pyarrow").columns_by_arrow,
            chunks_of=load_module("dlbridge._core.sources.arrow").chunks_of,
            check=load_module("dlbridge._core.sources.arrow_array").check_given)
    return first.facts.columns
