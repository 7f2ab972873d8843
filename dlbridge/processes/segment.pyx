"""Segments: memory with a descriptor, by which other processes can map it; those of the host; the Tensors over it.

Linux seals those of the host, so that no process can make one smaller: then the pages would be gone under those that
have it mapped.
"""

from bisect import bisect_left, bisect_right
from os import strerror, urandom
from weakref import WeakSet, ref

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EFAULT, EFBIG, EINTR, EMFILE, ENFILE, ENOMEM, ENOSPC
from libc.stdint cimport int64_t, intptr_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLDevice, kDLCPU
from dlbridge._core.block cimport (
    Managed, managed_count, managed_data, managed_nbytes, managed_release, managed_shape, managed_span,
    managed_strides,
)
from dlbridge._core.copies cimport is_watched, note_copy
from dlbridge._core.described cimport described_by
from dlbridge._core.devices.table cimport is_gpu, is_host, parse_device, same_device
from dlbridge._core.dtypes cimport dtype_name
from dlbridge._core.layout cimport Span
from dlbridge._core.place cimport copy_into, dense_like, has_room_for
from dlbridge.tensor cimport Tensor, pickled, set_find_sendable

from dlbridge._core.locks import ForkableLock, call_in_child
from dlbridge.convert import empty
from dlbridge.errors import ConversionError, refusal
from dlbridge.tensor import tensor_over

cdef extern from "dlbridge/processes/memory.h" nogil:
    enum:
        KEEPS_ITS_SIZE "DLBRIDGE_KEEPS_ITS_SIZE"
        IS_CONSTANT "DLBRIDGE_IS_CONSTANT"
    int new_memory "dlbridge_new_memory"(size_t nbytes, intptr_t* out) noexcept
    int reserve "dlbridge_reserve"(intptr_t memory, size_t* done, size_t nbytes) noexcept
    int fill "dlbridge_fill"(intptr_t memory, const char* bytes, size_t nbytes) noexcept
    void keep_from_children "dlbridge_keep_from_children"(void* mapped, size_t nbytes) noexcept
    int map_memory "dlbridge_map"(intptr_t memory, size_t nbytes, bint writable, void** out) noexcept
    void unmap_memory "dlbridge_unmap"(void* mapped, size_t nbytes) noexcept
    void close_memory "dlbridge_close"(intptr_t memory) noexcept
    int seal_memory "dlbridge_seal"(intptr_t memory, bint against_writes) noexcept
    int seals_of "dlbridge_seals"(intptr_t memory) noexcept
    int64_t size_of "dlbridge_size"(intptr_t memory) noexcept
    int receive "dlbridge_receive"(int socket, char* bytes, size_t nbytes, intptr_t* out) noexcept


cdef enum:
    NONE = -1                   # no descriptor


cdef class Segment:
    """Memory with a descriptor, mapped once in a process.

    Each kind has ``tensor_over``, which makes a Tensor over it, and ``arrived``, which maps what was received, with the
    arguments that ``as_sent`` gives.
    """

    def __cinit__(self):
        self.descriptor = NONE
        unfinished.add(self)

    # Here and in no class below it, since only this is called after the weak references are gone: a Segment that is
    # still found while it goes would be used.
    def __dealloc__(self):
        if self.start:
            forget(self)
        self.unmap()
        if self.descriptor != NONE:
            close_memory(self.descriptor)

    cdef void unmap(self) noexcept:
        pass

    @property
    def is_constant(self):
        """Whether nobody can write to it, in any process."""
        return False

    def take(self, intptr_t descriptor):
        """Own a descriptor."""
        self.descriptor = descriptor

    def receive(self, int socket, Py_ssize_t nbytes):
        """Own the descriptor that comes by a socket, if one does, and give the bytes that come with it.

        No signal's handler runs between its arrival and that.
        """
        cdef bytes came = PyBytes_FromStringAndSize(NULL, nbytes)
        cdef char* into = PyBytes_AS_STRING(came)
        cdef int got = -EINTR
        while got == -EINTR:
            PyErr_CheckSignals()
            with nogil:
                got = receive(socket, into, nbytes, &self.descriptor)
        if got < 0:
            raise OSError(-got, strerror(-got))
        return came[:got]


