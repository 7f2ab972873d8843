"""Capsules over a Managed: what travels from a producer to a consumer, of DLPack, and of Arrow's C data interface."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport calloc, free, malloc

from dlbridge._core.abi cimport LEGACY_NAME, VERSIONED_NAME, DLManagedTensor, DLManagedTensorVersioned, DLTensor
from dlbridge._core.arrow_abi cimport ARRAY_NAME, SCHEMA_NAME, ArrowArray, ArrowSchema
from dlbridge._core.block cimport (
    Managed, managed_as_legacy, managed_count, managed_data, managed_release, release_foreign,
)
from dlbridge._core.devices.table cimport is_host
from dlbridge._core.dtypes cimport find_dlpack
from dlbridge._core.pending cimport raise_pending

from dlbridge._core.dtypes import ARROW_LETTERS, NAMES


cdef extern from "Python.h":
    # cpython.pycapsule declares that it raises. This declaration leaves a place to release the memory on failure.
    PyObject* PyCapsule_New(void* pointer, const char* name, PyCapsule_Destructor destructor) noexcept


OWNER_NAME = "dlbridge.Managed"


cdef object new_versioned_capsule(Managed* managed):
    return new_capsule(managed, &managed.abi, VERSIONED_NAME, _drop_versioned)


cdef object new_legacy_capsule(Managed* managed):
    cdef DLManagedTensor* legacy = managed_as_legacy(managed)
    cdef PyObject* capsule = PyCapsule_New(legacy, LEGACY_NAME, _drop_legacy)
    if capsule == NULL:
        legacy.deleter(legacy)
    return owned_capsule(capsule)


cdef object new_capsule(Managed* managed, void* pointer, const char* name, PyCapsule_Destructor destructor):
    """A capsule over a block. It steals managed, also when it fails."""
    cdef PyObject* capsule = PyCapsule_New(pointer, name, destructor)
    if capsule == NULL:
        managed.abi.deleter(&managed.abi)
    return owned_capsule(capsule)


cdef inline object owned_capsule(PyObject* reference):
    if reference == NULL:
        raise_pending()
    capsule = <object> reference
    Py_DECREF(capsule)              # the reference that PyCapsule_New gave
    return capsule


# A consumer renames the capsule that it takes, and calls the deleter itself. A capsule that still has its first
# name was not consumed.
cdef void _drop_versioned(object capsule) noexcept:
    cdef DLManagedTensorVersioned* tensor
    if PyCapsule_IsValid(capsule, VERSIONED_NAME):
        tensor = <DLManagedTensorVersioned*> PyCapsule_GetPointer(capsule, VERSIONED_NAME)
        tensor.deleter(tensor)


cdef void _drop_legacy(object capsule) noexcept:
    cdef DLManagedTensor* tensor
    if PyCapsule_IsValid(capsule, LEGACY_NAME):
        tensor = <DLManagedTensor*> PyCapsule_GetPointer(capsule, LEGACY_NAME)
        tensor.deleter(tensor)


# ---- Arrow: a schema, and an array of numbers with one axis ----------------------------------------------------------

# What an array owns.
ctypedef struct Lent:
    Managed* managed
    const void* buffers[2]      # the bits of validity, of which it has none, and the values

# By the number of the dtype's row. Schemas point to these texts, which are kept for ever.
cdef dict formats = {NAMES.index(name): letter.encode() for letter, name in ARROW_LETTERS.items()}


cdef bint has_arrow_form(const Managed* managed) except -1:
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    return tensor.ndim == 1 and find_dlpack(tensor.dtype) in formats and is_host(tensor.device.device_type)


cdef object new_arrow_capsules(Managed* managed):
    try:
        schema = new_struct(sizeof(ArrowSchema), SCHEMA_NAME, destroy_schema)
        fill_schema(<ArrowSchema*> PyCapsule_GetPointer(schema, SCHEMA_NAME), formats[managed.row])
        array = new_struct(sizeof(ArrowArray), ARRAY_NAME, destroy_array)
        fill_array(<ArrowArray*> PyCapsule_GetPointer(array, ARRAY_NAME), managed)
    except BaseException:
        managed_release(managed)
        raise
    return schema, array


cdef void fill_schema(ArrowSchema* schema, bytes text) noexcept:
    """The struct was filled with zeros, so it has no metadata, no children and no flags."""
    schema.format = <const char*> text
    schema.name = b""
    schema.release = release_schema


cdef int fill_array(ArrowArray* array, Managed* managed) except -1:
    cdef Lent* lent = <Lent*> malloc(sizeof(Lent))
    if lent == NULL:
        raise MemoryError
    lent.managed = managed
    lent.buffers[0], lent.buffers[1] = NULL, managed_data(managed)
    array.length = managed_count(managed)
    array.n_buffers = 2
    array.buffers = lent.buffers
    array.private_data = lent
    array.release = release_array


cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    schema.release = NULL


cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef Lent* lent = <Lent*> array.private_data
    array.release = NULL
    managed_release(lent.managed)
    free(lent)


cdef object new_struct(size_t size, const char* name, PyCapsule_Destructor destructor):
    cdef void* struct = calloc(1, size)
    cdef PyObject* capsule
    if struct == NULL:
        raise MemoryError
    capsule = PyCapsule_New(struct, name, destructor)
    if capsule == NULL:
        free(struct)
    return owned_capsule(capsule)


cdef void destroy_schema(object capsule) noexcept:
    release_foreign(PyCapsule_GetPointer(capsule, SCHEMA_NAME), drop_schema)


cdef void destroy_array(object capsule) noexcept:
    release_foreign(PyCapsule_GetPointer(capsule, ARRAY_NAME), drop_array)


cdef void drop_schema(void* owner) noexcept nogil:
    cdef ArrowSchema* schema = <ArrowSchema*> owner
    if schema.release != NULL:          # no consumer took it
        schema.release(schema)
    free(schema)


cdef void drop_array(void* owner) noexcept nogil:
    cdef ArrowArray* array = <ArrowArray*> owner
    if array.release != NULL:
        array.release(array)
    free(array)
