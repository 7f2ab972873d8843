"""Device memory with a descriptor: its pages, made here or in another process, and their addresses in this one.

The driver counts who has the pages, across processes: each mapping, and each descriptor.
"""

from libc.stdint cimport int32_t, int64_t, intptr_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from dlbridge._core.abi cimport DLDevice, kDLCUDA
from dlbridge._core.atomic cimport exchange_pointer, load_pointer, replace_pointer
from dlbridge._core.block cimport python_runs
from dlbridge._core.devices cimport cuda
from dlbridge._core.devices.cuda cimport (
    MAX_DEVICES, OUT_OF_MEMORY, Calls, Driver, DriverFailure, Entered, MemoryAccess, MemoryKind, check, checked_ordinal,
    failed, find_driver, is_well,
)
from dlbridge._core.devices.releases cimport PyThreadState, give_up_gil, release_all, take_gil, unordered_so_far
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, device_name

from dlbridge._core.locks import call_in_child
from dlbridge.errors import DeviceError, refusal

cdef enum:
    PINNED = 1                  # CU_MEM_ALLOCATION_TYPE_PINNED
    POSIX_DESCRIPTOR = 1        # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    ON_DEVICE = 1               # CU_MEM_LOCATION_TYPE_DEVICE
    READ_AND_WRITE = 3          # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    SMALLEST = 0                # CU_MEM_ALLOC_GRANULARITY_MINIMUM
    MAPS_PAGES = 102            # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    GIVES_DESCRIPTORS = 103     # CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    UUID_BYTES = 16
    NOWHERE = -2


cdef Mapping mapping_on(str stage, const DLDevice* device, size_t nbytes) except *:
    cdef Mapping mapping
    cdef size_t granule = granule_of(device)
    if not granule:
        raise refusal(DeviceError, stage, "device", device_name(device[0]),
                      "has no memory that other processes can map", 'pass device="cpu"')
    mapping.driver, mapping.start = find_driver(device.device_type), NULL
    mapping.device_id, mapping.unordered = ordinal_of(mapping.driver, device), unordered_so_far()
    mapping.nbytes = (nbytes + granule - 1) // granule * granule
    return mapping


cdef size_t granule_of(const DLDevice* device) except? 0:
    cdef Driver* driver
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef int32_t device_id
    cdef size_t granule = 0
    if device.device_type != kDLCUDA:
        return 0
    driver = find_driver(kDLCUDA)
    cuda.check_device(device)
    device_id = ordinal_of(driver, device)
    if driver.has_pages:
        with nogil:
            if has(driver, device_id, MAPS_PAGES, &failure) and has(driver, device_id, GIVES_DESCRIPTORS, &failure):
                granule = smallest(driver, device_id, &failure)
        check(driver, &failure)
    return granule


cdef int32_t ordinal_of(Driver* driver, const DLDevice* device) except -1:
    return checked_ordinal(
        driver, cuda.current_device(driver) if device.device_id == ANY_DEVICE_ID else device.device_id)


cdef bint has(Driver* driver, int32_t device_id, int attribute, DriverFailure* failure) noexcept nogil:
    cdef Calls* calls = &driver.calls
    cdef int device = 0, value = 0
    return not failed(driver, &calls.device_get, calls.device_get(&device, device_id), failure) and not failed(
        driver, &calls.device_get_attribute, calls.device_get_attribute(&value, attribute, device), failure) and value


cdef size_t smallest(Driver* driver, int32_t device_id, DriverFailure* failure) noexcept nogil:
    cdef MemoryKind kind = kind_on(device_id)
    cdef size_t granule = 0
    failed(driver, &driver.calls.pages_granularity, driver.calls.pages_granularity(&granule, &kind, SMALLEST), failure)
    return granule


cdef MemoryKind kind_on(int32_t device_id) noexcept nogil:
    cdef MemoryKind kind
    memset(&kind, 0, sizeof(kind))
    kind.allocation, kind.handles = PINNED, POSIX_DESCRIPTOR
    kind.place.kind, kind.place.device_id = ON_DEVICE, device_id
    return kind


# ---- pages -----------------------------------------------------------------------------------------------------------

cdef int make_pages(Mapping* mapping, intptr_t* descriptor) except -1:
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    with nogil:
        unmap_waiting()
        make_and_map(mapping, descriptor, &failure)
        if failure.wanted and release_all():        # which may have freed enough
            failure = DriverFailure(0, 0, 0, 0, False)
            make_and_map(mapping, descriptor, &failure)
    check(mapping.driver, &failure)


