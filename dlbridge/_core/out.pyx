"""out=: an array of the target that is there already, and takes the copy."""

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY, DLTensor,
    kDLCUDA, kDLROCM,
)
from dlbridge._core.block cimport (
    BYTE_STRIDES, CONJUGATED, NEGATED, Managed, managed_count, managed_data, managed_item_bytes, managed_nbytes,
    managed_own_storage, managed_release, managed_shape, managed_strides,
)
from dlbridge._core.copies cimport is_watched, note_copy
from dlbridge._core.decision cimport COPY, FETCH, NARROW, Decision, is_bool
from dlbridge._core.described cimport acquire_seen, refuse_several
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host, is_pinned, same_device
from dlbridge._core.dtypes cimport dtype_name, get_row
from dlbridge._core.layout cimport REPEATED, STRIDED, has_overlap
from dlbridge._core.place cimport FETCH_THERE, copy_into, replaced
from dlbridge._core.plan cimport make_plan, row_for, step_texts
from dlbridge._core.request cimport (
    COPY_IF_NEEDED, COPY_NEVER, NOTHING_ASKED, READONLY_SHARE, Request, is_unordered, parse_request,
)
from dlbridge._core.route cimport Route, route_to
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.steps cimport order, placed
from dlbridge._core.target cimport WRITABLE, Target
from dlbridge._core.targets.registry cimport loaded_target

from dlbridge.errors import (
    ConversionError, CopyRequiredError, DeviceError, DLBridgeError, UnsupportedError, full_name, refusal, shown,
)


cdef str ANOTHER = "pass one that can be written, element by element"
cdef str WITHOUT = "leave out out="
cdef str OUT = "out takes a copy"
cdef str OUT_ASKED = "nothing to do: out= asks for it"
cdef Target TENSORS = loaded_target("dlbridge")


def convert_into(src, to, dtype, shape, out, device, copy, stream, readonly, detach, narrow, asked_order):
    """convert(), which copies src into an array that is there, and returns that."""
    cdef Request request
    cdef Route route
    cdef Managed* source
    cdef Managed* into
    parse_request(&request, device, copy, stream, readonly, detach, narrow, asked_order)
    route = route_to(src, to, &request)
    if out is src and dtype is None and shape is None:
        managed_release(acquire_out(out, route.target, &request))
        return out
    refuse_several(route, src, "out", full_name(type(out)))
    check_out_type(out, route.target, &request)
    source = acquire_seen(route, src, dtype, shape, &request)
    try:
        check_reach(source, &request)
        if is_unordered(&request) and is_pinned(source.abi.dl_tensor.device.device_type):
            order(source, &request)     # before anything reads it
        into = acquire_out(out, route.target, &request)      # last: to acquire a source may run any code
    except BaseException:
        managed_release(source)
        raise
    try:
        fill_out(into, source, route.target, &request, src)
    finally:
        managed_release(into)
    if route.target.facts.written is not None:
        route.target.facts.written.value(out)
    return out


cdef int fill_out(Managed* into, Managed* source, Target target, const Request* request, object src) except -1:
    """Copy source, which is stolen, into memory that is there."""
    cdef bint direct = is_fetched_as_it_is(into, source)
    if not direct:
        source = for_out(source, target, request)
    try:
        check_fit(source, into)
        if is_watched():
            note_copy(src, source, target.called, OUT, OUT_ASKED)
        if direct:
            if is_unordered(request):
                order(source, request)
            device_operations().fetch(source, managed_data(into), managed_data(source), managed_nbytes(source))
        else:
            copy_into(into, source)
    finally:
        managed_release(source)


cdef bint is_fetched_as_it_is(const Managed* into, const Managed* source) noexcept:
    """Whether a device's memory has the very bytes that are wanted, so that they need no memory in between."""
    cdef const DLTensor* tensor = &source.abi.dl_tensor
    # Managed memory is left out, because it may be the memory of ``into`` itself.
    return tensor.device.device_type in (kDLCUDA, kDLROCM) and (
        source.row == into.row and not source.marks | into.marks and not is_bool(source) and managed_count(source))


cdef Managed* for_out(Managed* managed, Target target, const Request* request) except NULL:
    """Memory that the CPU can read, in the type that ``narrow`` gives; managed is stolen."""
    cdef Request asked = request_to_read(request)
    cdef Decision decision
    cdef int row
    if not is_host(managed.abi.dl_tensor.device.device_type):
        managed = placed(managed, TENSORS, &asked, None, &decision)
    try:
        row = row_into(managed, target, request)
    except BaseException:
        managed_release(managed)
        raise
    return managed if row == managed.row else replaced(managed, COPY | NARROW)


cdef Request request_to_read(const Request* request) noexcept:
    """What is asked of memory that only has to be read."""
    cdef Request asked = request[0]
    asked.copy, asked.readonly, asked.c_order = COPY_IF_NEEDED, READONLY_SHARE, False
    return asked


cdef int row_into(const Managed* source, Target target, const Request* request) except -2:
    return row_for(source, target, request) if request.narrow else source.row


