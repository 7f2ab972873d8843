"""What prefetch() asks of memory (where it is, and where it goes), and its uploads."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_CheckExact
from libc.stdint cimport int32_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.conversion cimport deliver_out_of_line
from dlbridge._core.decision cimport Decision, is_for_host, is_immutable
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, has_streams, is_gpu, is_host
from dlbridge._core.place cimport shared_in_order
from dlbridge._core.plan cimport make_plan
from dlbridge._core.request cimport (
    COPY_IF_NEEDED, COPY_NEVER, COPY_UNLESS_CONSTANT, KEYWORD_DEVICE, NOTHING_ASKED, READONLY_SHARE, Request,
    parse_keyword, parse_request,
)
from dlbridge._core.route cimport Route, delivery_to, find_device, is_on, route_to
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.target cimport HOST, Target
from dlbridge._core.targets.registry cimport loaded_target
from dlbridge.tensor cimport Tensor


cdef class Destination:
    """Where prefetch() takes arrays: the target, and its device if one is asked for.

    ``gpu`` is a pair (type, number). If no number is asked for, it is that of the current GPU of the thread that makes
    the Destination.
    """

    cdef readonly Target target
    cdef readonly object gpu
    cdef readonly bint immutable        # whether the library's arrays never change
    cdef readonly bint copies_own       # whether it copies device memory itself
    cdef Target uploading               # if a GPU is asked for: the target, for uploads to the pool
    cdef Request request

    def __init__(self, to, device):
        cdef DLDevice* wanted = &self.request.device
        self.request = NOTHING_ASKED
        self.target = delivery_to(to, "numpy", &self.request).target
        if device is not None:
            parse_keyword(&self.request, KEYWORD_DEVICE, device)
        self.target.load()
        self.immutable, self.copies_own = is_immutable(self.target), self.target.copies_own
        if not self.request.has_device or not is_gpu(wanted.device_type):
            return
        if wanted.device_id == ANY_DEVICE_ID:
            wanted.device_id = device_operations().current_device(wanted.device_type)
        self.gpu = wanted.device_type, wanted.device_id
        self.uploading = self.target.with_uploads_of(loaded_target("dlbridge"))

    def is_asked(self):
        """Whether a device is asked for."""
        return self.request.has_device

    def takes_there(self, array):
        """Whether the target takes an array's memory as that of a device with streams; False if it is refused."""
        cdef Managed memory         # of which only the device is filled in and read
        cdef DLDevice* device = &memory.abi.dl_tensor.device
        if not find_place(array, device) or not has_streams(device.device_type):
            return False
        if is_host(device.device_type) and self.target.supports & HOST:
            return False
        return not is_for_host(&memory, self.target, &self.request)

    def has(self, array):
        """Whether an array is on the device that is asked for, as far as it says; True if it is refused."""
        try:
            return is_on(array, self.target.hosts, &self.request.device)
        except Exception:
            return True             # the conversion raises it again, and says more


cdef bint find_place(object array, DLDevice* out) except -1:
    """Find the device of an array, or a capsule, as far as its type says it; False if it is refused."""
    cdef Request request = NOTHING_ASKED
    cdef Managed* managed
    try:
        if PyCapsule_CheckExact(array):
            request.peek = True
            managed = acquire_by(offers_for_type(type(array)), array, &request)
            out[0] = managed.abi.dl_tensor.device
            managed_release(managed)
        else:
            find_device(array, 0, out)
    except Exception:
        return False            # the conversion raises it again, and says more
    return True


def on_gpu(Tensor tensor):
    """Whether a Tensor has memory of a device with streams."""
    return is_gpu(tensor.managed.abi.dl_tensor.device.device_type)


def tensor_of(array, device, copy, detach, order):
    """A Tensor over memory that is the caller's own, unless it is constant, or was asked for with copy=False.

    If a device is asked for, memory of the host is shared where it can be: it is copied to the device.
    """
    cdef Request request
    cdef Route route
    cdef Managed* managed
    cdef int32_t device_type
    parse_request(&request, device, copy, None, "share", detach, False, order)
    route = route_to(array, "dlbridge", &request)
    managed = acquire_by(route.offers, array, &request)
    device_type = managed.abi.dl_tensor.device.device_type
    if device is not None and not is_gpu(device_type):
        request.has_device = False
        request.copy = COPY_NEVER if copy is False else COPY_IF_NEEDED
    elif copy is None:
        request.copy = COPY_UNLESS_CONSTANT
    return deliver_out_of_line(managed, route.target, &request, array)


def upload_ahead(Tensor source, Destination destination, copy, narrow, order, list queued):
    """A Tensor over a copy, on the destination's device, of memory of the host. ``copy``, ``narrow`` and ``order`` are
    keywords of convert().

    With copy=False, the copy to the device is made all the same, but a change of the elements on the way is refused.

    If there is a list, a copy that is only queued comes into it, with what it reads: see await_uploads().
    """
    cdef Request request = destination.request
    cdef Decision decision
    request.narrow, request.c_order, request.readonly = narrow, order is not None, READONLY_SHARE
    if copy is False:
        request.copy, request.has_device = COPY_NEVER, False
        make_plan(source.managed, destination.uploading, &request, None, &decision)
        request.copy, request.has_device = COPY_IF_NEEDED, True
    request.queued = <PyObject*> queued if queued is not None else NULL
    return deliver_out_of_line(shared_in_order(source.managed), destination.uploading, &request, None)
