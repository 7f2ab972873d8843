"""Who can still write to read-only memory.

A flag says that this view may not write, and not that nobody does. Only whoever really keeps the memory can say whether
it is constant: bytes, an array of a library whose arrays are immutable, Arrow, a frozen array, a file. So the search
goes through blocks, Tensors, views and memoryviews to the last one that exports the memory.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport uint8_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, LEGACY_NAME, VERSIONED_NAME, DLManagedTensor,
    DLManagedTensorVersioned,
)
from dlbridge._core.block cimport (
    NOT_YET_OWNED, OWNS_BASE, OWNS_BUFFER, OWNS_LEGACY, OWNS_MEMORY, OWNS_OBJECT, OWNS_VERSIONED, OWNS_WRAPPED,
    PROTOCOL_ARROW, PROTOCOL_DLBRIDGE, Managed, Wrapped, block_of, exporter, kept_object, lent_deleter, managed_data,
    sole_deleter,
)
from dlbridge._core.capsule cimport OWNER_NAME
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams
from dlbridge._core.native.numpy cimport base_of
from dlbridge._core.numpy_api cimport ARRAY_OWNDATA, ARRAY_WRITEABLE, array_flags, import_array_api
from dlbridge._core.sources.buffer cimport HeldBuffer, has_buffer
from dlbridge._core.sources.dlpack cimport frees_constant
from dlbridge._core.sources.offer cimport Offer
from dlbridge._core.sources.registry cimport offers_for_type

import numpy as np

from dlbridge.errors import full_name


cdef extern from "Python.h":
    bint PyMemoryView_Check(object obj) noexcept
    Py_buffer* PyMemoryView_GET_BUFFER(object obj) noexcept


import_array_api()
cdef type ndarray = np.ndarray
cdef str PRODUCER = "its producer"      # the writer, where the owner does not show what is behind it
cdef enum:
    DEEPEST = 100               # memory that was wrapped more often is not traced


cdef str find_writer(const Managed* managed):
    return writer_of_block(managed, <size_t> managed_data(managed), 0)


cdef str writer_of_block(const Managed* block, size_t address, int depth):
    cdef uint8_t owns
    cdef void* owner
    cdef bint own = False       # memory of dlbridge's own, of a device
    while True:
        owns, owner = block.owns, block.abi.manager_ctx
        while owns == OWNS_WRAPPED:
            own = own or is_pooled(block, <const Wrapped*> owner)
            if kept_object(owner) != NULL and is_constant(<object> kept_object(owner), address):
                return None
            owns, owner = (<Wrapped*> owner).owns, (<Wrapped*> owner).owner
        if not block.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY:
            return "dlbridge.Tensor"
        # Arrow's arrays do not change, by its standard. Nobody else has a copy that dlbridge or a producer made.
        if own or owns == OWNS_MEMORY or block.protocol == PROTOCOL_ARROW or (
                block.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED):
            return None
        if owns == OWNS_VERSIONED and not is_own(<const DLManagedTensorVersioned*> owner):
            return writer_by_deleter(<const void*> (<const DLManagedTensorVersioned*> owner).deleter)
        if owns != OWNS_BASE and owns != OWNS_VERSIONED:
            break
        block = <const Managed*> owner
    if owns == OWNS_LEGACY:
        return writer_by_deleter(<const void*> (<const DLManagedTensor*> owner).deleter)
    if owns == OWNS_BUFFER and exporter(owner) != NULL:
        return writer_behind(<object> exporter(owner), address, depth)
    if owns == NOT_YET_OWNED or owns == OWNS_OBJECT and block.protocol != PROTOCOL_DLBRIDGE:
        return writer_behind(<object> <PyObject*> owner, address, depth)
    return PRODUCER             # or the owner that from_pointer() was given, which may keep any memory


cdef bint is_pooled(const Managed* block, const Wrapped* owner) except -1:
    return has_streams(block.abi.dl_tensor.device.device_type) and device_operations().is_pooled(owner)


cdef bint is_own(const DLManagedTensorVersioned* tensor) noexcept:
    """Whether it is a block of dlbridge's."""
    return tensor.deleter == lent_deleter or tensor.deleter == sole_deleter


