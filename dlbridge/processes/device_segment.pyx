"""Segments of a device's memory, and the Tensors over them. Those are ready on dlbridge's own stream of the device."""

from os import set_inheritable, urandom

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor, kDLCUDA
from dlbridge._core.block cimport (
    PROTOCOL_DLBRIDGE, Managed, managed_count, managed_like, managed_nbytes, managed_new, managed_own_object,
    managed_release, managed_span,
)
from dlbridge._core.copies cimport is_watched, note_copy
from dlbridge._core.described cimport described_by
from dlbridge._core.devices.mappings cimport (
    Mapping, await_device, device_of, fill_with_zeros, granule_of, make_pages, map_pages, mapping_on,
    own_stream_of, unmap_pages, uuid_of,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, is_gpu, is_host, parse_device
from dlbridge._core.exports cimport described_in
from dlbridge._core.layout cimport Span
from dlbridge._core.place cimport FETCH_THERE, copy_staged, dense_like, is_stageable
from dlbridge._core.request cimport READONLY_COPY
from dlbridge._core.uploads cimport send_elements
from dlbridge.processes.segment cimport Segment, check_mapped, known_by, mapped_once, tensor_of
from dlbridge.tensor cimport Tensor, new_tensor

from dlbridge.convert import asdlpack, empty
from dlbridge.errors import ConversionError, DeviceError, refusal


cdef class DeviceSegment(Segment):
    """Memory of a device."""

    cdef Mapping mapping

    cdef void unmap(self) noexcept:
        unmap_pages(&self.mapping)

    @property
    def tensor_over(self):
        return tensor_on_device

    def as_sent(self):
        check_mapped(self)
        # Work on any of its streams may write to the memory, of which a receiver's stream cannot be told.
        await_device(&self.mapping)
        return self.identity, self.nbytes, uuid_of(&self.mapping)

    def arrived(self, bytes identity, Py_ssize_t nbytes, bytes uuid):
        """The Segment of the descriptor that was taken. It is mapped once in a process, so it may be another one."""
        cdef DLDevice device
        known = known_by(identity)
        if known is not None:
            return known
        device.device_type, device.device_id = kDLCUDA, device_of(uuid)
        describe(self, "receive", &device, nbytes, identity)
        if self.nbytes != nbytes:
            raise refusal(ConversionError, "receive", "size", nbytes, f"is not of whole pages: {self.nbytes} bytes",
                          "send memory that dlbridge.shared made")
        map_pages(&self.mapping, self.descriptor)
        return mapped_once(self, <size_t> self.mapping.start)


cdef int describe(DeviceSegment segment, str stage, const DLDevice* device, size_t nbytes, bytes identity) except -1:
    """Note all but the addresses."""
    segment.mapping = mapping_on(stage, device, nbytes)
    segment.device.device_type, segment.device.device_id = kDLCUDA, segment.mapping.device_id
    segment.nbytes, segment.identity, segment.writable = segment.mapping.nbytes, identity, True


cdef DeviceSegment new_segment(str stage, const DLDevice* device, size_t nbytes):
    cdef DeviceSegment segment = DeviceSegment.__new__(DeviceSegment)
    describe(segment, stage, device, nbytes, urandom(16))
    make_pages(&segment.mapping, &segment.descriptor)
    set_inheritable(segment.descriptor, False)
    return mapped_once(segment, <size_t> segment.mapping.start)


# ---- Tensors ---------------------------------------------------------------------------------------------------------

def tensor_on_device(
    DeviceSegment segment not None, Py_ssize_t offset_bytes, tuple shape not None, tuple strides not None,
    str dtype, bint padded, bint readonly,
):
    """A Tensor over memory of a device."""
    cdef Managed* block = in_segment(managed_new(PROTOCOL_DLBRIDGE, len(shape)), segment, 0)
    block.abi.flags = DLPACK_FLAG_BITMASK_READ_ONLY if readonly else 0
    block = described_in(
        block, <char*> segment.start, segment.nbytes, offset_bytes, shape, strides, dtype, padded)
    return new_tensor(on_own_stream(block, segment), READONLY_COPY)


cdef Managed* in_segment(Managed* block, DeviceSegment segment, int64_t offset_bytes) noexcept:
    """Let a block without memory own a Segment."""
    cdef DLTensor* tensor = &block.abi.dl_tensor
    managed_own_object(block, segment)
    tensor.device = segment.device
    tensor.data, tensor.byte_offset = <char*> segment.start + offset_bytes, 0
    return block


cdef Managed* on_own_stream(Managed* block, DeviceSegment segment) except NULL:
    """Note where memory that is described is ready; the block is released on failure."""
    try:
        device_operations().set_producer(block, own_stream_of(&segment.mapping), None, True)
    except BaseException:
        managed_release(block)
        raise
    return block


def zeros_there(shape, dtype, device):
    """What shared_empty() does on a device."""
    cdef Managed* like = described_by("shared_empty", shape, dtype)
    cdef DLDevice there
    cdef DeviceSegment segment
    try:
        parse_device(device, &there)
        if not managed_count(like):
            return asdlpack(empty(shape, dtype), device=device)
        segment = new_segment("shared_empty", &there, managed_nbytes(like))
        fill_with_zeros(&segment.mapping)
        return tensor_of(segment, like, 0)
    finally:
        managed_release(like)


def fills_granule(Tensor tensor not None, device):
    """Whether elements that are on a GPU, or are to be on one, take no less than the smallest Segment there."""
    cdef Managed* managed = tensor.managed
    cdef DLDevice there = managed.abi.dl_tensor.device
    cdef size_t granule
    if is_host(there.device_type):
        parse_device(device, &there)
    if not is_gpu(there.device_type):
        raise refusal(DeviceError, "shared", "device", device_name(there), "has no memory that can be sent",
                      FETCH_THERE)
    granule = granule_of(&there)
    return granule and <size_t> managed_nbytes(managed) >= granule


def shared_copy(Tensor tensor not None, device, bint readonly):
    """A Tensor over a Segment of a device with the elements of a Tensor, which is there, or on the host."""
    cdef Managed* source = tensor.managed
    cdef DLDevice there = source.abi.dl_tensor.device
    if is_watched():
        note_copy(tensor, source, "shared memory", "other processes can map it", "write to dlbridge.shared_empty()")
    if not is_host(there.device_type):
        return copied_on_device(source, &there, readonly)
    parse_device(device, &there)
    return copied_from_host(source, &there, readonly)


cdef Tensor copied_on_device(Managed* source, const DLDevice* device, bint readonly):
    """A copy of the touched bytes, with their strides."""
    cdef Span span = managed_span(source)
    cdef DeviceSegment segment = new_segment("shared", device, span.high_bytes - span.low_bytes)
    cdef Managed* into = on_own_stream(in_segment(managed_like(source), segment, -span.low_bytes), segment)
    try:
        device_operations().copy_there(into, source)
    finally:
        managed_release(into)
    segment.writable = not readonly
    return tensor_of(segment, source, -span.low_bytes)


cdef Tensor copied_from_host(Managed* source, const DLDevice* device, bint readonly):
    """A dense copy of elements of the host."""
    cdef DeviceSegment segment = new_segment("shared", device, managed_nbytes(source))
    cdef Managed* into = on_own_stream(in_segment(dense_like(source, source.row, 0), segment, 0), segment)
    try:
        if not (is_stageable(source, source.row, device) and copy_staged(into, source)):
            send_elements(into, source, True)
        segment.writable = not readonly
        return tensor_of(segment, into, 0)
    finally:
        managed_release(into)