cdef class HostSegment(Segment):
    """Memory of the host. Its buffer is what Tensors over it hold."""

    def __cinit__(self):
        self.device = DLDevice(kDLCPU, 0)

    cdef void unmap(self) noexcept:
        if self.start:
            unmap_memory(<void*> self.start, self.nbytes)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*> self.start, self.nbytes, not self.writable, flags)

    @property
    def is_constant(self):
        return bool(seals_of(self.descriptor) & IS_CONSTANT)

    @property
    def tensor_over(self):
        return tensor_over

    def as_sent(self):
        check_mapped(self)
        return self.identity, self.nbytes

    def arrived(self, bytes identity, Py_ssize_t nbytes):
        """The Segment of the descriptor that was taken. It is mapped once in a process, so it may be another one."""
        known = known_by(identity)
        if known is not None:
            return known
        if not seals_of(self.descriptor) & KEEPS_ITS_SIZE or not 0 < nbytes <= size_of(self.descriptor):
            raise refusal(ConversionError, "receive", "size", nbytes,
                          f"is not what the descriptor is sealed to: {size_of(self.descriptor)} bytes",
                          "send memory that dlbridge.shared made")
        self.nbytes, self.identity = nbytes, identity
        return opened("receive", self, not seals_of(self.descriptor) & IS_CONSTANT)


cdef int check_mapped(Segment segment) except -1:
    if not segment.start:
        raise ValueError(f"{type(segment).__name__}: nothing: is mapped (call dlbridge.shared)")
    return 0


cdef HostSegment new_segment(str stage, size_t nbytes):
    """A Segment without pages, which is not yet mapped."""
    cdef HostSegment segment = HostSegment.__new__(HostSegment)
    if not has_room_for(nbytes):
        raise no_room(stage, nbytes)
    segment.nbytes, segment.identity = nbytes, urandom(16)
    check(stage, new_memory(nbytes, &segment.descriptor), nbytes)
    return segment


cdef HostSegment reserved(str stage, HostSegment segment):
    """Give a Segment its pages, so that no write to them can fail."""
    cdef size_t done = 0
    cdef int error = EINTR
    while error == EINTR:
        PyErr_CheckSignals()
        with nogil:
            error = reserve(segment.descriptor, &done, segment.nbytes)
    check(stage, error, segment.nbytes)
    return segment


cdef Segment filled(const char* source, size_t nbytes, bint writable):
    """A Segment with a copy of bytes."""
    cdef HostSegment segment = new_segment("shared", nbytes)
    cdef int error
    with nogil:
        error = fill(segment.descriptor, source, nbytes)
    check("shared", error, nbytes)
    return sealed("shared", segment, writable)


cdef Segment sealed(str stage, HostSegment segment, bint writable):
    check(stage, seal_memory(segment.descriptor, not writable), segment.nbytes)
    return opened(stage, segment, writable)


cdef Segment opened(str stage, HostSegment segment, bint writable):
    cdef void* mapped = NULL
    check(stage, map_memory(segment.descriptor, segment.nbytes, writable, &mapped), segment.nbytes)
    segment.writable = writable
    return mapped_once(segment, <size_t> mapped)


cdef str FEWER = "share fewer, larger arrays"
cdef dict HINTS = {EMFILE: FEWER, ENFILE: FEWER, EFBIG: "ask for less, or raise the limit: ulimit -f",
                   EFAULT: "the memory of the array cannot be read: is its file shorter now?"}


cdef int check(str stage, int error, size_t nbytes) except -1:
    if error in (ENOMEM, ENOSPC):
        raise no_room(stage, nbytes)
    if error:
        hint = HINTS.get(error, "the system forbids such memory here")
        raise OSError(error, f"{stage}: {nbytes} bytes: {strerror(error)} ({hint})")
    return 0


cdef object no_room(str stage, size_t nbytes):
    hint = "let go of other memory, and receive it again" if stage == "receive" else "ask for less"
    return MemoryError(f"{stage}: {nbytes} bytes: do not fit into the memory available ({hint})")


# ---- which there are in this process ---------------------------------------------------------------------------------

cdef object LOCK = ForkableLock()
cdef list starts = []           # addresses, in order
cdef dict by_start = {}         # weak references
cdef dict by_identity = {}      # weak references
cdef object unfinished = WeakSet()      # which are not mapped yet


def _close_unfinished():
    """In a forked child: the parent has them, and what made them does not run here."""
    cdef Segment segment
    for segment in unfinished:
        close_memory(segment.descriptor)
        segment.descriptor = NONE
    unfinished.clear()


call_in_child(_close_unfinished)


cdef Segment known_by(bytes identity):
    with LOCK.lock:
        known = by_identity.get(identity)
        return None if known is None else known()


cdef Segment mapped_once(Segment segment, size_t start):
    segment.start = start
    unfinished.discard(segment)         # first: what a forked child finds by its addresses has its descriptor
    reference = ref(segment)
    with LOCK.lock:
        starts.insert(bisect_left(starts, start), start)
        by_start[start] = reference
        known = known_by(segment.identity)
        if known is None:
            by_identity[segment.identity] = reference
    return segment if known is None else known


cdef void forget(Segment segment) noexcept:
    # Nothing of the module's dictionary is used, which may be empty as Python ends.
    with LOCK.lock:
        known = by_start.pop(segment.start, None)
        if known is not None:
            starts.remove(segment.start)
            if by_identity.get(segment.identity) is known:      # and not what was received once more meanwhile
                del by_identity[segment.identity]


