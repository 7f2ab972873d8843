"""DLPack capsules over a Managed: what travels from a producer's ``__dlpack__`` to a consumer."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF

from dlbridge._core.abi cimport LEGACY_NAME, VERSIONED_NAME, DLManagedTensor, DLManagedTensorVersioned
from dlbridge._core.block cimport Managed, managed_as_legacy
from dlbridge._core.pending cimport raise_pending


cdef extern from "Python.h":
    # cpython.pycapsule declares that it raises. This declaration leaves a place to release the memory on failure.
    PyObject* PyCapsule_New(void* pointer, const char* name, PyCapsule_Destructor destructor) noexcept


cdef object new_versioned_capsule(Managed* managed):
    return new_capsule(managed, &managed.abi, VERSIONED_NAME, _drop_versioned)


cdef object new_legacy_capsule(Managed* managed):
    cdef DLManagedTensor* legacy = managed_as_legacy(managed)
    cdef PyObject* capsule = PyCapsule_New(legacy, LEGACY_NAME, _drop_legacy)
    if capsule == NULL:
        legacy.deleter(legacy)
    return taken(capsule)


cdef object new_capsule(Managed* managed, void* pointer, const char* name, PyCapsule_Destructor destructor):
    """A capsule over a block. It steals managed, also when it fails."""
    cdef PyObject* capsule = PyCapsule_New(pointer, name, destructor)
    if capsule == NULL:
        managed.abi.deleter(&managed.abi)
    return taken(capsule)


cdef inline object taken(PyObject* reference):
    if reference == NULL:
        raise_pending()
    capsule = <object> reference
    Py_DECREF(capsule)              # the reference that PyCapsule_New gave
    return capsule


# A consumer renames the capsule that it takes, and calls the deleter itself. A capsule with the first name was not
# consumed.
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
