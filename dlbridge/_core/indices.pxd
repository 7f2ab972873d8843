"""Arrays that are several arrays, taken apart and looked at before a library trusts their indices."""

from libc.stdint cimport int64_t

from dlbridge._core.block cimport Managed


cdef class Seen:
    """A part that is only looked at."""
    cdef Managed* managed
    cdef object array           # as it was taken out; of COO it may be one axis
    cdef str form, name
    cdef bint swapped           # whether its bytes are in the other order
    cdef str changed            # why it is another array than the one that was taken out, or None


cdef class Apart:
    cdef str form               # its name
    cdef tuple shape            # of the whole
    cdef Seen data
    cdef list indices           # of Seen
    cdef int indexed            # how many axes have indices; the others are those of elements that are arrays
    cdef int64_t count          # of the elements that there are; fewer than there is room for, or -1 if not known
    cdef bint is_compact        # whether offsets begin with 0, and end with the data
    cdef bint is_fetched        # whether the parts were fetched from a device, into memory that nobody else has
    cdef str copied             # why it was copied to take it apart, or ""


# ``coordinates``: how those of COO lie (libraries/library.Form). ``beyond``: what to do where
# an index is outside of the shape; None where they are not looked at. On a device they never are.
cdef Apart taken_apart(str form, str coordinates, object shape, list parts, str beyond)
# Indices whose values can be read as they are.
cdef Seen indices_seen(str form, str name, object array)
# An error over a part says which that is.
cdef object in_part(object error, str form, str name)
cdef bint is_on_host(Seen seen) noexcept