cdef Segment segment_of(Managed* managed):
    """The Segment that all elements of a block are in, or None."""
    cdef Segment segment
    cdef Span span
    cdef size_t first
    cdef DLDevice device = managed.abi.dl_tensor.device
    if is_host(device.device_type):
        device = DLDevice(kDLCPU, 0)
    if not starts or not managed_count(managed):
        return None
    span = managed_span(managed)
    first = <size_t> managed_data(managed) + span.low_bytes
    with LOCK.lock:
        index = bisect_right(starts, first)
        segment = by_start[starts[index - 1]]() if index else None
    if segment is None or not same_device(&segment.device, &device) or (
            first + (span.high_bytes - span.low_bytes) > segment.start + segment.nbytes):
        return None
    return segment


# ---- Tensors ---------------------------------------------------------------------------------------------------------

def zeros(shape, dtype):
    """What shared_empty() does."""
    cdef Managed* like = described_by("shared_empty", shape, dtype)
    try:
        if not managed_count(like):
            return empty(shape, dtype)
        segment = reserved("shared_empty", new_segment("shared_empty", managed_nbytes(like)))
        return tensor_of(sealed("shared_empty", segment, True), like, 0)
    finally:
        managed_release(like)


def names_gpu(device):
    cdef DLDevice named
    parse_device(device, &named)
    return is_gpu(named.device_type)


def names_cpu(device):
    cdef DLDevice named
    parse_device(device, &named)
    return named.device_type == kDLCPU


def is_on_host(Tensor tensor not None):
    return is_host(tensor.managed.abi.dl_tensor.device.device_type)


def is_shared(Tensor tensor not None, bint constant):
    """Whether a Tensor is in a Segment; with ``constant``, in one that nobody can write to."""
    segment = segment_of(tensor.managed)
    return segment is not None and (segment.is_constant or not constant)


def shared_copy(Tensor tensor not None, bint readonly):
    """A Tensor over a Segment with the elements of a Tensor of the host, which has some."""
    cdef Managed* source = tensor.managed
    cdef Managed* like = dense_like(source, source.row, 0)
    try:
        if is_watched():
            note_copy(tensor, source, "shared memory", "other processes can map it", "write to dlbridge.shared_empty()")
        if managed_strides(like) == managed_strides(source):
            return tensor_of(filled(managed_data(source), managed_nbytes(source), not readonly), like, 0)
        return tensor_of(filled_in_order(like, source, not readonly), like, 0)
    finally:
        managed_release(like)


cdef Segment filled_in_order(Managed* like, Managed* source, bint writable):
    """A Segment with a copy of elements, in the order of ``like``."""
    cdef size_t nbytes = managed_nbytes(like)
    cdef HostSegment segment = reserved("shared", new_segment("shared", nbytes))
    cdef void* mapped = NULL
    check("shared", map_memory(segment.descriptor, nbytes, True, &mapped), nbytes)
    keep_from_children(mapped, nbytes)
    try:
        like.abi.dl_tensor.data = mapped
        copy_into(like, source)
    finally:
        unmap_memory(mapped, nbytes)
    return sealed("shared", segment, writable)


cdef Tensor tensor_of(Segment segment, const Managed* described, Py_ssize_t offset_bytes):
    return segment.tensor_over(segment, offset_bytes, managed_shape(described), managed_strides(described),
                               *rest_of(described), not segment.writable)


cdef tuple rest_of(const Managed* managed):
    """The dtype by its name, and whether elements below a byte are padded."""
    return dtype_name(managed.abi.dl_tensor.dtype), bool(
        managed.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)


cdef class Sendable:
    """A Tensor over a Segment, as a pickle has it.

    A pickler that can pass descriptors knows this type (processes/sending). Any other one takes it by value.
    """

    cdef Tensor tensor
    cdef Segment segment

    def __init__(self):
        raise TypeError("Sendable: nothing: was given (call dlbridge.processes.segment.sendable)")

    def __reduce_ex__(self, int protocol):
        return pickled(self.tensor, protocol)

    def in_segment(self):
        """A function that makes such a Tensor of the Segment, and its arguments."""
        managed = self.tensor.managed
        offset = <size_t> managed_data(managed) - self.segment.start
        return self.segment.tensor_over, (
            self.segment, offset, managed_shape(managed), managed_strides(managed), *rest_of(managed),
            self.tensor.readonly)


def sendable(Tensor tensor not None):
    """A Tensor as a Sendable; None if it is in no Segment."""
    return find_sendable(tensor)


cdef object find_sendable(Tensor tensor):
    cdef Sendable sendable
    segment = segment_of(tensor.managed)
    if segment is None:
        return None
    sendable = Sendable.__new__(Sendable)
    sendable.tensor, sendable.segment = tensor, segment
    return sendable


set_find_sendable(find_sendable)
