"""Uploads: by the library's own copy, or through pinned buffers into its memory or that of the device's pool."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport STREAM_UNORDERED, DLDevice
from dlbridge._core.block cimport (
    Managed, managed_count, managed_data, managed_nbytes, managed_new_view, managed_own_storage, managed_release,
    managed_strides,
)
from dlbridge._core.decision cimport COPY, NARROW, STAGED, Decision, is_bool
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, parse_device
from dlbridge._core.dtypes cimport get_row, nearest_row
from dlbridge._core.layout cimport STRIDED
from dlbridge._core.place cimport copied, copy_staged, dense_like
from dlbridge._core.request cimport NOTHING_ASKED, READONLY_SHARE, Request
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.steps cimport taken
from dlbridge._core.target cimport Target
from dlbridge._core.targets.importer cimport exhausted_memory, first_line
from dlbridge.tensor cimport Tensor, new_tensor

from dlbridge._core.targets.importer import UNTOUCHED
from dlbridge.errors import DeviceError, DLBridgeError, refusal

cdef enum:
    QUEUED_BYTES = 1 << 18      # larger copies are waited for, which takes little beside the copy


cdef object uploaded(
    Managed* managed, Target target, const Decision* decision, const Request* request, Managed** in_pool,
):
    in_pool[0] = NULL
    if decision.staged:
        try:
            array = staged(managed, target, decision, in_pool)
        except BaseException:
            managed_release(managed)
            raise
        if array is not None or in_pool[0] != NULL:
            managed_release(managed)
            return ready_for(array, target, request)
        managed = taken(managed, decision.steps & STAGED, target, request, decision)
    managed_own_storage(managed)
    try:
        if target.allocate == NULL and is_large(managed, &decision.upload):
            in_pool[0] = sent_to_pool(managed, &decision.upload, True)
    except DeviceError:
        pass                    # the library may have memory of its own left, and need no pool
    except BaseException:
        managed_release(managed)
        raise
    if in_pool[0] != NULL:
        managed_release(managed)
        return None
    return ready_for(copied_by_library(managed, target, &decision.upload, request), target, request)


cdef bint is_large(const Managed* managed, const DLDevice* device) except -1:
    return has_streams(device.device_type) and not get_row(managed.row).subbyte and device_operations().is_large(
        managed_nbytes(managed))


cdef object ready_for(object array, Target target, const Request* request):
    """Let the stream that was asked for wait for the library's current stream, on which its upload was queued."""
    cdef DLDevice device
    cdef int64_t current
    if request.has_stream and request.stream != STREAM_UNORDERED and target.current_stream != NULL and hasattr(
            array, "__dlpack_device__"):
        parse_device(tuple(array.__dlpack_device__()), &device)
        target.current_stream(<PyObject*> target, &device, &current)
        device_operations().order_streams(&device, current, request.stream)
    return array


# ---- through pinned buffers ------------------------------------------------------------------------------------------

cdef object staged(Managed* source, Target target, const Decision* decision, Managed** in_pool):
    """Upload memory, and arrange and narrow it on the way: into an array or into a block of the pool, or not at all."""
    cdef int row = nearest_row(source.row) if decision.steps & NARROW else source.row
    cdef Managed* like
    if target.allocate == NULL:
        in_pool[0] = staged_in_pool(source, row, decision.steps, &decision.upload)
        return None
    if row != source.row:
        return None
    like = dense_like(source, row, decision.steps)
    try:
        return filled(target.allocate(like, target, &decision.upload), source)
    except DLBridgeError:
        raise
    except Exception as error:
        raise_of_upload(target, &decision.upload, managed_nbytes(source), error)
    finally:
        managed_release(like)


cdef object filled(object array, Managed* source):
    """A library's new array, filled with elements of the host; None if that was not done."""
    cdef Request sharing = NOTHING_ASKED
    cdef Managed* into
    sharing.readonly = READONLY_SHARE
    into = acquire_by(offers_for_type(type(array)), array, &sharing)
    try:
        return array if copy_staged(into, source) else None
    finally:
        managed_release(into)


cdef Managed* staged_in_pool(Managed* source, int row, int32_t steps, const DLDevice* device) except? NULL:
    """New memory of the pool. NULL if that was not done, also for want of the device's memory."""
    cdef Managed* block
    try:
        block = device_operations().allocate(dense_like(source, row, steps), device)
    except DeviceError:
        return NULL             # a library may have memory of its own left, and need no pool
    try:
        if copy_staged(block, source):
            return block
    except BaseException:
        managed_release(block)
        raise
    managed_release(block)
    return NULL


# ---- by one copy -----------------------------------------------------------------------------------------------------

cdef Managed* sent_to_pool(Managed* source, const DLDevice* device, bint waits) except NULL:
    cdef Managed* block = device_operations().allocate(dense_like(source, source.row, 0), device)
    try:
        if managed_count(source):
            send_elements(block, source, waits)
    except BaseException:
        managed_release(block)
        raise
    return block


cdef int send_elements(Managed* block, Managed* source, bint waits) except -1:
    cdef Managed* compact
    if managed_strides(block) == managed_strides(source) and not is_bool(source):
        return device_operations().send(block, managed_data(source), waits)
    compact = copied(source, COPY, NULL)
    try:
        return device_operations().send(block, managed_data(compact), True)
    finally:
        managed_release(compact)


cdef object copied_by_library(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Let the library copy host memory to a device; steals managed, also when it fails.

    An upload that is only queued is noted before it begins, with the memory that it reads. The note has a place for the
    array, so that adding the array afterwards cannot fail.
    """
    cdef Request asked = request[0]
    cdef int64_t nbytes = managed_nbytes(managed)
    cdef list upload = [target, None, None]
    if nbytes > QUEUED_BYTES or managed.marks & STRIDED:
        asked.queued = NULL         # strided memory may be uploaded from a copy that nobody keeps
    try:
        device_operations()         # imported before the block is stolen
    except BaseException:
        managed_release(managed)
        raise
    if asked.queued != NULL and target.await_upload != NULL:
        upload[1] = new_tensor(managed, READONLY_SHARE)
        (<list> asked.queued).append(upload)
        managed = managed_new_view((<Tensor> upload[1]).managed)
    try:
        array = target.upload(managed, target, device, &asked)
    except DLBridgeError:
        raise
    except Exception as error:
        raise_of_upload(target, device, nbytes, error)
    upload[2] = array
    return array


cdef int await_uploads(list queued) except -1:
    """Wait for the last of several uploads. They are queued on one stream, so the others are then done, too."""
    for target, _, array in reversed(queued):
        if array is not None:           # it is None where the upload failed
            return (<Target> target).await_upload(array)


cdef object raise_of_upload(Target target, const DLDevice* device, int64_t nbytes, object error):
    exhausted = exhausted_memory(target.name, device, nbytes, error)
    if exhausted is not None:
        raise exhausted from error
    if isinstance(error, UNTOUCHED):
        raise error
    raise refusal(DeviceError, target.name, "device", device_name(device[0]),
                  f"{type(error).__qualname__}: {first_line(error)}", "its message says what it needs") from error
