"""What prefetch() asks of memory (where it goes, whose it is, which addresses it has), and its uploads."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_CheckExact
from libc.stdint cimport int32_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport (
    Managed,
    managed_count,
    managed_data,
    managed_release,
    managed_seal,
    managed_share,
    managed_span,
)
from dlbridge._core.conversion cimport convert_to
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, has_streams, is_host
from dlbridge._core.facts cimport ANY_ORDER, ANY_STRIDES, WRITABLE
from dlbridge._core.layout cimport STRIDED, Span
from dlbridge._core.location cimport find_device
from dlbridge._core.place cimport COPY, IN_C_ORDER, NARROW, is_stageable, place, staged_in_pool
from dlbridge._core.plan cimport row_for
from dlbridge._core.request cimport (
    COPY_NEVER,
    KEYWORD_DEVICE,
    NOTHING_ASKED,
    READONLY_COPY,
    Request,
    parse_keyword,
    parse_request,
)
from dlbridge._core.route cimport Route, delivery_to
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport Tensor, new_tensor


def destination(to, device):
    """The target, and the GPU that memory is to go to, as a pair, or None.

    A device without a number is this thread's current one.
    """
    cdef Request request = NOTHING_ASKED
    cdef Route route = delivery_to(to, "numpy", &request)
    cdef int32_t device_type, number
    if device is not None:
        parse_keyword(&request, KEYWORD_DEVICE, device)
    route.target.load()
    device_type, number = request.device.device_type, request.device.device_id
    if not request.has_device or is_host(device_type) or not has_streams(device_type):
        return route.target, None
    if number == ANY_DEVICE_ID:
        number = device_operations().current_device(device_type)
    return route.target, (device_type, number)


def traits(Target target):
    """Whether a library has immutable arrays, and whether it copies device memory itself."""
    return not target.supports & WRITABLE, target.copies_own


def on_gpu(array):
    """Whether an array, or a capsule, has memory of a device with streams; False of what is refused."""
    cdef Request request = NOTHING_ASKED
    cdef DLDevice device
    cdef Managed* managed
    try:
        if PyCapsule_CheckExact(array):
            request.peek = True
            managed = acquire_by(offers_for_type(type(array)), array, &request)
            device = managed.abi.dl_tensor.device
            managed_release(managed)
        else:
            find_device(array, 0, &device)
    except Exception:
        return False            # the conversion raises it again, and says more
    return has_streams(device.device_type) and not is_host(device.device_type)


def upload(Tensor source, Target target, device, copy, narrow, list queued):
    """A Tensor over a copy on a device of memory of the host. ``narrow`` is the keyword of convert().

    If there is a list, a copy that is only queued comes into it, with what it reads: see await_uploads().
    """
    cdef Managed* block
    cdef Request request
    cdef int32_t steps
    cdef int row
    parse_request(&request, device, copy, None, "copy", False, narrow)
    row = row_for(source.managed, target, &request) if request.narrow else source.managed.row
    steps = COPY | NARROW if row != source.managed.row else 0
    if source.managed.marks & STRIDED and not target.supports & (ANY_STRIDES | ANY_ORDER):
        steps |= COPY | IN_C_ORDER          # on the device nobody may be there to do it
    if steps and request.copy != COPY_NEVER:
        block = NULL
        if is_stageable(source.managed, row, &request.device):
            block = staged_in_pool(source.managed, row, steps, &request.device)
        if block != NULL:
            return new_tensor(block, READONLY_COPY)
        source = new_tensor(place(managed_share(source.managed), steps, NULL), READONLY_COPY)
    request.queued = <PyObject*> queued if queued is not None else NULL
    return convert_to(source, "dlbridge", &request)


def seal(Tensor tensor):
    """Make a copy read-only that nobody else has, so that a library of immutable arrays shares it."""
    managed_seal(tensor.managed)
    return tensor


def addresses(Tensor tensor):
    """The first address that elements touch, and the one after the last; None of no elements."""
    cdef Span span
    if not managed_count(tensor.managed):
        return None
    span = managed_span(tensor.managed)
    begin = <size_t> managed_data(tensor.managed)
    return begin + span.low_bytes, begin + span.high_bytes
