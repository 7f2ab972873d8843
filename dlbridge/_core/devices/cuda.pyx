"""The drivers of CUDA and ROCm: a row for each, with the calls that dlbridge makes, looked up when first needed.

dlbridge is linked with neither driver, and loads one only for device memory. The two differ in names and a few numbers.
"""

import sys

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t, uint64_t

from dlbridge._core.abi cimport (
    STREAM_LEGACY_DEFAULT, DLDevice, kDLCUDA, kDLCUDAHost, kDLCUDAManaged, kDLROCM, kDLROCMHost,
)
from dlbridge._core.atomic cimport exchange_pointer, load_flag, load_pointer, replace_pointer, store_flag
from dlbridge._core.system cimport open_library, symbol_of

from dlbridge.errors import DeviceError, DeviceMemoryError, refusal
from dlbridge._core.locks import ForkableLock

AFTER_FORK = "start the process by spawn or forkserver: a GPU does not work in one that was forked after its first use"
FREE_SOME = "let go of other arrays, and empty the caches of their libraries; or convert it in parts"

# These numbers are the same in both drivers.
cdef enum:
    EVENT_DISABLE_TIMING = 2
    MEMORY_IS_HOST = 1
    MEMORY_IS_DEVICE = 2
    ATTRIBUTE_CONTEXT = 1
    ATTRIBUTE_MEMORY_TYPE = 2
    ATTRIBUTE_IS_MANAGED = 8
    ATTRIBUTE_DEVICE_ORDINAL = 9
    ATTRIBUTE_RANGE_START = 11
    ATTRIBUTE_RANGE_SIZE = 12
    NOT_INITIALIZED = 3                 # …_NOT_INITIALIZED, in a child that was forked
    INVALID_HANDLE = 400                # …_INVALID_HANDLE
    NOT_READY = 600                     # …_NOT_READY
    NOT_PERMITTED = 800                 # …_NOT_PERMITTED, in a callback of the driver's
    INVALID_CONTEXT = 201               # …_INVALID_CONTEXT
    FIRST_OF_CAPTURES = 900             # …_STREAM_CAPTURE_UNSUPPORTED
    LAST_OF_CAPTURES = 908              # …_STREAM_CAPTURE_WRONG_THREAD
    CAPTURE_IMPLICIT = 906              # …_STREAM_CAPTURE_IMPLICIT
    NON_BLOCKING = 1                    # …_NON_BLOCKING
    CAPTURE_RELAXED = 2                 # …_STREAM_CAPTURE_MODE_RELAXED
    CONCURRENT_MANAGED_ACCESS = 89      # only of CUDA: ROCm's managed memory has no DLPack type
    RELEASE_THRESHOLD = 4               # of a pool
    KEPT_BYTES = 1 << 30

# The file names of each family's driver, by the name that users have for the family.
if sys.platform == "win32":
    LIBRARIES = {"cuda": ("nvcuda.dll",), "rocm": ("amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll")}
