"""Who is told of each copy, while a program watches."""

from libc.stdint cimport int32_t

from dlbridge._core.atomic cimport load
from dlbridge._core.block cimport Managed


cdef int32_t watch_count    # atomic: how many are on

cdef inline bint is_watched() noexcept nogil:
    return load(&watch_count) != 0

# Tells of a copy that is about to be made. ``src`` is None where only its memory is there. ``kind`` is the same for the
# same reason, whose text may have an address in it; without one it is the text.
cdef int note_copy(
    object src, const Managed* managed, str target, str reason, str hint, str there=*, object kind=*,
) except -1
# As note_copy(), of a copy that was made; managed is released on failure.
cdef Managed* note_made(Managed* managed, object src, str target, str reason, str hint) except NULL
# … that the producer made of its memory.
cdef Managed* note_given_copy(Managed* managed, object src) except NULL
# Tells of a copy of an array of its own that a library makes; ``managed`` is its memory, or NULL if that has none.
cdef int note_clone(object src, const Managed* managed, str target, bint own) except -1
