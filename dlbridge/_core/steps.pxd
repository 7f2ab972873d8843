"""The steps of a decision, and the one loop that takes them."""

from libc.stdint cimport int32_t

from dlbridge._core.block cimport Managed
from dlbridge._core.decision cimport Decision
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


# Decides, and takes the steps that come before the target's library is given the memory; managed is stolen, also when
# this fails. If a library's kernels make a copy first, the request becomes the one for that copy.
cdef Managed* placed(Managed* managed, Target target, Request* request, object src, Decision* decision) except NULL
# Takes some of the steps, in their order; managed is stolen, also when this fails.
cdef Managed* taken(
    Managed* managed, int32_t steps, Target target, const Request* request, const Decision* decision,
) except NULL
# Lets the consumer's stream wait for memory of a device, or notes that nobody waits.
cdef int order(Managed* managed, const Request* request) except -1
