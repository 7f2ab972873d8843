"""Transfers between pageable memory of the host and a device: staging.pxd says how.

Measured on an H200 with 16 cores, 256 MiB: up 42 GB/s by 8 threads, where a driver's own copy takes 7; down 40 into
pages that were written before (15), and 19 into new ones (3).
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc

from dlbridge._core.abi cimport STREAM_UNORDERED
from dlbridge._core.atomic cimport add_size, exchange_pointer, load_flag, replace_pointer, store_flag
from dlbridge._core.copying cimport Copy, arrange, copy_words, total_bytes
from dlbridge._core.devices.cuda cimport (
    FAMILIES, MAX_DEVICES, PORTABLE, Calls, Driver, Entered, DriverFailure, enter, failed, has_finished, is_pageable,
    is_well, leave, mark_stream, relax,
)
from dlbridge._core.system cimport Thread, cores, join_thread, start_thread

from dlbridge._core.locks import call_in_child

cdef enum:
    MOST_THREADS = 8            # from 8 to 16, the rate rises by a tenth
    SLOTS = 2                   # buffers of a thread
    BUFFER_BYTES = 1 << 22      # so that all of them together are 64 MiB
    NON_BLOCKING = 1            # …_NON_BLOCKING: a stream that has no order with the legacy default one

# On an H200, 4 MiB up take 335 us by four threads and 370 by one; 8 MiB 516 and 631, 16 MiB 745 and 1199.
cdef int64_t staged_above = 1 << 23     # bytes
cdef int64_t least_piece = 1 << 20      # bytes; a thread is not worth starting for fewer than two of them
cdef int most_threads = 0               # 0: as many as there are cores, and not more than MOST_THREADS


def _set_staging(int64_t above, int64_t piece, int threads):
    """Set from how many bytes on memory is staged, the least bytes of a piece, and the threads; for the tests."""
    global staged_above, least_piece, most_threads
    before = staged_above, least_piece, most_threads
    staged_above, least_piece, most_threads = above, min(piece, BUFFER_BYTES), min(threads, MOST_THREADS)
    return before


cdef int threads_for(int64_t nbytes) noexcept nogil:
    return <int> min(<int64_t> (most_threads or min(cores(), MOST_THREADS)), nbytes // (2 * least_piece))


cdef bint is_worth(int64_t nbytes) noexcept nogil:
    return nbytes >= staged_above and threads_for(nbytes) > 1


cdef bint is_staged(Driver* driver, const void* host, int64_t nbytes) noexcept nogil:
    return is_worth(nbytes) and is_pageable(driver, host)


# ---- pinned memory ---------------------------------------------------------------------------------------------------

# What a thread works with; kept for the next transfer.
ctypedef struct Worker:
    void* buffers[SLOTS]
    void* streams[MAX_DEVICES][SLOTS]       # of each device, made when first needed

cdef void* idle[FAMILIES][MOST_THREADS]     # Workers that no transfer has
cdef size_t worker_counts[FAMILIES]         # how many there are


def workers():
    """How many threads have had buffers so far; for the tests."""
    return sum([worker_counts[family] for family in range(<int> FAMILIES)])


def forget_workers():
    """Forget all workers in a forked child, which cannot use its parent's driver."""
    cdef int family, place
    for family in range(<int> FAMILIES):
        worker_counts[family] = 0
        for place in range(MOST_THREADS):
            idle[family][place] = NULL


call_in_child(forget_workers)


cdef Worker* take_worker(Driver* driver, int32_t device_id) noexcept nogil:
    """A worker for a device whose context is current; NULL if other transfers have all, or if there is no memory."""
    cdef Worker* worker = NULL
    cdef int place
    for place in range(MOST_THREADS):
        worker = <Worker*> exchange_pointer(&idle[driver.family][place], NULL)
        if worker != NULL:
            break
    if worker == NULL:
        if add_size(&worker_counts[driver.family], 1) <= MOST_THREADS:
            worker = <Worker*> calloc(1, sizeof(Worker))
        if worker == NULL:
            add_size(&worker_counts[driver.family], -1)
            return NULL
    if is_equipped(worker, driver, device_id):
        return worker
    give_back(worker, driver)
    return NULL


cdef bint is_equipped(Worker* worker, Driver* driver, int32_t device_id) noexcept nogil:
    """Whether a worker has its buffers and streams. What is missing is made now."""
    cdef Calls* calls = &driver.calls
    cdef int slot
    for slot in range(SLOTS):
        if worker.buffers[slot] == NULL and calls.allocate_pinned(&worker.buffers[slot], BUFFER_BYTES, PORTABLE):
            worker.buffers[slot] = NULL
            return False
        if worker.streams[device_id][slot] == NULL and calls.stream_create(
                &worker.streams[device_id][slot], NON_BLOCKING):
            worker.streams[device_id][slot] = NULL
            return False
    return True


