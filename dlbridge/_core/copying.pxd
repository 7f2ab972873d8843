"""Move elements between two layouts. It works on plain addresses and steps: no objects, no GIL, no exception."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset


cdef enum:
    MAX_AXES = 64
    MAX_WORD = 16

# How the bytes of a word are changed on the way.
cdef enum Change:
    KEEP
    SWAP                # reversed
    SWAP_HALVES         # reversed in each half; the halves are the two parts of a complex number
    TRUTH               # of one byte: 1 unless it is 0
    TO_FLOAT            # a double becomes a float; the two of a complex number become two floats
    TO_INT32            # an int64_t becomes an int32_t
    SWAPPED_TO_FLOAT    # as TO_FLOAT, of a double in the other byte order
    SWAPPED_TO_INT32


ctypedef struct Axis:
    int64_t extent
    int64_t into_step       # bytes, as is source_step
    int64_t source_step


# How pixels, which are the last two axes, are shuffled. A window is 16 bytes of the source with whole pixels in it. In
# the result the pixels are adjacent.
ctypedef struct Window:
    int64_t pixels          # 0: they are not shuffled
    int64_t begin           # bytes from the first element of a window's first pixel to the window's first byte
    int64_t rest            # where fewer pixels are left, a window would reach beyond them
    uint8_t[MAX_WORD] order     # the bytes of the source that come into the result


# A line that narrows is given Copy.lost in place of flips.
ctypedef void (*Line)(
    char* into, const char* source, int64_t count, int64_t into_step, int64_t source_step, const uint8_t* flips,
) noexcept nogil

# Neighbours in the source, which are neighbour_step apart, become rows of the result, which are into_step apart. Words
# of the source that are source_step apart become neighbours in the result. gather is the line that collects the
# neighbours of the source; it is NULL where they touch.
ctypedef void (*Tile)(
    char* into, const char* source, int64_t into_step, int64_t source_step, int64_t neighbour_step, Line gather,
    const uint8_t* flips,
) noexcept nogil


ctypedef struct Copy:
    char* into              # never overlaps source; no two elements of it share a byte
    const char* source
    int64_t word_bytes      # of the result: 1, 2, 4, 8 or 16
    Change change
    uint8_t* lost           # set to 1 where a value does not fit into the narrower word; NULL for other changes
    uint8_t flips[MAX_WORD]     # the bits that are inverted, after the change
    bint flipped
    int32_t ndim
    Axis axes[MAX_AXES]
    # Filled by copy_words().
    bint runs               # words along the last axis follow each other on both sides, and nothing changes
    bint planes             # the last two axes are walked together
    bint pixels             # the last axis is a short run, which is copied as a whole
    Window window
    Line line
    Line gather             # a line that changes nothing
    Tile tile


cdef inline void begin_copy(Copy* copy, void* into, const void* source, int64_t word_bytes) noexcept nogil:
    copy.into = <char*> into
    copy.source = <const char*> source
    copy.word_bytes = word_bytes
    copy.change = KEEP
    copy.lost = NULL
    copy.flipped = False
    memset(copy.flips, 0, MAX_WORD)
    copy.ndim = 0

cdef inline void add_axis(Copy* copy, int64_t extent, int64_t into_step, int64_t source_step) noexcept nogil:
    cdef Axis* axis = &copy.axes[copy.ndim]
    axis.extent, axis.into_step, axis.source_step = extent, into_step, source_step
    copy.ndim += 1

cdef inline void flip(Copy* copy, int64_t byte) noexcept nogil:
    """Invert the sign bit in this byte of a word."""
    copy.flips[byte] ^= 0x80
    copy.flipped = True

# Puts the axes into the order of the result, and merges those that are walked as one. copy_words() calls it itself.
cdef void arrange(Copy* copy) noexcept nogil
cdef int64_t total_bytes(const Copy* copy) noexcept nogil
# The Copy cannot be used again.
cdef void copy_words(Copy* copy) noexcept nogil
# Puts packed elements one into each byte, the low bits of a byte first; or packs elements that have a byte each.
# False if no type has elements of so many bits.
cdef bint repack(char* into, const char* source, int64_t count, int32_t bits, bint unpacks) noexcept nogil
