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
    MINIMUM = 0                 # CU_MEM_ALLOC_GRANULARITY_MINIMUM
    MAPS_PAGES = 102            # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    GIVES_DESCRIPTORS = 103     # CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    UUID_BYTES = 16
    NOWHERE = -2


cdef Mapping mapping_on(str stage, const DLDevice* device, size_t nbytes) except *:
    cdef Mapping mapping
    cdef size_t granule = granule_of(device)
    if not granule:
        raise refusal(DeviceError, stage, "device", device_name(device[0]),
                      "has no memory that other processes can map",
                      'send dlbridge.asdlpack(x, device="cpu")' if stage == "receive" else 'pass device="cpu"')
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
                granule = ask_granule(driver, device_id, &failure)
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


cdef size_t ask_granule(Driver* driver, int32_t device_id, DriverFailure* failure) noexcept nogil:
    cdef MemoryKind kind = kind_on(device_id)
    cdef size_t granule = 0
    failed(driver, &driver.calls.pages_granularity, driver.calls.pages_granularity(&granule, &kind, MINIMUM), failure)
    return granule


cdef MemoryKind kind_on(int32_t device_id) noexcept nogil:
    cdef MemoryKind kind
    memset(&kind, 0, sizeof(kind))
    kind.allocation, kind.handles = PINNED, POSIX_DESCRIPTOR
    kind.place.kind, kind.place.device_id = ON_DEVICE, device_id
    return kind


# ---- pages -----------------------------------------------------------------------------------------------------------

cdef int make_pages(Mapping* mapping, intptr_t* descriptor) except -1:
    return have_pages(mapping, descriptor, False)


cdef int map_pages(Mapping* mapping, intptr_t descriptor) except -1:
    return have_pages(mapping, &descriptor, True)


cdef int have_pages(Mapping* mapping, intptr_t* descriptor, bint received) except -1:
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    with nogil:
        unmap_waiting(NULL)
        try_to_have(mapping, descriptor, received, &failure)
        if failure.wanted and free_what_waits(mapping):
            failure = DriverFailure(0, 0, 0, 0, False)
            try_to_have(mapping, descriptor, received, &failure)
    check(mapping.driver, &failure)


cdef bint free_what_waits(const Mapping* mapping) noexcept nogil:
    """Wait for all that is not given back yet; whether that was anything."""
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef bint some = release_all()
    if load_pointer(&waiting) != NULL:
        finish(mapping, &failure)
        some = True
    return some


cdef void try_to_have(
    Mapping* mapping, intptr_t* descriptor, bint received, DriverFailure* failure,
) noexcept nogil:
    """Map the pages of a descriptor that was received, or new ones, which get one. On failure there is nothing."""
    cdef Calls* calls = &mapping.driver.calls
    cdef MemoryKind kind = kind_on(mapping.device_id)
    cdef uint64_t pages = 0
    cdef int exported = -1
    cdef Entered entered
    if cuda.enter(mapping.driver, mapping.device_id, &entered, failure) and cuda.relax(
            mapping.driver, &entered, failure):
        if received:
            failed(mapping.driver, &calls.pages_import,
                   calls.pages_import(&pages, <void*> descriptor[0], POSIX_DESCRIPTOR), failure)
        else:
            failed(mapping.driver, &calls.pages_create,
                   calls.pages_create(&pages, mapping.nbytes, &kind, 0), failure)
        if is_well(failure):
            map_there(mapping, pages, failure)
            if is_well(failure) and not received and not failed(
                    mapping.driver, &calls.pages_export,
                    calls.pages_export(&exported, pages, POSIX_DESCRIPTOR, 0), failure):
                descriptor[0] = exported
            # They stay as long as they are mapped, or have a descriptor.
            failed(mapping.driver, &calls.pages_release, calls.pages_release(pages), failure)
        if failure.error == OUT_OF_MEMORY:
            failure.wanted, failure.available = mapping.nbytes, cuda.free_bytes(mapping.driver)
    cuda.leave(mapping.driver, &entered, failure)