cdef void make_and_map(Mapping* mapping, intptr_t* descriptor, DriverFailure* failure) noexcept nogil:
    cdef Calls* calls = &mapping.driver.calls
    cdef MemoryKind kind = kind_on(mapping.device_id)
    cdef uint64_t pages = 0
    cdef int exported = -1
    cdef Entered entered
    if cuda.enter(mapping.driver, mapping.device_id, &entered, failure) and cuda.relax(
            mapping.driver, &entered, failure):
        if not failed(mapping.driver, &calls.pages_create,
                      calls.pages_create(&pages, mapping.nbytes, &kind, 0), failure):
            if not failed(mapping.driver, &calls.pages_export,
                          calls.pages_export(&exported, pages, POSIX_DESCRIPTOR, 0), failure):
                descriptor[0] = exported
                map_and_let_go(mapping, pages, failure)
            else:
                calls.pages_release(pages)
        elif failure.error == OUT_OF_MEMORY:
            failure.wanted, failure.available = mapping.nbytes, cuda.free_bytes(mapping.driver)
    cuda.leave(mapping.driver, &entered, failure)


cdef int map_pages(Mapping* mapping, intptr_t descriptor) except -1:
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Calls* calls = &mapping.driver.calls
    cdef uint64_t pages = 0
    cdef Entered entered
    with nogil:
        if cuda.enter(mapping.driver, mapping.device_id, &entered, &failure) and cuda.relax(
                mapping.driver, &entered, &failure) and not failed(
                mapping.driver, &calls.pages_import,
                calls.pages_import(&pages, <void*> descriptor, POSIX_DESCRIPTOR), &failure):
            map_and_let_go(mapping, pages, &failure)
        cuda.leave(mapping.driver, &entered, &failure)
    check(mapping.driver, &failure)


cdef void map_and_let_go(Mapping* mapping, uint64_t pages, DriverFailure* failure) noexcept nogil:
    """Map pages, and let go of them: they stay as long as they are mapped, or have a descriptor."""
    cdef Driver* driver = mapping.driver
    cdef Calls* calls = &driver.calls
    cdef size_t nbytes = mapping.nbytes
    cdef void* start = NULL
    cdef MemoryAccess access
    access.place.kind, access.place.device_id, access.flags = ON_DEVICE, mapping.device_id, READ_AND_WRITE
    if not failed(driver, &calls.addresses_reserve,
                  calls.addresses_reserve(&start, nbytes, 0, NULL, 0), failure):
        if not failed(driver, &calls.map, calls.map(start, nbytes, 0, pages, 0), failure):
            if not failed(driver, &calls.set_access, calls.set_access(start, nbytes, &access, 1), failure):
                mapping.start = start
            else:
                calls.unmap(start, nbytes)
        if mapping.start == NULL:
            calls.addresses_free(start, nbytes)
    failed(driver, &calls.pages_release, calls.pages_release(pages), failure)


# ---- the end ---------------------------------------------------------------------------------------------------------

ctypedef struct WaitingMapping:
    WaitingMapping* next
    Mapping mapping

cdef void* waiting = NULL               # the WaitingMapping that was added last


def _forget_waiting():
    """In a forked child, they are the parent's."""
    exchange_pointer(&waiting, NULL)


call_in_child(_forget_waiting)


cdef void unmap_pages(const Mapping* mapping) noexcept nogil:
    cdef PyThreadState* gil
    if mapping.start == NULL or not python_runs():
        return
    gil = give_up_gil()
    unmap_waiting()
    unmap_or_wait(mapping)
    take_gil(gil)


cdef void unmap_or_wait(const Mapping* mapping) noexcept nogil:
    cdef WaitingMapping* entry
    if try_to_unmap(mapping):
        return
    entry = <WaitingMapping*> calloc(1, sizeof(WaitingMapping))
    if entry == NULL:
        return
    entry.mapping = mapping[0]
    while True:
        entry.next = <WaitingMapping*> load_pointer(&waiting)
        if replace_pointer(&waiting, entry.next, entry):
            return


cdef void unmap_waiting() noexcept nogil:
    cdef WaitingMapping* entry = <WaitingMapping*> exchange_pointer(&waiting, NULL)
    cdef WaitingMapping* following
    while entry != NULL:
        following = entry.next
        unmap_or_wait(&entry.mapping)
        free(entry)
        entry = following


