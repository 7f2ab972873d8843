"""Arrow's C interfaces: ``__arrow_c_device_array__``, ``__arrow_c_array__``, and a stream of chunks.

Only arrays of numbers without nulls are taken, bools of a byte each (the canonical extension type ``arrow.bool8``), and
lists of one length of them, which are axes. Arrow's memory is immutable, so it is read-only here.
"""

from dlbridge._core.sources.offer cimport Offer

METHODS = "__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_stream__"


cdef Offer offers(object holder, object facts):
    for name in METHODS:
        if hasattr(holder, name):
            from dlbridge._core.sources.arrow_reader import offer_by        # imported with the first of Arrow's arrays

            return offer_by(name, facts)
    return None
