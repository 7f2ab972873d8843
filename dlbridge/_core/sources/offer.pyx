"""Offer: what one protocol found out about a type, once, so that every acquire of that type is a plain call."""

cimport cython


@cython.auto_pickle(False)
cdef class Offer:
    """A protocol that a type offers."""

    def __repr__(self):
        return f"<offer of {self.protocol}>"


cdef str top_module(object kind):
    """The first part of a type's module; a type may say anything there, or nothing."""
    module = getattr(kind, "__module__", None)      # absent of one that was made where nothing had a name
    return str.partition(module, ".")[0] if isinstance(module, str) else ""
