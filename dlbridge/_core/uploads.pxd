"""Uploads: how host memory becomes an array on a device."""

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.decision cimport Decision
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


# The target's array on a device; managed is stolen, also when this fails. Where the memory is the pool's, in_pool is
# a block over it and no array is made yet. That upload is complete, so that no stream has to wait for it.
cdef object uploaded(
    Managed* managed, Target target, const Decision* decision, const Request* request, Managed** in_pool)
# A copy of host memory in memory of a device's pool, dense and of nobody else; ``device`` may have no number. Without
# ``waits`` the copy may only be queued: the source has to stay until that is done.
cdef Managed* sent_to_pool(Managed* source, const DLDevice* device, bint waits) except NULL
# Copies elements of the host into dense memory of a device, by one copy.
cdef int send_elements(Managed* block, Managed* source, bint waits) except -1
cdef int await_uploads(list queued) except -1
