"""DLPack capsules over a Managed: what travels from a producer's ``__dlpack__`` to a consumer."""

from dlbridge.managed cimport Managed


# Both steal managed, also when they fail.
cdef object new_versioned_capsule(Managed* managed)
cdef object new_legacy_capsule(Managed* managed)
