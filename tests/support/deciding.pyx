"""The quick tests in front of the decision, and the decision, of the same memory."""

from libc.string cimport memset

from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.decision cimport Decision, Findings, decide, fits, fits_there
from dlbridge._core.plan cimport gather
from dlbridge._core.request cimport COPY_NEVER, READONLY_ERROR, Request, parse_request
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.targets.registry cimport find_target
from dlbridge._core.targets.target cimport Target
from dlbridge._core.view cimport View, Want
from dlbridge.face cimport view, wanted_by


def by_target(obj, to, device, copy, readonly):
    """Whether a quick test shares the memory, and whether the decision does."""
    cdef Request request
    cdef Target target = find_target(to)
    target.load()
    parse_request(&request, device, copy, None, readonly, False, False)
    return decided(obj, target, &request)


def by_want(obj, flags):
    """Whether a view is of the array as it is, and whether the decision shares it."""
    cdef Request request
    cdef Want want
    cdef View seen
    memset(&want, 0, sizeof(Want))
    want.size, want.flags = sizeof(Want), flags
    parse_request(&request, None, None, None, "error", False, False)
    request.copy, request.readonly = COPY_NEVER, READONLY_ERROR
    try:
        view(obj, &want, &seen)
    except Exception:
        met = False
    else:
        met = seen.owner == NULL
        if not met:
            seen.owner.deleter(seen.owner)
    return met, decided(obj, wanted_by(flags), &request)[1]


cdef tuple decided(object obj, Target target, const Request* request):
    cdef Managed* managed = acquire_by(offers_for_type(type(obj)), obj, request)
    cdef Findings findings
    cdef Decision decision
    try:
        gather(managed, target, request, None, &findings)
        decide(managed, target, request, &findings, &decision)
        quick = fits(managed, target, request) or fits_there(managed, target, request)
        return quick, not decision.refused and not decision.steps
    finally:
        managed_release(managed)