else:
    LIBRARIES = {"cuda": ("libcuda.so.1",), "rocm": ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")}
cdef Calls PATTERN              # never filled in: it gives the offsets of the fields

cdef inline size_t offset_in_calls(const void* field) noexcept:
    return <const char*> field - <const char*> &PATTERN


# For each field of Calls, by its offset: CUDA's symbol, and ROCm's symbol of the same signature.
cdef dict SYMBOLS = {
    offset_in_calls(&PATTERN.init): ("cuInit", "hipInit"),
    offset_in_calls(&PATTERN.device_get): ("cuDeviceGet", "hipDeviceGet"),
    offset_in_calls(&PATTERN.device_get_count): ("cuDeviceGetCount", "hipGetDeviceCount"),
    offset_in_calls(&PATTERN.device_get_attribute): ("cuDeviceGetAttribute", "hipDeviceGetAttribute"),
    offset_in_calls(&PATTERN.primary_context_retain): ("cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain"),
    offset_in_calls(&PATTERN.context_get_current): ("cuCtxGetCurrent", "hipCtxGetCurrent"),
    offset_in_calls(&PATTERN.context_get_device): ("cuCtxGetDevice", "hipGetDevice"),
    offset_in_calls(&PATTERN.context_push): ("cuCtxPushCurrent_v2", "hipCtxPushCurrent"),
    offset_in_calls(&PATTERN.context_pop): ("cuCtxPopCurrent_v2", "hipCtxPopCurrent"),
    offset_in_calls(&PATTERN.pointer_get_attributes): ("cuPointerGetAttributes", "hipDrvPointerGetAttributes"),
    offset_in_calls(&PATTERN.event_create): ("cuEventCreate", "hipEventCreateWithFlags"),
    offset_in_calls(&PATTERN.event_destroy): ("cuEventDestroy_v2", "hipEventDestroy"),
    offset_in_calls(&PATTERN.event_record): ("cuEventRecord", "hipEventRecord"),
    offset_in_calls(&PATTERN.event_query): ("cuEventQuery", "hipEventQuery"),
    offset_in_calls(&PATTERN.event_synchronize): ("cuEventSynchronize", "hipEventSynchronize"),
    offset_in_calls(&PATTERN.stream_wait_event): ("cuStreamWaitEvent", "hipStreamWaitEvent"),
    offset_in_calls(&PATTERN.stream_is_capturing): ("cuStreamIsCapturing", "hipStreamIsCapturing"),
    offset_in_calls(&PATTERN.stream_get_context): ("cuStreamGetCtx", "hipStreamGetDevice"),
    offset_in_calls(&PATTERN.stream_create): ("cuStreamCreate", "hipStreamCreateWithFlags"),
    offset_in_calls(&PATTERN.stream_synchronize): ("cuStreamSynchronize", "hipStreamSynchronize"),
    offset_in_calls(&PATTERN.exchange_capture_mode): (
        "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"),
    offset_in_calls(&PATTERN.copy_to_host): ("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"),
    offset_in_calls(&PATTERN.copy_to_device): ("cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"),
    offset_in_calls(&PATTERN.copy_on_device): ("cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"),
    offset_in_calls(&PATTERN.device_get_pool): ("cuDeviceGetMemPool", "hipDeviceGetMemPool"),
    offset_in_calls(&PATTERN.pool_get_attribute): ("cuMemPoolGetAttribute", "hipMemPoolGetAttribute"),
    offset_in_calls(&PATTERN.pool_set_attribute): ("cuMemPoolSetAttribute", "hipMemPoolSetAttribute"),
    offset_in_calls(&PATTERN.memory_get_info): ("cuMemGetInfo_v2", "hipMemGetInfo"),
    offset_in_calls(&PATTERN.allocate): ("cuMemAllocAsync", "hipMallocAsync"),
    offset_in_calls(&PATTERN.deallocate): ("cuMemFreeAsync", "hipFreeAsync"),
    offset_in_calls(&PATTERN.allocate_pinned): ("cuMemHostAlloc", "hipHostMalloc"),
    offset_in_calls(&PATTERN.free_pinned): ("cuMemFreeHost", "hipHostFree"),
    offset_in_calls(&PATTERN.error_get_name): ("cuGetErrorName", "hipDrvGetErrorName"),
    offset_in_calls(&PATTERN.error_get_string): ("cuGetErrorString", "hipDrvGetErrorString"),
}

# What older drivers of CUDA lack. Versions of ROCm differ in how they take a descriptor, so theirs is not used.
cdef dict OPTIONAL = {
    offset_in_calls(&PATTERN.device_get_uuid): "cuDeviceGetUuid_v2",
    offset_in_calls(&PATTERN.pages_granularity): "cuMemGetAllocationGranularity",
    offset_in_calls(&PATTERN.pages_create): "cuMemCreate",
    offset_in_calls(&PATTERN.pages_export): "cuMemExportToShareableHandle",
    offset_in_calls(&PATTERN.pages_import): "cuMemImportFromShareableHandle",
    offset_in_calls(&PATTERN.pages_release): "cuMemRelease",
    offset_in_calls(&PATTERN.addresses_reserve): "cuMemAddressReserve",
    offset_in_calls(&PATTERN.addresses_free): "cuMemAddressFree",
    offset_in_calls(&PATTERN.map): "cuMemMap",
    offset_in_calls(&PATTERN.unmap): "cuMemUnmap",
    offset_in_calls(&PATTERN.set_access): "cuMemSetAccess",
    offset_in_calls(&PATTERN.fill): "cuMemsetD8Async",
    offset_in_calls(&PATTERN.context_synchronize): "cuCtxSynchronize",
}

cdef object loading = ForkableLock()
cdef Driver[FAMILIES] drivers
drivers[<int> CUDA].family = CUDA
drivers[<int> CUDA].device_type = kDLCUDA
drivers[<int> CUDA].host_type = kDLCUDAHost
drivers[<int> CUDA].managed_type = kDLCUDAManaged
drivers[<int> ROCM].family = ROCM
drivers[<int> ROCM].device_type = kDLROCM
drivers[<int> ROCM].host_type = kDLROCMHost
drivers[<int> ROCM].managed_type = kDLROCM


# ---- loading -------------------------------------------------------------------------------------------------------

cdef Driver* find_driver(int32_t device_type) except NULL:
    """The driver of a device type, ready for calls."""
    cdef Driver* driver = &drivers[<int> ROCM if device_type in (kDLROCM, kDLROCMHost) else <int> CUDA]
    if not load_flag(&driver.loaded):
        lock = loading.lock         # not used in a `with` statement, as in target.pyx
        lock.acquire()
        try:
            if not driver.loaded:
                load_driver(driver)
        finally:
            lock.release()
    return driver


def require_driver(int32_t device_type):
    """Raise DeviceError where the driver of a device type is not there, or does not start."""
    find_driver(device_type)


cdef Driver* any_driver() except NULL:
    """The driver that is on this machine, for an interface that does not name one."""
    cdef Driver* driver = NULL
    try:
        driver = find_driver(kDLCUDA)
    except DeviceError:
        try:
            driver = find_driver(kDLROCM)
        except DeviceError:
            # The error of a driver that is there but does not start says more than that of a missing one.
            if load_flag(&drivers[<int> ROCM].found) and not load_flag(&drivers[<int> CUDA].found):
                raise
        if driver == NULL:
            raise
    return driver


cdef int check_device(const DLDevice* device) except -1:
    cdef Driver* driver
    cdef int count = 0
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    try:
        driver = find_driver(device.device_type)
    except DeviceError:
        return 0                # where the driver is needed, its absence is an error
    with nogil:
        failed(driver, &driver.calls.device_get_count, driver.calls.device_get_count(&count), &failure)
    check(driver, &failure)
    if device.device_id >= count:
        name = family_name(driver)
        there = ", ".join([f"{name}:{index}" for index in range(count)])
        raise refusal(DeviceError, "convert", "device", f"{name}:{device.device_id}",
                      f"is not there: this machine has {there}", f'pass device="{name}:0"')


def memory_of_device(int32_t device_type, int32_t device_id):
    """The bytes that are free on a device, as its driver says."""
    cdef Driver* driver = find_driver(device_type)
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Entered entered
    cdef size_t available = 0
    device_id = checked_ordinal(driver, device_id)
    with nogil:
        if enter(driver, device_id, &entered, &failure):
            available = free_bytes(driver)
            leave(driver, &entered, &failure)
    return available


cdef size_t free_bytes(Driver* driver) noexcept nogil:
    """The bytes that are free on the device of the current context; 0 where the driver does not say."""
    cdef size_t available = 0, total = 0
    return 0 if driver.calls.memory_get_info(&available, &total) else available


cdef int load_driver(Driver* driver) except -1:
    cdef void* library = NULL
    cdef void** call
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    family = family_name(driver)
    for name in LIBRARIES[family]:
        library = open_library(name.encode())
        if library != NULL:
            break
    if library == NULL:
        raise refusal(DeviceError, family, "driver", LIBRARIES[family][0], "is not on this machine",
                      "install the GPU's driver, or pass host memory")
    store_flag(&driver.found, True)
    for offset, names in SYMBOLS.items():
        call = <void**> (<char*> &driver.calls + <size_t> offset)
        call[0] = symbol_of(library, names[<int> driver.family].encode())
        if call[0] == NULL:
            raise refusal(DeviceError, family, "driver", LIBRARIES[family][0], f"has no {names[<int> driver.family]}",
                          "update the driver")
    driver.has_pages = driver.family == CUDA
    for offset, name in OPTIONAL.items() if driver.has_pages else ():
        call = <void**> (<char*> &driver.calls + <size_t> offset)
        call[0] = symbol_of(library, name.encode())
        driver.has_pages &= call[0] != NULL
    failure.call = offset_of(driver, &driver.calls.init)
    with nogil:
        failure.error = driver.calls.init(0)
    check(driver, &failure)
    store_flag(&driver.loaded, True)        # last: once it is set, other threads read the calls without the lock


cdef str family_name(const Driver* driver):
    return "rocm" if driver.family == ROCM else "cuda"


# ---- errors --------------------------------------------------------------------------------------------------------

cdef inline size_t offset_of(const Driver* driver, const void* call) noexcept nogil:
    return <const char*> call - <const char*> &driver.calls


cdef bint failed(const Driver* driver, const void* call, int error, DriverFailure* failure) noexcept nogil:
    """Note a call's error. True if there is one."""
    if error and not failure.error:
        failure.error = error
        failure.call = offset_of(driver, call)
    return error != 0


cdef object driver_error(Driver* driver, const DriverFailure* failure):
    """An error with the driver's own name and text for it, or an error that says that a graph is being captured."""
    if not failure.error:
        return refusal(DeviceError, family_name(driver), "stream", "of this hand-over",
                       "is captured into a graph, so it can neither be waited for nor wait for another one",
                       "hand over on the captured stream alone, or pass stream=-1 and order them yourself")
    cdef const char* name = NULL
    cdef const char* text = NULL
    driver.calls.error_get_name(failure.error, &name)
    driver.calls.error_get_string(failure.error, &text)
    shown = (<bytes> name).decode("ascii", "replace") if name != NULL else f"error {failure.error}"
    words = (<bytes> text).decode("ascii", "replace") if text != NULL else "the driver has no text for it"
    call = OPTIONAL[failure.call] if failure.call in OPTIONAL else SYMBOLS[failure.call][<int> driver.family]
    if failure.wanted and failure.error == OUT_OF_MEMORY:
        return refusal(DeviceMemoryError, family_name(driver), call, shown,
                       f"{failure.wanted} bytes were wanted, and {failure.available} are free", FREE_SOME)
    return refusal(DeviceError, family_name(driver), call, shown, words,
                   AFTER_FORK if failure.error == NOT_INITIALIZED else
                   "look for the first error of the GPU before this one: it may have come late")


# ---- contexts ------------------------------------------------------------------------------------------------------

cdef bint enter(Driver* driver, int32_t device_id, Entered* entered, DriverFailure* failure) noexcept nogil:
    """Make a device's primary context the current one, unless it is.

    leave() restores the context that was current. Where this failed, there is nothing to restore.
    """
    return enter_context(driver, primary_context(driver, device_id, failure), entered, failure)


cdef bint enter_context(Driver* driver, void* context, Entered* entered, DriverFailure* failure) noexcept nogil:
    cdef Calls* calls = &driver.calls
    entered.pushed = False
    entered.before = NULL
    entered.capture_mode = CAPTURE_RELAXED
    if context == NULL or failed(
            driver, &calls.context_get_current, calls.context_get_current(&entered.before), failure):
        return False
    if entered.before != context:
        entered.pushed = not failed(driver, &calls.context_push, calls.context_push(context), failure)
        return entered.pushed
    return True


cdef void* primary_context(Driver* driver, int32_t device_id, DriverFailure* failure) noexcept nogil:
    """A device's primary context, which stays retained for good. Two threads can retain it at a time without harm."""
    cdef int device = 0
    cdef void* context = NULL
    cdef Calls* calls = &driver.calls
    cdef void* kept = load_pointer(&driver.contexts[device_id])
    if kept != NULL:
        return kept
    if failed(driver, &calls.device_get, calls.device_get(&device, device_id), failure) or failed(
            driver, &calls.primary_context_retain, calls.primary_context_retain(&context, device), failure):
        return NULL
    replace_pointer(&driver.contexts[device_id], NULL, context)
    return context


cdef bint relax(Driver* driver, Entered* entered, DriverFailure* failure) noexcept nogil:
    """Let this thread wait, and allocate, while another thread captures a graph in the global mode, until leave().

    Without it such a call fails, and ends that capture.
    """
    return not failed(driver, &driver.calls.exchange_capture_mode,
                      driver.calls.exchange_capture_mode(&entered.capture_mode), failure)


cdef void leave(Driver* driver, Entered* entered, DriverFailure* failure) noexcept nogil:
    cdef void* popped = NULL
    cdef Calls* calls = &driver.calls
    if entered.capture_mode != CAPTURE_RELAXED:
        relax(driver, entered, failure)
    if not entered.pushed or failed(driver, &calls.context_pop, calls.context_pop(&popped), failure):
        return
    if driver.family == ROCM and entered.before != NULL:
        # HIP's pop leaves the popped device the current one. Only a push makes another device current.
        if not failed(driver, &calls.context_push, calls.context_push(entered.before), failure):
            failed(driver, &calls.context_pop, calls.context_pop(&popped), failure)


cdef void* current_context(int32_t device_type) except? NULL:
    """The caller's current context, for restore_context()."""
    cdef Driver* driver = find_driver(device_type)
    cdef void* context = NULL
    with nogil:
        driver.calls.context_get_current(&context)
    return context


cdef int restore_context(int32_t device_type, void* context) except -1:
    """Make a context current again after foreign code, which may have popped it."""
    cdef Driver* driver = find_driver(device_type)
    cdef void* current = NULL
    with nogil:
        driver.calls.context_get_current(&current)
        if context != NULL and current != context:
            driver.calls.context_push(context)


# ---- where memory is -----------------------------------------------------------------------------------------------

cdef int locate(Driver* driver, void* pointer, Location* out) except -1:
    """Ask the driver what a pointer points to. That needs no context, and makes none."""
    cdef int[6] attributes = [
        ATTRIBUTE_MEMORY_TYPE, ATTRIBUTE_IS_MANAGED, ATTRIBUTE_DEVICE_ORDINAL, ATTRIBUTE_CONTEXT,
        ATTRIBUTE_RANGE_START, ATTRIBUTE_RANGE_SIZE]
    cdef void* values[6]
    cdef void* context = NULL
    cdef unsigned int memory_type = 0, managed = 0
    cdef int ordinal = 0, error
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Calls* calls = &driver.calls
    out.start = out.nbytes = 0
    values[0], values[1], values[2], values[3] = &memory_type, &managed, &ordinal, &context
    values[4], values[5] = &out.start, &out.nbytes
    with nogil:
        # ROCm's contexts are its devices, and not every version of ROCm has the attributes from the fourth on.
        error = calls.pointer_get_attributes(3 if driver.family == ROCM else 6, attributes, values, pointer)
    failed(driver, &calls.pointer_get_attributes, error, &failure)
    check(driver, &failure)
    # The attribute is a bool, so the driver writes only the low byte.
    managed &= 0xFF
    if memory_type != MEMORY_IS_HOST and memory_type != MEMORY_IS_DEVICE and not managed:
        raise refusal(DeviceError, family_name(driver), "pointer", f"{<size_t> pointer:#x}",
                      "is no memory that the driver knows", "pass pinned, managed or device memory")
    out.device_id = checked_ordinal(driver, ordinal)
    out.concurrent = False
    out.device_type = driver.host_type if memory_type == MEMORY_IS_HOST else driver.device_type
    if managed and driver.managed_type != driver.device_type:
        out.device_type = driver.managed_type
        out.concurrent = reads_managed(driver, ordinal)
    return check_context(driver, pointer, context, ordinal)


cdef bint is_pageable(Driver* driver, const void* pointer) noexcept nogil:
    """Whether memory is the host's, and the driver does not know it: it is neither pinned nor managed."""
    cdef int attribute = ATTRIBUTE_MEMORY_TYPE
    cdef unsigned int memory_type = 0
    cdef void* value = &memory_type
    return not driver.calls.pointer_get_attributes(1, &attribute, &value, <void*> pointer) and not memory_type


cdef int32_t checked_ordinal(Driver* driver, int32_t device_id) except -1:
    """A device's number, if it is below MAX_DEVICES, for which the tables have room."""
    if not 0 <= device_id < MAX_DEVICES:
        raise refusal(DeviceError, family_name(driver), "device_id", device_id, f"is outside 0..{MAX_DEVICES - 1}",
                      "look at what the producer says of its device")
    return device_id


cdef bint reads_managed(Driver* driver, int ordinal) except -1:
    cdef int device = 0, value = 0
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Calls* calls = &driver.calls
    with nogil:
        if not failed(driver, &calls.device_get, calls.device_get(&device, ordinal), &failure):
            failed(driver, &calls.device_get_attribute,
                   calls.device_get_attribute(&value, CONCURRENT_MANAGED_ACCESS, device), &failure)
    check(driver, &failure)
    return value != 0


cdef int check_context(Driver* driver, void* pointer, void* context, int ordinal) except -1:
    """Refuse memory of another context than the primary one.

    Streams and events belong to a context, and the libraries share the primary one.
    """
    cdef Entered entered
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    if context == NULL or context == load_pointer(&driver.contexts[ordinal]):
        return 0                # memory of a pool has no context: it belongs to the device
    with nogil:
        enter(driver, ordinal, &entered, &failure)
        leave(driver, &entered, &failure)
    check(driver, &failure)
    if context != load_pointer(&driver.contexts[ordinal]):
        raise refusal(DeviceError, family_name(driver), "context", f"{<size_t> context:#x}",
                      f"of {<size_t> pointer:#x} is not the device's primary one, which the other libraries use",
                      "import pycuda.autoprimaryctx in place of pycuda.autoinit")


# ---- streams -------------------------------------------------------------------------------------------------------

cdef inline void* handle_of(const Driver* driver, int64_t stream) noexcept nogil:
    """The driver's handle of a stream that the array API standard numbers. CUDA takes 1 and 2 as they are."""
    if driver.family == ROCM and stream == STREAM_LEGACY_DEFAULT:
        return NULL
    return <void*> <ptrdiff_t> stream


cdef void order_streams(
    Driver* driver, int32_t device_id, int64_t first, int64_t then, DriverFailure* failure,
) noexcept nogil:
    """Let a stream wait on the device for the work that another stream has been given so far. The host does not wait.

    It fails while one of the streams is captured. The event can be used again at once, because a wait is only for the
    record before it.
    """
    cdef Entered entered
    if enter(driver, device_id, &entered, failure) and not (
            is_capturing(driver, first, failure) or is_capturing(driver, then, failure)):
        order_by_event(driver, device_id, handle_of(driver, first), handle_of(driver, then), failure)
    leave(driver, &entered, failure)


cdef void order_by_event(
    Driver* driver, int32_t device_id, void* first, void* then, DriverFailure* failure,
) noexcept nogil:
    cdef Calls* calls = &driver.calls
    cdef void* event = exchange_pointer(&driver.events[device_id], NULL)
    cdef int error
    if event == NULL and failed(
            driver, &calls.event_create, calls.event_create(&event, EVENT_DISABLE_TIMING), failure):
        return
    error = calls.event_record(event, first)
    if error == INVALID_HANDLE:
        order_across_devices(driver, first, then, failure)
    elif not failed(driver, &calls.event_record, error, failure):
        failed(driver, &calls.stream_wait_event, calls.stream_wait_event(then, event, 0), failure)
    if is_well(failure):
        event = exchange_pointer(&driver.events[device_id], event)
    # One event is kept for each device. Another thread may have put its event back first, and an event may be broken if
    # a call for it failed.
    if event != NULL:
        failed(driver, &calls.event_destroy, calls.event_destroy(event), failure)


cdef void order_across_devices(Driver* driver, void* first, void* then, DriverFailure* failure) noexcept nogil:
    """Let a stream of the current device wait for one of another device, where the event has to be made."""
    cdef Calls* calls = &driver.calls
    cdef void* event = NULL
    cdef void* context = context_of_stream(driver, first, failure)
    cdef Entered entered
    if context == NULL:
        failed(driver, &calls.event_record, INVALID_HANDLE, failure)
        return
    if not enter_context(driver, context, &entered, failure):
        return
    if not failed(driver, &calls.event_create, calls.event_create(&event, EVENT_DISABLE_TIMING), failure):
        failed(driver, &calls.event_record, calls.event_record(event, first), failure)
    leave(driver, &entered, failure)
    if is_well(failure):
        failed(driver, &calls.stream_wait_event, calls.stream_wait_event(then, event, 0), failure)
    if event != NULL:
        failed(driver, &calls.event_destroy, calls.event_destroy(event), failure)


cdef void* context_of_stream(Driver* driver, void* stream, DriverFailure* failure) noexcept nogil:
    cdef Calls* calls = &driver.calls
    cdef void* found = NULL
    cdef ptrdiff_t device_id
    if failed(driver, &calls.stream_get_context, calls.stream_get_context(stream, &found), failure):
        return NULL
    device_id = <ptrdiff_t> found
    if driver.family == ROCM:
        return primary_context(driver, <int32_t> device_id, failure) if 0 <= device_id < MAX_DEVICES else NULL
    return found


cdef void order_after_event(
    Driver* driver, int32_t device_id, void* event, int64_t then, DriverFailure* failure,
) noexcept nogil:
    """Let a stream wait for a foreign event, on the device."""
    cdef Entered entered
    if enter(driver, device_id, &entered, failure) and not is_capturing(driver, then, failure):
        failed(driver, &driver.calls.stream_wait_event,
               driver.calls.stream_wait_event(handle_of(driver, then), event, 0), failure)
    leave(driver, &entered, failure)


cdef void* mark_stream(Driver* driver, int32_t device_id, int64_t stream, DriverFailure* failure) noexcept nogil:
    """Make an event, and record it on a stream. It fails while the stream is captured."""
    cdef void* event = NULL
    cdef void* handle = handle_of(driver, stream)
    cdef void* context
    cdef Entered entered
    if not enter(driver, device_id, &entered, failure):
        return NULL
    if not is_capturing(driver, stream, failure):
        event = recorded_event(driver, handle, failure)
    leave(driver, &entered, failure)
    if failure.error == INVALID_HANDLE:         # a stream of another device, where the event has to be made
        failure.error = 0
        context = context_of_stream(driver, handle, failure)
        if context != NULL and enter_context(driver, context, &entered, failure):
            event = recorded_event(driver, handle, failure)
            leave(driver, &entered, failure)
    return event


cdef void* recorded_event(Driver* driver, void* stream, DriverFailure* failure) noexcept nogil:
    cdef Calls* calls = &driver.calls
    cdef void* event = NULL
    if failed(driver, &calls.event_create, calls.event_create(&event, EVENT_DISABLE_TIMING), failure):
        return NULL
    if failed(driver, &calls.event_record, calls.event_record(event, stream), failure):
        calls.event_destroy(event)
        return NULL
    return event


cdef bint has_happened(Driver* driver, int32_t device_id, void* event, bint wait) noexcept nogil:
    """Whether an event has happened, which this thread waits for if it is told to. Then the event is destroyed.

    It is also True if the device does no work any more: after a failed kernel, or a reset.
    """
    cdef Calls* calls = &driver.calls
    cdef Entered entered
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef int error
    if enter(driver, device_id, &entered, &failure) and relax(driver, &entered, &failure):
        error = calls.event_synchronize(event) if wait else calls.event_query(event)
        if not may_go_on(error):
            calls.event_destroy(event)
    else:
        error = failure.error
    leave(driver, &entered, &failure)
    return not may_go_on(error)


cdef bint may_go_on(int error) noexcept nogil:
    """Whether a stream may still be at work, by the answer to a question about its event."""
    return error in (NOT_READY, INVALID_CONTEXT, NOT_PERMITTED) or FIRST_OF_CAPTURES <= error <= LAST_OF_CAPTURES


cdef bint is_capturing(Driver* driver, int64_t stream, DriverFailure* failure) noexcept nogil:
    """Whether a stream is being captured into a graph, or cannot be asked. Either is noted as a failure."""
    cdef int status = 0
    cdef int error = driver.calls.stream_is_capturing(handle_of(driver, stream), &status)
    if error == CAPTURE_IMPLICIT:
        status, error = 1, 0    # the error for the legacy default stream while another stream is captured
    failure.capturing |= status != 0
    return failed(driver, &driver.calls.stream_is_capturing, error, failure) or status != 0


cdef bint has_finished(Driver* driver, void* stream, DriverFailure* failure) noexcept nogil:
    """Wait for the work of a stream. False if that fails.

    The caller then gives back the memory that is copied. So where the stream cannot be waited for, an event is recorded
    on it and waited for.
    """
    cdef Calls* calls = &driver.calls
    cdef DriverFailure second = DriverFailure(0, 0, 0, 0, False)
    cdef void* event
    if not failed(driver, &calls.stream_synchronize, calls.stream_synchronize(stream), failure):
        return True
    event = recorded_event(driver, stream, &second)
    if event != NULL:
        calls.event_synchronize(event)
        calls.event_destroy(event)
    return False


cdef void wait_for_stream(Driver* driver, int32_t device_id, int64_t stream, DriverFailure* failure) noexcept nogil:
    """Block this thread until a stream has done the work that it was given."""
    cdef Entered entered
    if enter(driver, device_id, &entered, failure) and relax(driver, &entered, failure) and not is_capturing(
            driver, stream, failure):
        has_finished(driver, handle_of(driver, stream), failure)
    leave(driver, &entered, failure)


# ---- copies --------------------------------------------------------------------------------------------------------

cdef void move(
    Driver* driver, int32_t device_id, const CopyBytes* call, void* into, void* source, size_t nbytes, int64_t stream,
    bint waits, DriverFailure* failure,
) noexcept nogil:
    """Copy memory to, from or on a device, after the work that a stream was given.

    Without ``waits`` the copy may be in the queue when this returns.
    """
    cdef void* handle = handle_of(driver, stream)
    cdef Entered entered
    if enter(driver, device_id, &entered, failure) and relax(driver, &entered, failure) and not is_capturing(
            driver, stream, failure) and not failed(
            driver, call, call[0](into, source, nbytes, handle), failure) and waits:
        has_finished(driver, handle, failure)
    leave(driver, &entered, failure)


cdef void allocate(
    Driver* driver, int32_t device_id, void** memory, size_t nbytes, void* source, int64_t stream,
    DriverFailure* failure,
) noexcept nogil:
    """Allocate memory of a device's pool, and copy into it unless source is NULL, both in the order of a stream.

    The host does not wait. It fails while the stream is captured, because the memory would then belong to the graph,
    and could not be given back.
    """
    cdef Calls* calls = &driver.calls
    cdef void* handle = handle_of(driver, stream)
    cdef Entered entered
    if enter(driver, device_id, &entered, failure):
        keep_freed(driver, device_id)
        if relax(driver, &entered, failure) and not is_capturing(driver, stream, failure) and not failed(
                driver, &calls.allocate, calls.allocate(memory, nbytes, handle), failure):
            if source != NULL:
                failed(driver, &calls.copy_on_device, calls.copy_on_device(memory[0], source, nbytes, handle), failure)
        elif failure.error == OUT_OF_MEMORY:
            failure.wanted, failure.available = nbytes, free_bytes(driver)
    leave(driver, &entered, failure)


cdef int32_t current_device(Driver* driver) noexcept nogil:
    """The device of this thread's current context, or the first one."""
    cdef int device = 0
    return device if not driver.calls.context_get_device(&device) else 0


cdef void* own_stream(Driver* driver, int32_t device_id, DriverFailure* failure) noexcept nogil:
    """A device's stream for uploads. Of two threads that make it at a time, one leaves a stream that nobody uses."""
    cdef Calls* calls = &driver.calls
    cdef void* stream = NULL
    cdef Entered entered
    if load_pointer(&driver.streams[device_id]) == NULL and enter(driver, device_id, &entered, failure):
        if not failed(driver, &calls.stream_create, calls.stream_create(&stream, NON_BLOCKING), failure):
            replace_pointer(&driver.streams[device_id], NULL, stream)
        leave(driver, &entered, failure)
    return load_pointer(&driver.streams[device_id])


cdef void keep_freed(Driver* driver, int32_t device_id) noexcept nogil:
    """Let a device's pool keep some of the memory that is freed, for the next copies.

    By itself it gives everything back to the system whenever the program waits for the device, and maps it anew. What
    another library has set is not lowered. A failure is no error: copies are then slower.
    """
    cdef Calls* calls = &driver.calls
    cdef void* pool = NULL
    cdef int device = 0
    cdef uint64_t kept = 0
    if load_flag(&driver.keeps_freed[device_id]):
        return
    store_flag(&driver.keeps_freed[device_id], True)
    if calls.device_get(&device, device_id) or calls.device_get_pool(&pool, device) or calls.pool_get_attribute(
            pool, RELEASE_THRESHOLD, &kept) or kept >= KEPT_BYTES:
        return
    kept = KEPT_BYTES
    calls.pool_set_attribute(pool, RELEASE_THRESHOLD, &kept)


cdef void deallocate(
    Driver* driver, int32_t device_id, void* memory, int64_t stream, DriverFailure* failure,
) noexcept nogil:
    """Give memory back after the work that a stream was given.

    It fails while the stream is captured, because each run of the graph would then give the memory back.
    """
    cdef Entered entered
    if enter(driver, device_id, &entered, failure) and relax(driver, &entered, failure) and not is_capturing(
            driver, stream, failure):
        failed(driver, &driver.calls.deallocate, driver.calls.deallocate(memory, handle_of(driver, stream)), failure)
    leave(driver, &entered, failure)


cdef void* allocate_pinned(Driver* driver, int32_t device_id, size_t nbytes) noexcept nogil:
    cdef void* memory = NULL
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Entered entered
    if enter(driver, device_id, &entered, &failure) and relax(driver, &entered, &failure):
        if driver.calls.allocate_pinned(&memory, nbytes, PORTABLE):
            memory = NULL
    leave(driver, &entered, &failure)
    return memory


cdef void free_pinned(Driver* driver, int32_t device_id, void* memory) noexcept nogil:
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Entered entered
    if enter(driver, device_id, &entered, &failure) and relax(driver, &entered, &failure):
        driver.calls.free_pinned(memory)
    leave(driver, &entered, &failure)