cdef void map_there(Mapping* mapping, uint64_t pages, DriverFailure* failure) noexcept nogil:
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
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef PyThreadState* gil
    if mapping.start == NULL or not python_runs():
        return
    gil = give_up_gil()
    unmap_waiting(NULL)
    if not try_to_unmap(mapping, is_unordered(mapping) and finish(mapping, &failure)):
        put_off(mapping)
    take_gil(gil)


cdef void put_off(const Mapping* mapping) noexcept nogil:
    cdef WaitingMapping* entry = <WaitingMapping*> calloc(1, sizeof(WaitingMapping))
    if entry == NULL:
        return
    entry.mapping = mapping[0]
    while True:
        entry.next = <WaitingMapping*> load_pointer(&waiting)
        if replace_pointer(&waiting, entry.next, entry):
            return


cdef void unmap_waiting(const Mapping* finished) noexcept nogil:
    """Unmap what waits and is done with: for one all that is on the device of ``finished``, whose work is done."""
    cdef WaitingMapping* entry = <WaitingMapping*> exchange_pointer(&waiting, NULL)
    cdef WaitingMapping* following
    while entry != NULL:
        following = entry.next
        if not try_to_unmap(&entry.mapping, finished != NULL and finished.device_id == entry.mapping.device_id):
            put_off(&entry.mapping)
        free(entry)
        entry = following


cdef bint is_unordered(const Mapping* mapping) noexcept nogil:
    """Whether any memory was used or released without an order since this was made.

    If not, all streams that used this made dlbridge's own stream wait when they gave it back.
    """
    return mapping.unordered != unordered_so_far()


cdef bint try_to_unmap(const Mapping* mapping, bint is_done) noexcept nogil:
    """Unmap once the work on the memory is done; False if that is not known."""
    cdef Driver* driver = mapping.driver
    cdef DriverFailure failure = DriverFailure(0, 0, 0, 0, False)
    cdef Entered entered
    if not is_done and is_unordered(mapping):
        return False
    if cuda.enter(driver, mapping.device_id, &entered, &failure) and cuda.relax(driver, &entered, &failure):
        is_done = is_done or cuda.has_finished(
            driver, cuda.own_stream(driver, mapping.device_id, &failure), &failure)
        if is_done:
            driver.calls.unmap(mapping.start, mapping.nbytes)
            driver.calls.addresses_free(mapping.start, mapping.nbytes)
    else:
        is_done = False
    cuda.leave(driver, &entered, &failure)
    return is_done


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
    with nogil:
        finish(mapping, &failure)
    check(mapping.driver, &failure)


cdef bint finish(const Mapping* mapping, DriverFailure* failure) noexcept nogil:
    """Wait until a device has done all work, and unmap what waited for that. It ends the capture of a graph."""
    cdef Driver* driver = mapping.driver
    cdef Entered entered
    if cuda.enter(driver, mapping.device_id, &entered, failure) and cuda.relax(driver, &entered, failure):
        failed(driver, &driver.calls.context_synchronize, driver.calls.context_synchronize(), failure)
    cuda.leave(driver, &entered, failure)
    if not is_well(failure):
        return False
    unmap_waiting(mapping)
    return True


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
    cdef DriverFailure last = DriverFailure(0, 0, 0, 0, False)
    cdef char[UUID_BYTES] found
    cdef int count = 0
    cdef int32_t device_id
    cdef bint answered = False
    if failed(driver, &driver.calls.device_get_count, driver.calls.device_get_count(&count), failure):
        return NOWHERE
    for device_id in range(min(count, MAX_DEVICES)):
        last = DriverFailure(0, 0, 0, 0, False)
        read_uuid(driver, device_id, found, &last)
        if is_well(&last) and not memcmp(found, uuid, UUID_BYTES):
            return device_id
        answered |= is_well(&last)
    if not answered:
        failure[0] = last
    return NOWHERE


cdef void read_uuid(Driver* driver, int32_t device_id, char* uuid, DriverFailure* failure) noexcept nogil:
    cdef Calls* calls = &driver.calls
    cdef int device = 0
    if not failed(driver, &calls.device_get, calls.device_get(&device, device_id), failure):
        failed(driver, &calls.device_get_uuid, calls.device_get_uuid(uuid, device), failure)