cdef void give_back(Worker* worker, Driver* driver) noexcept nogil:
    """Put a worker where the next transfer finds it: there is a place for each."""
    cdef int place = 0
    while not replace_pointer(&idle[driver.family][place], NULL, worker):
        place = (place + 1) % MOST_THREADS


# ---- pieces ----------------------------------------------------------------------------------------------------------

# A transfer in pieces. A piece is a part of one axis, with everything within that axis, at one place along the axes
# around it. On the device a piece is compact.
ctypedef struct Transfer:
    Driver* driver
    int32_t device_id
    char* memory                # on the device
    Copy copy                   # the whole, with the host's layout on one side
    Direction direction
    void* ready                 # an event that the copies wait for, or NULL
    int32_t axis                # that is cut
    int64_t extent              # of that axis in a piece
    int64_t cuts                # pieces along it
    int64_t inner_bytes         # of all the axes within it
    size_t pieces
    size_t taken                # the number of pieces that threads have taken so far
    bint stopped                # since a call has failed

# A thread's part in a transfer.
ctypedef struct ThreadPart:
    Transfer* transfer
    Worker* worker
    DriverFailure failure
    Thread thread
    bint started

# What is in a buffer.
ctypedef struct Piece:
    Copy copy
    char* memory
    size_t nbytes