cdef tuple steps_into(const Managed* into, const Managed* source, int row, const Request* request):
    cdef Request asked = request_to_read(request)
    cdef Decision decision
    cdef tuple steps = ()
    if is_fetched_as_it_is(into, source):
        decision.steps = FETCH
        return step_texts(source, TENSORS, &asked, &decision, None)
    if not is_host(source.abi.dl_tensor.device.device_type):
        make_plan(source, TENSORS, &asked, None, &decision)
        steps = step_texts(source, TENSORS, &asked, &decision, None)
    if row != source.row:
        decision.steps = COPY
        steps += step_texts(source, TENSORS, &asked, &decision, None)
    return *steps, "copy into out (dlbridge)"


# ---- what out may be -------------------------------------------------------------------------------------------------

cdef int check_out_type(object out, Target target, const Request* request) except -1:
    if not target.array_types:
        raise refusal(UnsupportedError, "convert", "out", f"of type {shown(type(out), full_name)}",
                      f"is not taken by {target.name}", "leave out out=")
    if not isinstance(out, target.array_types):
        raise refusal(UnsupportedError, "convert", "out", f"of type {shown(type(out), full_name)}",
                      f"is no array of {target.name}", f"pass an array of {target.name}")
    if request.copy == COPY_NEVER:
        raise refusal(CopyRequiredError, "convert", "copy", False, "but out takes a copy", "pass copy=None")


cdef Managed* acquire_out(object out, Target target, const Request* request) except NULL:
    cdef Request asked = NOTHING_ASKED
    cdef Managed* into
    check_out_type(out, target, request)
    asked.copy, asked.readonly = COPY_NEVER, READONLY_SHARE
    try:
        into = acquire_by(offers_for_type(type(out)), out, &asked)
    except DLBridgeError as error:
        if isinstance(error, CopyRequiredError):
            raise not_writable(ConversionError, out, "its library gives a copy of its memory alone", ANOTHER) from error
        hint = "pass x.detach()" if error.field == "requires_grad" else ANOTHER
        raise not_writable(type(error), out, error.reason, hint) from error
    try:
        check_out(into, out, target, request)
    except BaseException:
        managed_release(into)
        raise
    managed_own_storage(into)
    return into


cdef object not_writable(object error, object out, object wrong, str hint):
    return refusal(error, "convert", "out", f"of type {shown(type(out), full_name)}", f"cannot take a copy: {wrong}",
                   hint)


cdef int check_out(const Managed* into, object out, Target target, const Request* request) except -1:
    cdef const DLTensor* tensor = &into.abi.dl_tensor
    if not is_host(tensor.device.device_type):
        raise refusal(DeviceError, "convert", "out", f"on {device_name(tensor.device)}",
                      "is memory that dlbridge does not fill", f"leave out out=, and copy it with {target.name}")
    if request.has_device and not same_device(&request.device, &tensor.device):
        raise refusal(DeviceError, "convert", "out", f"on {device_name(tensor.device)}",
                      f"is not on {device_name(request.device)}", "leave out device=")
    if request.c_order and into.marks & (BYTE_STRIDES | STRIDED):
        raise refusal(ConversionError, "convert", "out", f"of strides {managed_strides(into)}",
                      'is not in C order, which order="C" asks for', "leave out order=, or pass one that is")
    if not target.supports & WRITABLE:
        raise not_writable(ConversionError, out, f"arrays of {target.name} do not change", WITHOUT)
    if target.facts.values is not None:
        raise not_writable(ConversionError, out, f"{target.name} {target.facts.values.text}", WITHOUT)
    if into.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY:
        raise not_writable(ConversionError, out, "it is read-only", ANOTHER)
    if into.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED or into.marks & (NEGATED | CONJUGATED):
        raise not_writable(ConversionError, out, "its elements are not in its memory as they are", ANOTHER)
    if managed_count(into) and (into.marks & REPEATED or has_overlap(
            tensor.ndim, tensor.shape, tensor.strides, managed_item_bytes(into) if into.marks & BYTE_STRIDES else 1)):
        raise not_writable(ConversionError, out, f"elements may share memory by the strides {managed_strides(into)}",
                           ANOTHER)


cdef int check_reach(const Managed* source, const Request* request) except -1:
    if request.has_device or is_host(source.abi.dl_tensor.device.device_type):
        return 0
    raise refusal(DeviceError, "convert", "src", f"on {device_name(source.abi.dl_tensor.device)}",
                  "is not on the host, where out is",
                  'pass device="cpu"' if has_streams(source.abi.dl_tensor.device.device_type) else FETCH_THERE)


cdef int check_fit(const Managed* source, const Managed* into) except -1:
    cdef bint padded = (source.abi.flags ^ into.abi.flags) & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
    name = dtype_name(source.abi.dl_tensor.dtype)
    if padded or get_row(source.row).subbyte and get_row(into.row).subbyte and (
            source.row != into.row or (source.marks | into.marks) & STRIDED):
        raise refusal(ConversionError, "convert", "out", f"of {dtype_name(into.abi.dl_tensor.dtype)}",
                      "has elements below a byte in another form than the source", "leave out out=")
    if source.row != into.row:
        raise refusal(ConversionError, "convert", "out", f"of {dtype_name(into.abi.dl_tensor.dtype)}",
                      f"is not of the source's dtype, {name}", f"pass an array of {name}")
    if managed_shape(source) != managed_shape(into):
        raise refusal(ConversionError, "convert", "out", f"of shape {managed_shape(into)}",
                      f"is not of the source's shape, {managed_shape(source)}",
                      f"pass an array of shape {managed_shape(source)}")
