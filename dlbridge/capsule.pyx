"""DLPack capsules over a Managed: what travels from a producer's ``__dlpack__`` to a consumer."""

from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New

from dlbridge.abi cimport LEGACY_NAME, VERSIONED_NAME, DLManagedTensor, DLManagedTensorVersioned
from dlbridge.managed cimport Managed, managed_legacy, managed_release


cdef object new_versioned_capsule(Managed* managed):
    return _new(managed, &managed.abi, VERSIONED_NAME, _drop_versioned)


cdef object new_legacy_capsule(Managed* managed):
    return _new(managed, managed_legacy(managed), LEGACY_NAME, _drop_legacy)


cdef object _new(Managed* managed, void* pointer, const char* name, PyCapsule_Destructor destructor):
    try:
        return PyCapsule_New(pointer, name, destructor)
    except BaseException:
        managed_release(managed)
        raise


# A consumer renames what it takes, and calls the deleter itself; under the old name nobody took it.
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
