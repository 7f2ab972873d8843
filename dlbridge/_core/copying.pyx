"""Move elements between two layouts. It works on plain addresses and steps: no objects, no GIL, no exception.

Axes are sorted by their steps in the result, and merged where both sides allow it. What is left is a few loops around a
*line* of words, or around a *tile* where the neighbours of the result are far apart in the source. Large copies are cut
along one axis, and every core takes a part.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, llabs, malloc
from libc.string cimport memcpy, memset

from dlbridge._core.system cimport Thread, cores, join_thread, start_thread
from dlbridge._core.words cimport FEW_ROWS, TILE_BYTES, can_shuffle, line_of, shuffle, tile_of

cdef enum:
    BLOCK = 1024                # words of a line that are copied before the next line, so that both stay in the cache
    SHORT_BLOCK = 256           # as BLOCK, for lines across the result, which touch much more of the cache
    STRIP = 32                  # how many tiles are done beside each other, where a tile has many rows
    CACHE_WAY = 4096            # bytes; addresses that far apart share a place in the first cache
    SHORT = 8                   # words; a shorter line costs more to begin than it saves
    LONG = 24                   # words; a longer line saves nothing more by its length
    SHORT_RUN = 48              # bytes that are copied faster one by one than by a call of memcpy()
    WINDOW = 16                 # bytes that are shuffled at once
    FEW_PIXELS = 32             # fewer are not worth a shuffle: too many of them are left for lines
    MAX_THREADS = 64

cdef int64_t split_above = 1 << 26      # bytes; for smaller copies, starting threads costs more than they save
cdef int64_t part_bytes = 1 << 24       # bytes; a thread is not worth starting for less


def _set_split(int64_t above, int64_t part):
    """Set from how many bytes on a copy is split, and the least bytes of a part; for the tests."""
    global split_above, part_bytes
    before = split_above, part_bytes
    split_above, part_bytes = above, part
    return before


cdef void copy_words(Copy* copy) noexcept nogil:
    """Copy every element. Axes can come in any order, but none of them may have an extent of 0."""
    arrange(copy)
    choose_loops(copy)
    if total_bytes(copy) >= split_above:
        copy_in_parts(copy)
    else:
        copy_from(copy, 0, copy.into, copy.source)


# ---- arrange ---------------------------------------------------------------------------------------------------------

cdef void arrange(Copy* copy) noexcept nogil:
    sort_axes(copy)
    merge_axes(copy)


cdef void sort_axes(Copy* copy) noexcept nogil:
    """Sort the axes, the one with the largest step in the result first, and drop axes of one element."""
    cdef int32_t axis, place, ndim = 0
    cdef Axis moved
    for axis in range(copy.ndim):
        moved = copy.axes[axis]
        if moved.extent == 1:
            continue
        place = ndim
        while place and copy.axes[place - 1].into_step < moved.into_step:
            copy.axes[place] = copy.axes[place - 1]
            place -= 1
        copy.axes[place] = moved
        ndim += 1
    copy.ndim = ndim
    if not ndim:
        copy.ndim = 1
        copy.axes[0].extent = 1
        copy.axes[0].into_step = copy.axes[0].source_step = copy.word_bytes


cdef void merge_axes(Copy* copy) noexcept nogil:
    """Merge axes that are walked as one on both sides, and short runs of unchanged words into wider words."""
    cdef int32_t axis, last = 0
    cdef Axis* outer
    cdef Axis* inner
    for axis in range(1, copy.ndim):
        outer = &copy.axes[last]
        inner = &copy.axes[axis]
        if (outer.into_step == inner.extent * inner.into_step
                and outer.source_step == inner.extent * inner.source_step):
            outer.extent *= inner.extent
            outer.into_step = inner.into_step
            outer.source_step = inner.source_step
        else:
            last += 1
            copy.axes[last] = inner[0]
    copy.ndim = last + 1
    inner = &copy.axes[last]
    if copy.change == SWAP_HALVES and not copy.flipped and inner.into_step == inner.source_step == copy.word_bytes:
        # Complex numbers side by side are twice as many real ones.
        copy.change = SWAP
        copy.word_bytes //= 2
        inner.extent *= 2
        inner.into_step = inner.source_step = copy.word_bytes
    while last and is_run(copy) and inner.extent % 2 == 0 and inner.extent * copy.word_bytes <= MAX_WORD:
        copy.word_bytes *= 2
        inner.extent //= 2
        inner.into_step = inner.source_step = copy.word_bytes
        if inner.extent == 1:
            copy.ndim = last
            break


cdef bint is_run(const Copy* copy) noexcept nogil:
    cdef const Axis* last = &copy.axes[copy.ndim - 1]
    return not changes(copy) and last.into_step == copy.word_bytes and last.source_step == copy.word_bytes


cdef void choose_loops(Copy* copy) noexcept nogil:
    cdef int32_t column = 0, partner
    while 1 << column < copy.word_bytes:
        column += 1
    copy.line = <Line> line_of(copy.change, column)
    copy.tile = <Tile> tile_of(copy.change, column)
    copy.gather = <Line> line_of(KEEP, column)
    copy.runs = is_run(copy)
    choose_window(copy)
    copy.pixels = copy.runs and copy.ndim > 1 and run_bytes(copy) <= SHORT_RUN
    partner = -1 if copy.pixels or copy.window.pixels else plane_partner(copy)
    copy.planes = partner >= 0
    if copy.planes:
        move_axis(copy, partner, copy.ndim - 2)
        turn_forwards(copy, copy.ndim - 2)


cdef int64_t run_bytes(const Copy* copy) noexcept nogil:
    return copy.axes[copy.ndim - 1].extent * copy.word_bytes


cdef void choose_window(Copy* copy) noexcept nogil:
    """Find out how many pixels are shuffled at once, such as those of an image that is flipped, or has BGR for RGB."""
    cdef const Axis* band = &copy.axes[copy.ndim - 1]
    cdef const Axis* pixel
    cdef Window* window = &copy.window
    cdef int64_t run = run_bytes(copy), step, reach, from_first, byte, at
    window.pixels = 0
    if (copy.ndim < 2 or copy.change > SWAP or copy.flipped or run > WINDOW or band.into_step != copy.word_bytes
            or not can_shuffle):
        return
    pixel = band - 1
    if pixel.into_step != run or pixel.extent < FEW_PIXELS:
        return
    step, reach = llabs(pixel.source_step), (band.extent - 1) * llabs(band.source_step) + copy.word_bytes
    if not 0 < step <= WINDOW or reach > WINDOW:
        return
    window.pixels = min(WINDOW // run, 1 + (WINDOW - reach) // step)
    if 2 * window.pixels * run < WINDOW:        # lines are faster than windows most of which is written over
        window.pixels = 0
        return
    window.rest = max((WINDOW + run - 1) // run, 1 + (WINDOW - reach + step - 1) // step)
    # The window begins with the lowest byte of its pixels, or, where they go backwards, ends with the highest.
    window.begin = min(0, (band.extent - 1) * band.source_step)
    if pixel.source_step < 0:
        window.begin += reach - WINDOW
    for at in range(window.pixels * run):
        byte = at % copy.word_bytes
        from_first = at // run * pixel.source_step + at % run // copy.word_bytes * band.source_step
        window.order[at] = from_first - window.begin + (byte if copy.change == KEEP else copy.word_bytes - 1 - byte)


cdef int32_t plane_partner(const Copy* copy) noexcept nogil:
    """The axis that is best walked together with the last one, or -1.

    It is the axis along which the source has its neighbours. If the last axis and that one are too short, it is the
    longest axis; of those that are long enough it is the last, whose lines are near each other in the result.
    """
    cdef const Axis* last = &copy.axes[copy.ndim - 1]
    cdef int32_t axis, nearest = -1, longest = -1
    cdef int64_t step, length, least = llabs(last.source_step), most = last.extent + 1
    for axis in range(copy.ndim - 1):
        step = llabs(copy.axes[axis].source_step)
        length = min(copy.axes[axis].extent, <int64_t> LONG)
        if 0 < step < least:
            least = step
            nearest = axis
        if length >= most:
            most = length
            longest = axis
    if last.extent < SHORT and (nearest < 0 or copy.axes[nearest].extent < SHORT):
        return longest
    return nearest


cdef void move_axis(Copy* copy, int32_t axis, int32_t to) noexcept nogil:
    cdef Axis moved = copy.axes[axis]
    while axis < to:
        copy.axes[axis] = copy.axes[axis + 1]
        axis += 1
    copy.axes[to] = moved


cdef void turn_forwards(Copy* copy, int32_t axis) noexcept nogil:
    """Let an axis be walked forwards in the source, where the neighbours of a tile then need not be gathered."""
    cdef Axis* turned = &copy.axes[axis]
    if turned.source_step < 0:
        copy.into += (turned.extent - 1) * turned.into_step
        copy.source += (turned.extent - 1) * turned.source_step
        turned.into_step, turned.source_step = -turned.into_step, -turned.source_step


cdef int64_t total_bytes(const Copy* copy) noexcept nogil:
    cdef int64_t total = copy.word_bytes
    cdef int32_t axis
    for axis in range(copy.ndim):
        total *= copy.axes[axis].extent
    return total


# ---- loops -----------------------------------------------------------------------------------------------------------

cdef void copy_from(const Copy* copy, int32_t axis, char* into, const char* source) noexcept nogil:
    """Copy everything from this axis on."""
    cdef const Axis* along = &copy.axes[axis]
    cdef int64_t index
    if axis == copy.ndim - 1:
        copy_line(copy, into, source)
    elif copy.window.pixels and axis == copy.ndim - 2:
        copy_windows(copy, into, source)
    elif copy.planes and axis == copy.ndim - 2:
        copy_plane(copy, into, source)
    elif copy.pixels and axis == copy.ndim - 2:
        copy_pixels(into, source, along, run_bytes(copy))
    else:
        for index in range(along.extent):
            copy_from(copy, axis + 1, into + index * along.into_step, source + index * along.source_step)


cdef void copy_windows(const Copy* copy, char* into, const char* source) noexcept nogil:
    """Shuffle pixels while a window stays within the elements of both sides, and copy the other pixels in lines."""
    cdef const Axis* band = &copy.axes[copy.ndim - 1]
    cdef const Axis* pixel = &copy.axes[copy.ndim - 2]
    cdef const Window* window = &copy.window
    cdef int64_t left = pixel.extent - window.rest
    cdef int64_t windows = left // window.pixels + 1 if left >= 0 else 0
    cdef int64_t done = windows * window.pixels, index
    shuffle(into, source + window.begin, windows, window.pixels * pixel.into_step, window.pixels * pixel.source_step,
            window.order)
    into += done * pixel.into_step
    source += done * pixel.source_step
    for index in range(band.extent):
        copy.line(into + index * band.into_step, source + index * band.source_step, pixel.extent - done,
                  pixel.into_step, pixel.source_step, copy.flips)


cdef void copy_pixels(char* into, const char* source, const Axis* along, int64_t nbytes) noexcept nogil:
    """Copy short runs of bytes, such as the bands of each pixel, one after the other along an axis.

    The compiler makes a few instructions of a copy whose size it knows.
    """
    if nbytes == 3:
        copy_each(into, source, along, 3)
    elif nbytes == 6:
        copy_each(into, source, along, 6)
    elif nbytes == 12:
        copy_each(into, source, along, 12)
    elif nbytes == 24:
        copy_each(into, source, along, 24)
    else:
        copy_each(into, source, along, nbytes)


cdef inline void copy_each(char* into, const char* source, const Axis* along, size_t nbytes) noexcept nogil:
    cdef int64_t index
    for index in range(along.extent):
        memcpy(into + index * along.into_step, source + index * along.source_step, nbytes)


cdef inline void copy_line(const Copy* copy, char* into, const char* source) noexcept nogil:
    cdef const Axis* last = &copy.axes[copy.ndim - 1]
    if copy.runs:
        memcpy(into, source, last.extent * copy.word_bytes)
    else:
        copy.line(into, source, last.extent, last.into_step, last.source_step, flips_of(copy))


cdef inline const uint8_t* flips_of(const Copy* copy) noexcept nogil:
    if copy.change >= TO_FLOAT:
        return copy.lost
    return copy.flips


cdef void copy_plane(const Copy* copy, char* into, const char* source) noexcept nogil:
    """Copy the last two axes in tiles, and what is left at the edges in blocks."""
    cdef const Axis* far = &copy.axes[copy.ndim - 1]        # neighbours in the result, far apart in the source
    cdef const Axis* near = &copy.axes[copy.ndim - 2]
    cdef int64_t side = TILE_BYTES // copy.word_bytes
    cdef int64_t far_tiles = far.extent // side if prefers_tiles(copy) else 0
    cdef int64_t near_tiles = near.extent // side if far_tiles else 0
    # Rows of the result that are begun together stay in the cache until the next tiles go on with them.
    cdef int64_t strip = STRIP if side > FEW_ROWS else 1
    cdef int64_t first = 0
    while first < near_tiles:
        copy_strip(copy, into, source, far_tiles, first, min(first + strip, near_tiles))
        first += strip
    copy_block(copy, into, source, 0, far_tiles * side, near_tiles * side, near.extent)
    copy_block(copy, into, source, far_tiles * side, far.extent, 0, near.extent)


cdef bint prefers_tiles(const Copy* copy) noexcept nogil:
    """Whether tiles are faster than lines.

    Lines of the widest words are as fast as tiles, unless all that they read falls into one place of the cache.
    """
    cdef const Axis* far = &copy.axes[copy.ndim - 1]
    cdef const Axis* near = &copy.axes[copy.ndim - 2]
    if far.into_step != copy.word_bytes or copy.tile == NULL:
        return False
    if TILE_BYTES // copy.word_bytes > FEW_ROWS or far.source_step % CACHE_WAY == 0:
        return True
    # A tile writes to several rows of the result. Rows that share one place of the cache drive each other out of it.
    return copy.word_bytes < MAX_WORD and near.source_step == copy.word_bytes and near.into_step % CACHE_WAY


cdef inline bint changes(const Copy* copy) noexcept nogil:
    return copy.change != KEEP or copy.flipped


cdef void copy_strip(
    const Copy* copy, char* into, const char* source, int64_t far_tiles, int64_t near_begin, int64_t near_end,
) noexcept nogil:
    cdef const Axis* far = &copy.axes[copy.ndim - 1]
    cdef const Axis* near = &copy.axes[copy.ndim - 2]
    cdef Line gather = copy.gather if near.source_step != copy.word_bytes else NULL
    cdef int64_t side = TILE_BYTES // copy.word_bytes
    cdef int64_t row, column
    for row in range(far_tiles):
        for column in range(near_begin, near_end):
            copy.tile(
                into + (row * far.into_step + column * near.into_step) * side,
                source + (row * far.source_step + column * near.source_step) * side,
                near.into_step, far.source_step, near.source_step, gather, copy.flips)


cdef void copy_block(
    const Copy* copy, char* into, const char* source,
    int64_t far_begin, int64_t far_end, int64_t near_begin, int64_t near_end,
) noexcept nogil:
    """Copy a part of a plane that is not copied in tiles.

    Lines go along the result if they are long enough there. One block of every line is copied at a time.
    """
    cdef const Axis* far = &copy.axes[copy.ndim - 1]
    cdef const Axis* near = &copy.axes[copy.ndim - 2]
    cdef const Axis* along = far
    cdef const Axis* across = near
    cdef int64_t index, count = far_end - far_begin, lines = near_end - near_begin, block = BLOCK
    into += far_begin * far.into_step + near_begin * near.into_step
    source += far_begin * far.source_step + near_begin * near.source_step
    if count < SHORT and count < lines:
        along, across = near, far
        count, lines = lines, count
        block = SHORT_BLOCK
    while count > 0:
        for index in range(lines):
            copy.line(
                into + index * across.into_step, source + index * across.source_step, min(block, count),
                along.into_step, along.source_step, flips_of(copy))
        into += block * along.into_step
        source += block * along.source_step
        count -= block


# ---- elements below a byte -------------------------------------------------------------------------------------------

cdef bint repack(char* into, const char* source, int64_t count, int32_t bits, bint unpacks) noexcept nogil:
    # Each size is compiled by itself: when the shifts are known, the compiler handles many elements at once.
    if bits == 1:
        repack_bits(<uint8_t*> into, <const uint8_t*> source, count, 1, unpacks)
    elif bits == 2:
        repack_bits(<uint8_t*> into, <const uint8_t*> source, count, 2, unpacks)
    elif bits == 4:
        repack_bits(<uint8_t*> into, <const uint8_t*> source, count, 4, unpacks)
    elif bits == 6:
        repack_bits(<uint8_t*> into, <const uint8_t*> source, count, 6, unpacks)
    else:
        return False
    return True


cdef inline void repack_bits(
    uint8_t* into, const uint8_t* source, int64_t count, int bits, bint unpacks,
) noexcept nogil:
    cdef int group_bytes = 3 if bits == 6 else 1        # the fewest bytes that whole elements fill
    cdef int group = 8 * group_bytes // bits            # elements
    cdef int64_t groups = count // group
    cdef int32_t rest = count % group
    cdef uint8_t[8] from_rest, to_rest
    if unpacks:
        unpack_groups(into, source, groups, group, group_bytes, bits)
    else:
        pack_groups(into, source, groups, group, group_bytes, bits)
    if not rest:
        return
    memset(from_rest, 0, 8)
    if unpacks:
        memcpy(from_rest, source + groups * group_bytes, (rest * bits + 7) // 8)
        unpack_groups(to_rest, from_rest, 1, group, group_bytes, bits)
        memcpy(into + groups * group, to_rest, rest)
    else:
        memcpy(from_rest, source + groups * group, rest)
        pack_groups(to_rest, from_rest, 1, group, group_bytes, bits)
        memcpy(into + groups * group_bytes, to_rest, (rest * bits + 7) // 8)


cdef inline void unpack_groups(
    uint8_t* into, const uint8_t* source, int64_t groups, int group, int group_bytes, int bits,
) noexcept nogil:
    cdef int64_t at
    cdef int byte, element
    cdef uint32_t packed
    for at in range(groups):
        packed = 0
        for byte in range(group_bytes):
            packed |= <uint32_t> source[at * group_bytes + byte] << 8 * byte
        for element in range(group):
            into[at * group + element] = packed >> element * bits & (1 << bits) - 1


cdef inline void pack_groups(
    uint8_t* into, const uint8_t* source, int64_t groups, int group, int group_bytes, int bits,
) noexcept nogil:
    cdef int64_t at
    cdef int byte, element
    cdef uint32_t packed
    for at in range(groups):
        packed = 0
        for element in range(group):
            packed |= <uint32_t> (source[at * group + element] & (1 << bits) - 1) << element * bits
        for byte in range(group_bytes):
            into[at * group_bytes + byte] = packed >> 8 * byte & 0xFF


# ---- threads ---------------------------------------------------------------------------------------------------------

ctypedef struct Part:
    Copy copy
    Thread thread
    bint started


cdef void copy_in_parts(const Copy* copy) noexcept nogil:
    """Copy in parts, one for each core. The threads end with the copy, so that a fork never finds one."""
    cdef int32_t axis = longest_axis(copy)
    cdef int64_t extent = copy.axes[axis].extent
    cdef int64_t count = min(min(total_bytes(copy) // part_bytes, extent), <int64_t> min(cores(), MAX_THREADS))
    cdef Part* parts = <Part*> malloc(count * sizeof(Part)) if count > 1 else NULL
    cdef int64_t index
    if parts == NULL:
        copy_from(copy, 0, copy.into, copy.source)
        return
    for index in range(count):
        cut(&parts[index].copy, copy, axis, extent * index // count, extent * (index + 1) // count)
    # This thread copies the first part, and any that gets no thread.
    parts[0].started = False
    for index in range(1, count):
        parts[index].started = start_thread(&parts[index].thread, copy_part, &parts[index])
    for index in range(count):
        if not parts[index].started:
            copy_part(&parts[index])
    for index in range(count):
        if parts[index].started:
            join_thread(parts[index].thread)
    free(parts)


cdef void* copy_part(void* part) noexcept nogil:
    cdef const Copy* copy = &(<Part*> part).copy
    copy_from(copy, 0, copy.into, copy.source)
    return NULL


cdef int32_t longest_axis(const Copy* copy) noexcept nogil:
    cdef int32_t axis, found = 0
    for axis in range(1, copy.ndim):
        if copy.axes[axis].extent > copy.axes[found].extent:
            found = axis
    return found


cdef void cut(Copy* out, const Copy* copy, int32_t axis, int64_t begin, int64_t end) noexcept nogil:
    out[0] = copy[0]
    out.axes[axis].extent = end - begin
    out.into += begin * copy.axes[axis].into_step
    out.source += begin * copy.axes[axis].source_step
