"""Offer: what one protocol found out about a type, once, so that every acquire of that type is a plain call."""

cimport cython

from dlbridge._core.block cimport Managed, managed_release, managed_set_row
from dlbridge._core.dtypes cimport find_name, get_row

from dlbridge.errors import ConversionError, refusal

# By the field of libraries/library.Arrays.
cdef dict KNOWN = {
    "immutable": IMMUTABLE,
    "forgets": FORGETS,
    "rebound": REBOUND,
    "names_stream": NAMES_STREAM,
    "none_is_unordered": NONE_IS_UNORDERED,
    "default_unsaid": DEFAULT_UNSAID,
    "repeats_unsaid": REPEATS_UNSAID,
    "gradient_free": GRADIENT_FREE,
    "element_type": ELEMENT_TYPE,
    "stream_object": STREAM_OBJECT,
}


@cython.auto_pickle(False)
cdef class Offer:
    """A protocol that a type offers."""

    def __repr__(self):
        return f"<offer of {self.protocol}>"


cdef Offer new_offer(str protocol, Acquire acquire, object facts):
    cdef Offer offer = Offer.__new__(Offer)
    offer.protocol = protocol
    offer.acquire = acquire
    offer.facts = facts
    if facts.records:
        for field, bit in KNOWN.items():
            if facts.find(field):
                offer.known |= <unsigned int> bit
    return offer


cdef Managed* with_element_type(Managed* managed, object obj, Offer offer) except NULL:
    """Memory with the type that the library names, where its export has another type of the same size."""
    cdef int row
    try:
        name = offer.facts.find("element_type")(obj)
        if name is not None:
            row = find_name(name)
            if row < 0 or get_row(row).item_bytes != get_row(managed.row).item_bytes or get_row(row).subbyte:
                raise refusal(ConversionError, offer.protocol, "element type", name,
                              "is none that dlbridge knows of this memory", "convert it to another type first")
            managed_set_row(managed, row)
    except BaseException:
        managed_release(managed)
        raise
    return managed