cdef bint try_to_unmap(const Mapping* mapping) noexcept nogil:
    """Unmap once the work on the memory is done; False if that cannot be waited for.

    All streams that used it made dlbridge's own stream wait when they gave it back. If any release, of any memory, was
    unordered since this was made, the whole device is waited for, which is not possible while a graph is captured.
    """
    cdef Driver* driver = mapping.driver
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef bint done = False
    cdef Entered entered
    if cuda.enter(driver, mapping.device_id, &entered, &failure) and cuda.relax(driver, &entered, &failure):
        if mapping.unordered == unordered_so_far():
            done = cuda.has_finished(driver, cuda.own_stream(driver, mapping.device_id, &failure), &failure)
        else:
            done = not driver.calls.context_synchronize()
        if done:
            driver.calls.unmap(mapping.start, mapping.nbytes)
            driver.calls.addresses_free(mapping.start, mapping.nbytes)
    cuda.leave(driver, &entered, &failure)
    return done


# ---- what is in them -------------------------------------------------------------------------------------------------

cdef int64_t own_stream_of(Mapping* mapping) except -1:
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef void* stream
    with nogil:
        stream = cuda.own_stream(mapping.driver, mapping.device_id, &failure)
    check(mapping.driver, &failure)
    return <int64_t> <size_t> stream


cdef int fill_with_zeros(Mapping* mapping) except -1:
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Calls* calls = &mapping.driver.calls
    cdef void* stream = <void*> <size_t> own_stream_of(mapping)
    cdef Entered entered
    with nogil:
        if cuda.enter(mapping.driver, mapping.device_id, &entered, &failure):
            failed(mapping.driver, &calls.fill, calls.fill(mapping.start, 0, mapping.nbytes, stream), &failure)
        cuda.leave(mapping.driver, &entered, &failure)
    check(mapping.driver, &failure)


cdef int await_device(Mapping* mapping) except -1:
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Calls* calls = &mapping.driver.calls
    cdef Entered entered
    with nogil:
        if cuda.enter(mapping.driver, mapping.device_id, &entered, &failure) and cuda.relax(
                mapping.driver, &entered, &failure):
            failed(mapping.driver, &calls.context_synchronize, calls.context_synchronize(), &failure)
        cuda.leave(mapping.driver, &entered, &failure)
    check(mapping.driver, &failure)


# ---- which device, in all processes ----------------------------------------------------------------------------------

cdef bytes uuid_of(Mapping* mapping):
    """A device's UUID. Its number is another one in a process that sees other devices."""
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef char[UUID_BYTES] uuid
    with nogil:
        read_uuid(mapping.driver, mapping.device_id, uuid, &failure)
    check(mapping.driver, &failure)
    return uuid[:UUID_BYTES]


cdef int32_t device_of(bytes uuid) except -1:
    cdef Driver* driver = find_driver(kDLCUDA)
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef const char* wanted = uuid
    cdef int32_t device_id = NOWHERE
    if not driver.has_pages:
        return 0                # which is refused for that
    if len(uuid) == UUID_BYTES:
        with nogil:
            device_id = find_uuid(driver, wanted, &failure)
    check(driver, &failure)
    if device_id != NOWHERE:
        return device_id
    raise refusal(DeviceError, "receive", "device", f"with the UUID {uuid.hex()}", "is not seen by this process",
                  "start it with the same CUDA_VISIBLE_DEVICES, or send dlbridge.asdlpack(x, device=\"cpu\")")


cdef int32_t find_uuid(Driver* driver, const char* uuid, DriverFailure* failure) noexcept nogil:
    """The number of a device, or NOWHERE. It is a failure only if no device can be asked."""
    cdef char[UUID_BYTES] found
    cdef int count = 0
    cdef int32_t device_id
    if failed(driver, &driver.calls.device_get_count, driver.calls.device_get_count(&count), failure):
        return NOWHERE
    for device_id in range(min(count, MAX_DEVICES)):
        failure[0] = DriverFailure(0, 0, 0, 0, False)
        read_uuid(driver, device_id, found, failure)
        if is_well(failure) and not memcmp(found, uuid, UUID_BYTES):
            return device_id
    return NOWHERE


cdef void read_uuid(Driver* driver, int32_t device_id, char* uuid, DriverFailure* failure) noexcept nogil:
    cdef Calls* calls = &driver.calls
    cdef int device = 0
    if not failed(driver, &calls.device_get, calls.device_get(&device, device_id), failure):
        failed(driver, &calls.device_get_uuid, calls.device_get_uuid(uuid, device), failure)
