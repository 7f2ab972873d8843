"""The plan: what the library and the driver are asked, what is decided, and how that is said."""

from libc.stdint cimport int32_t

from dlbridge._core.block cimport Managed
from dlbridge._core.decision cimport Decision, Findings
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


# The kernels of libraries, which make compact copies of memory on its device.
ctypedef struct Kernels:
    tuple (*find)(const Managed* managed, object src)       # the function and its library, or None
    Managed* (*rearranged)(Managed* managed, object src, int32_t steps) except NULL

cdef Kernels kernels

# ``src`` is the array whose whole memory this is, if there is one.
cdef int make_plan(
    const Managed* managed, Target target, const Request* request, object src, Decision* out,
) except -1
cdef int gather(
    const Managed* managed, Target target, const Request* request, object src, Findings* out,
) except -1
cdef int row_for(const Managed* managed, Target target, const Request* request) except -2
# Who can still write to read-only memory, by name; None if nobody can.
cdef str writer_of(const Managed* managed)

# The hint where one side could write what the other must not.
cdef str SHARE
# Tells those who watch of a copy. ``src`` is None where only its memory is there.
cdef int note_decision(
    object src, const Managed* managed, Target target, const Request* request, const Decision* decision,
) except -1
cdef str reason_text(const Managed* managed, Target target, const Decision* decision)
cdef tuple step_texts(
    const Managed* managed, Target target, const Request* request, const Decision* decision, object src)
cdef str reason_hint(const Managed* managed, Target target, const Decision* decision, object src)
# The field of a reason, the fact about the memory, and the hint, for a target that words its error itself.
cdef tuple fact_of(const Managed* managed, Target target, const Decision* decision)
cdef str contiguous_hint(const Managed* managed, object src)