cdef str writer_by_deleter(const void* deleter):
    return None if frees_constant(deleter) else PRODUCER


cdef str writer_behind(object owner, size_t address, int depth):
    """Who can write to memory that an object keeps, by name; None if nobody can."""
    cdef const Managed* block
    cdef object behind
    while isinstance(owner, ndarray):
        behind = base_of(owner)
        if behind is None:
            return None if array_flags(owner) & ARRAY_OWNDATA and not array_flags(owner) & ARRAY_WRITEABLE else (
                full_name(type(owner)))
        # A writable ndarray over constant memory is a tensor that TensorFlow exported; nobody else has that ndarray.
        if array_flags(owner) & ARRAY_WRITEABLE and (isinstance(behind, ndarray) or not is_constant(behind, address)):
            return full_name(type(owner))
        owner = behind
    if depth == DEEPEST:
        return "an owner that was not traced"
    if PyCapsule_CheckExact(owner):
        return writer_of_capsule(owner, address, depth + 1)
    block = block_of(owner)
    if block != NULL:
        return writer_of_block(block, address, depth + 1)
    if PyMemoryView_Check(owner):
        behind = exporter_of(owner)
    elif is_constant(owner, address):
        return None
    else:
        behind = what_it_exports(owner)
    if behind is not owner:
        return writer_behind(behind, address, depth + 1)
    kept = owner[0] if type(owner) is tuple else owner
    return full_name(type(kept)).removeprefix("builtins.")


cdef str writer_of_capsule(object capsule, size_t address, int depth):
    if PyCapsule_IsValid(capsule, OWNER_NAME):
        return writer_of_block(<const Managed*> PyCapsule_GetPointer(capsule, OWNER_NAME), address, depth)
    if PyCapsule_IsValid(capsule, LEGACY_NAME):
        return writer_by_deleter(
            <const void*> (<const DLManagedTensor*> PyCapsule_GetPointer(capsule, LEGACY_NAME)).deleter)
    if not PyCapsule_IsValid(capsule, VERSIONED_NAME):
        return PRODUCER         # a capsule of another library, such as NumPy's over foreign memory
    tensor = <const DLManagedTensorVersioned*> PyCapsule_GetPointer(capsule, VERSIONED_NAME)
    if is_own(tensor):
        return writer_of_block(<const Managed*> tensor, address, depth)
    return writer_by_deleter(<const void*> tensor.deleter)


cdef bint is_constant(object owner, size_t address) except -1:
    """Whether an object says that nobody writes to its memory, by what is known of its type."""
    cdef Offer offer
    cdef size_t begin
    if isinstance(owner, bytes):        # a subclass of bytes may export other memory
        begin = <size_t> PyBytes_AS_STRING(owner)
        return begin <= address <= begin + <size_t> PyBytes_GET_SIZE(owner)
    try:
        offer = offers_for_type(type(owner))[0]
    except Exception:
        return False            # a predicate of register_source() raised for this type, which the caller did not pass
    constant = offer.facts.constant
    if constant is None:
        return False
    return constant is True or constant(owner, address)


cdef object what_it_exports(object owner):
    """The object that an owner has its read-only memory from; the owner itself if its memory is its own or writable."""
    if type(owner) is tuple:        # an object, and its buffer or its interface, which may name any address
        return owner[1] if type(owner[1]) is HeldBuffer else owner
    if type(owner) is HeldBuffer:
        return (<HeldBuffer> owner).exporter if (<HeldBuffer> owner).view.readonly else owner
    if not has_buffer(type(owner)):
        return owner
    try:
        view = memoryview(owner)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return owner
    behind = exporter_of(view)
    return owner if behind is view else behind


cdef object exporter_of(object view):
    """The exporter of a memoryview; the memoryview itself if it is writable or has no exporter."""
    cdef Py_buffer* buffer = PyMemoryView_GET_BUFFER(view)
    return view if exporter(buffer) == NULL or not buffer.readonly else <object> exporter(buffer)