cdef void divide(Transfer* transfer, int threads) noexcept nogil:
    """Choose the axis that is cut, and how large its parts are: at least two pieces for each thread."""
    cdef Copy* copy = &transfer.copy
    cdef int64_t most = min(<int64_t> BUFFER_BYTES, max(least_piece, total_bytes(copy) // (2 * threads)))
    cdef int32_t axis
    transfer.axis = copy.ndim - 1
    transfer.inner_bytes = copy.word_bytes
    while transfer.axis and transfer.inner_bytes * copy.axes[transfer.axis].extent <= most:
        transfer.inner_bytes *= copy.axes[transfer.axis].extent
        transfer.axis -= 1
    transfer.extent = most // transfer.inner_bytes
    transfer.cuts = (copy.axes[transfer.axis].extent + transfer.extent - 1) // transfer.extent
    transfer.pieces = transfer.cuts
    for axis in range(transfer.axis):
        transfer.pieces *= copy.axes[axis].extent


cdef bint take_piece(Transfer* transfer, void* buffer, Piece* out) noexcept nogil:
    """The next piece that no thread has; False if there is none."""
    cdef const Copy* whole = &transfer.copy
    cdef size_t index = add_size(&transfer.taken, 1) - 1
    cdef int64_t around = index // transfer.cuts
    cdef int64_t begin = index % transfer.cuts * transfer.extent
    cdef int64_t extent = whole.axes[transfer.axis].extent
    cdef int64_t host_bytes = begin * step_of(transfer, transfer.axis)
    cdef int32_t axis
    if index >= transfer.pieces or load_flag(&transfer.stopped):
        return False
    out.memory = transfer.memory + (around * extent + begin) * transfer.inner_bytes
    out.copy = whole[0]
    out.copy.ndim = whole.ndim - transfer.axis
    for axis in range(out.copy.ndim):
        out.copy.axes[axis] = whole.axes[transfer.axis + axis]
    out.copy.axes[0].extent = min(transfer.extent, extent - begin)
    out.nbytes = out.copy.axes[0].extent * transfer.inner_bytes
    for axis in range(transfer.axis - 1, -1, -1):
        host_bytes += around % whole.axes[axis].extent * step_of(transfer, axis)
        around //= whole.axes[axis].extent
    if transfer.direction == UP:
        out.copy.source += host_bytes
        out.copy.into = <char*> buffer
    else:
        out.copy.into += host_bytes
        out.copy.source = <char*> buffer
    return True


cdef int64_t step_of(const Transfer* transfer, int32_t axis) noexcept nogil:
    """The bytes from one element of the host to the next."""
    return transfer.copy.axes[axis].source_step if transfer.direction == UP else transfer.copy.axes[axis].into_step


# ---- threads ---------------------------------------------------------------------------------------------------------

cdef void* run(void* argument) noexcept nogil:
    cdef ThreadPart* part = <ThreadPart*> argument
    cdef Transfer* transfer = part.transfer
    cdef Entered entered
    if enter(transfer.driver, transfer.device_id, &entered, &part.failure):
        if relax(transfer.driver, &entered, &part.failure) and is_ready(part):
            if transfer.direction == UP:
                move_up(part)
            else:
                move_down(part)
        leave(transfer.driver, &entered, &part.failure)
    if not is_well(&part.failure):
        store_flag(&transfer.stopped, True)
    return NULL


cdef inline void* stream_of(const ThreadPart* part, int slot) noexcept nogil:
    return part.worker.streams[part.transfer.device_id][slot]


cdef bint is_ready(ThreadPart* part) noexcept nogil:
    """Let the streams of a thread wait for the memory."""
    cdef Driver* driver = part.transfer.driver
    cdef Calls* calls = &driver.calls
    cdef int slot
    for slot in range(SLOTS if part.transfer.ready != NULL else 0):
        if failed(driver, &calls.stream_wait_event,
                  calls.stream_wait_event(stream_of(part, slot), part.transfer.ready, 0), &part.failure):
            return False
    return True


cdef bint is_done(ThreadPart* part, int slot) noexcept nogil:
    """Wait until a buffer is free, or filled."""
    return has_finished(part.transfer.driver, stream_of(part, slot), &part.failure)


cdef void move_up(ThreadPart* part) noexcept nogil:
    cdef Driver* driver = part.transfer.driver
    cdef Piece piece
    cdef int slot = 0
    while is_done(part, slot) and take_piece(part.transfer, part.worker.buffers[slot], &piece):
        copy_words(&piece.copy)
        if failed(driver, &driver.calls.copy_to_device, driver.calls.copy_to_device(
                piece.memory, part.worker.buffers[slot], piece.nbytes, stream_of(part, slot)), &part.failure):
            break
        slot = (slot + 1) % SLOTS
    for slot in range(SLOTS):       # also after a failure: the buffers are given back
        is_done(part, slot)


cdef void move_down(ThreadPart* part) noexcept nogil:
    cdef Piece[SLOTS] pieces
    cdef int slot = 0, other = 0
    cdef bint more = fetch_piece(part, slot, &pieces[slot])
    while more:
        other = (slot + 1) % SLOTS
        more = fetch_piece(part, other, &pieces[other])
        if not is_done(part, slot):
            break
        copy_words(&pieces[slot].copy)
        slot = other
    for slot in range(SLOTS):
        is_done(part, slot)


cdef bint fetch_piece(ThreadPart* part, int slot, Piece* piece) noexcept nogil:
    """Begin to copy the next piece into a buffer."""
    cdef Driver* driver = part.transfer.driver
    return take_piece(part.transfer, part.worker.buffers[slot], piece) and not failed(
        driver, &driver.calls.copy_to_host, driver.calls.copy_to_host(
            part.worker.buffers[slot], piece.memory, piece.nbytes, stream_of(part, slot)), &part.failure)


cdef bint stage(
    Driver* driver, int32_t device_id, void* memory, const Copy* copy, Direction direction, int64_t stream,
    DriverFailure* failure,
) noexcept nogil:
    cdef Transfer transfer
    cdef ThreadPart[MOST_THREADS] parts
    cdef Entered entered
    cdef int wanted, count = 0, index
    transfer.driver, transfer.device_id, transfer.memory = driver, device_id, <char*> memory
    transfer.copy, transfer.direction, transfer.ready = copy[0], direction, NULL
    transfer.taken, transfer.stopped = 0, False
    arrange(&transfer.copy)
    wanted = threads_for(total_bytes(&transfer.copy))
    if stream != STREAM_UNORDERED:
        transfer.ready = mark_stream(driver, device_id, stream, failure)
        if transfer.ready == NULL:
            return False
    if enter(driver, device_id, &entered, failure):
        if relax(driver, &entered, failure):
            while count < wanted:
                parts[count].worker = take_worker(driver, device_id)
                if parts[count].worker == NULL:
                    break
                count += 1
            if count > 1:
                divide(&transfer, count)
                run_parts(&transfer, parts, count, failure)
        leave(driver, &entered, failure)
    if transfer.ready != NULL:
        driver.calls.event_destroy(transfer.ready)
    for index in range(count):
        give_back(parts[index].worker, driver)
    return count > 1 and is_well(failure)


cdef void run_parts(Transfer* transfer, ThreadPart* parts, int count, DriverFailure* failure) noexcept nogil:
    """Run every part, the first of them, and any that gets no thread, in this one."""
    cdef int index
    for index in range(count):
        parts[index].transfer = transfer
        parts[index].failure = DriverFailure(0, 0, 0, 0, False)
        parts[index].started = index and start_thread(&parts[index].thread, run, &parts[index])
    for index in range(count):
        if not parts[index].started:
            run(&parts[index])
    for index in range(count):
        if parts[index].started:
            join_thread(parts[index].thread)
        if is_well(failure):
            failure[0] = parts[index].failure
