"""What an object is in a batch: an array, a table, a value that is neither, or something that may contain others."""

from dlbridge._core.plan cimport OFFERS, Route, find_route
from dlbridge._core.sources.offer cimport Offer
from dlbridge._core.sources.registry cimport has_offer

import weakref
from functools import partial

import numpy as np

from dlbridge._core.sources.arrow import check_given, chunks_of


cdef enum Role:
    NOT_ASKED               # of a type whose role was not looked for
    IN_INSTANCE             # of a type without a protocol, whose instances may have one
    IN_REFERENT             # of weak proxies
    ROLE_OTHER
    ROLE_VALUE
    ROLE_ARRAY
    ROLE_TABLE

OTHER, VALUE, ARRAY, TABLE = ROLE_OTHER, ROLE_VALUE, ROLE_ARRAY, ROLE_TABLE
# Some of these offer a protocol, and yet they are no arrays in a batch.
VALUES = (str, bytes, int, float, complex, type(None))


def role_of(obj):
    """OTHER, VALUE, ARRAY or TABLE. It is found once for each type that says it."""
    cdef Route route = None
    try:
        route = find_route(obj, OFFERS)
        if route.role == NOT_ASKED:
            route.role = find_role(route)
        if route.role == IN_REFERENT:
            return role_of(obj.__init__.__self__)
        if route.role != IN_INSTANCE:
            return route.role
        if not has_offer(route.offers, obj):
            return ROLE_OTHER
        return ROLE_ARRAY if table_behind(obj) is None else ROLE_TABLE
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return ROLE_ARRAY if is_of_a_class(obj) and route is None else ROLE_OTHER


cdef bint is_of_a_class(object obj) except -1:
    """Whether an object says its class.

    If one does and has no route, a registered predicate raised an error, which convert() will show. Otherwise the error
    was the object's own: a dictionary with its items as attributes may raise a KeyError.
    """
    try:
        return isinstance(obj.__class__, type)
    except Exception:
        return False


cdef Role find_role(Route route) except? NOT_ASKED:
    # numpy.float64 is a float, and numpy.complex128 a complex.
    if issubclass(route.source_type, VALUES) and not issubclass(route.source_type, np.number):
        return ROLE_VALUE
    if issubclass(route.source_type, weakref.ProxyTypes):
        return IN_REFERENT
    if columns_in(route) is not None:
        return ROLE_TABLE
    return ROLE_ARRAY if len(route.offers) > 1 else IN_INSTANCE


cdef object table_behind(object obj):
    """The table that a proxy hands on the methods of, or None."""
    for name in ("__arrow_c_stream__", "__arrow_c_array__"):
        table = getattr(getattr(obj, name, None), "__self__", None)
        if table is not None and table is not obj and columns_in(find_route(table, OFFERS)) is not None:
            return table
    return None


def columns_of(table, unpack):
    """The columns of a table, each with its name, or an array if it has none after all.

    ``unpack`` says whether bools of one bit are unpacked, which is a copy.
    """
    columns = columns_in(find_route(table, OFFERS))
    if columns is None:
        table = table_behind(table)
        columns = columns_in(find_route(table, OFFERS))
    return columns(table, unpack)


cdef object columns_in(Route route):
    cdef Offer first = <Offer> route.offers[0]
    if first.protocol == "arrow" and not first.facts.records:
        # A library that is not known; its objects say themselves whether they have columns.
        from dlbridge.libraries.pyarrow import columns_by_arrow

        return partial(columns_by_arrow, chunks_of=chunks_of, check=check_given)
    return first.facts.find("columns")
