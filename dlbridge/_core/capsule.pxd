"""DLPack capsules over a Managed: what travels from a producer's ``__dlpack__`` to a consumer."""

from cpython.pycapsule cimport PyCapsule_Destructor

from dlbridge._core.block cimport Managed


# All of them steal managed, also when they fail.
cdef object new_versioned_capsule(Managed* managed)
cdef object new_legacy_capsule(Managed* managed)
cdef object new_capsule(Managed* managed, void* pointer, const char* name, PyCapsule_Destructor destructor)
