"""The Offer: what one protocol found out about a type, once, so that each acquire of that type is a plain call."""

cimport cython

from dlbridge._core.block cimport Managed, managed_packed, managed_release, managed_set_row
from dlbridge._core.dtypes cimport NO_ROW, find_name, get_row, row_name
from dlbridge._core.late cimport load_module

from dlbridge.errors import ConversionError, UnsupportedError, refusal


@cython.auto_pickle(False)
cdef class Offer:
    """A protocol that a type offers."""

    def __repr__(self):
        return f"<offer of {self.protocol}>"


cdef object imported = None         # libraries/library, of which each conversion by a function asks


cdef object library():
    global imported
    if imported is None:
        imported = load_module("dlbridge.libraries.library")
    return imported


cdef object hints():
    return load_module("dlbridge.libraries.hints")


cdef object facts_of(object kind):
    return library().Facts(kind)


cdef str top_module(object kind):
    return library().top_module(kind)


cdef Offer new_offer(str protocol, Acquire acquire, object facts):
    cdef Offer offer = Offer.__new__(Offer)
    offer.protocol = protocol
    offer.acquire = acquire
    offer.facts = facts
    if facts.records:
        offer.unflagged, offer.copies, offer.forgets = facts.unflagged, facts.copies, facts.forgets
        offer.element_type = facts.element_type
    return offer


cdef object replicas_of(object array, Offer offer):
    """An array on each of several devices that have all of it; or nothing."""
    return () if offer.facts.replicas is None else offer.facts.replicas(array)


cdef int element_row(object obj, Offer offer) except -2:
    """The row of the dtype that the library names, or NO_ROW if its export says the dtype.

    It is asked before the export, since some libraries cannot export a dtype that dlbridge does not know.
    """
    if offer.element_type is None:
        return NO_ROW
    name = offer.element_type(obj)
    if name is None:
        return NO_ROW
    row = find_name(name)
    if row == NO_ROW or get_row(row).subbyte:
        raise _refused_type(offer, name, obj)
    return row


cdef Managed* with_row(Managed* managed, int row, Offer offer) except NULL:
    """Give a block the dtype that the library names, if its export has another dtype of the same size."""
    if row == NO_ROW:
        return managed
    if get_row(row).item_bytes != get_row(managed.row).item_bytes or managed_packed(managed):
        managed_release(managed)
        raise _refused_type(offer, row_name(row), None)
    managed_set_row(managed, row)
    return managed


cdef object _refused_type(Offer offer, object name, object obj):
    return refusal(ConversionError, offer.protocol, "element type", name, "has no form in the library's own export",
                   offer.facts.hint("element type", obj) or "convert it to another type first")


cdef object refusal_by_facts(object array, object facts, str stage):
    found = facts.refused_by(array)
    if found is None:
        return None
    name, fact = found
    return refusal(UnsupportedError, stage, name, True, fact.text, facts.hint(name, array))
