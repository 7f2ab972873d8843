"""The quick tests in front of the decision, and the decision, of the same memory."""

from libc.string cimport memset

from dlbridge._core.block cimport Managed, managed_data, managed_release
from dlbridge._core.decision cimport ORDER, Decision, Findings, decide, fits, fits_there, is_copy
from dlbridge._core.exports cimport consumer_named
from dlbridge._core.plan cimport gather, make_plan
from dlbridge._core.request cimport COPY_NEVER, READONLY_ERROR, Request, parse_request
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.targets.registry cimport find_target
from dlbridge._core.target cimport Target
from dlbridge._core.view cimport WANT_OR_COPY, View, Want
from dlbridge.face cimport view, wanted_by

import dlbridge


def by_target(obj, to, device, copy, readonly, order):
    """Whether a quick test shares the memory, and whether the decision does."""
    cdef Request request
    cdef Target target = find_target(to)
    target.load()
    parse_request(&request, device, copy, None, readonly, False, False, order)
    return decided(obj, target, &request)


def by_want(obj, flags):
    """Whether a view is of the array as it is, and whether the decision shares it."""
    cdef Request request
    cdef Want want
    cdef View seen
    memset(&want, 0, sizeof(Want))
    want.size, want.flags = sizeof(Want), flags
    parse_request(&request, None, None, None, "error", False, False, None)
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


def for_target(obj, to, device, copy, readonly, order=None):
    """What is decided for a target: "share", "copy", or the name of the error."""
    cdef Target target = find_target(to)
    target.load()
    return decided_in_words(obj, target, device, copy, readonly, order)


def for_export(tensor, name, device, copy, readonly):
    """The same for what a Tensor exports, by the name in libraries/dlpack."""
    return decided_in_words(tensor, consumer_named(name), device, copy, readonly)


def for_want(tensor, flags):
    """What a view of a Tensor does, and what is decided. A copy is made of memory of the host alone."""
    cdef Want want
    cdef View seen
    memset(&want, 0, sizeof(Want))
    want.size, want.flags = sizeof(Want), flags
    copy = None if flags & WANT_OR_COPY and tensor.device == "cpu" else False
    decided = decided_in_words(tensor, wanted_by(flags), None, copy, "error")
    try:
        view(tensor, &want, &seen)
    except dlbridge.DLBridgeError as error:
        return type(error).__name__, decided
    done = "share" if tensor.data_ptr == <size_t> managed_data(&seen.memory) or not tensor.nbytes else "copy"
    if seen.owner != NULL:
        seen.owner.deleter(seen.owner)
    return done, decided


cdef str decided_in_words(
    object obj, Target target, object device, object copy, object readonly, object order=None,
):
    cdef Request request
    cdef Managed* managed
    cdef Decision decision
    parse_request(&request, device, copy, None, readonly, False, False, order)
    try:
        managed = acquire_by(offers_for_type(type(obj)), obj, &request)
        try:
            make_plan(managed, target, &request, obj, &decision)
        finally:
            managed_release(managed)
    except dlbridge.DLBridgeError as error:
        return type(error).__name__
    return "copy" if is_copy(&decision) else "share"


cdef tuple decided(object obj, Target target, const Request* request):
    cdef Managed* managed = acquire_by(offers_for_type(type(obj)), obj, request)
    cdef Findings findings
    cdef Decision decision
    try:
        gather(managed, target, request, None, &findings)
        decide(managed, target, request, &findings, &decision)
        quick = fits(managed, target, request) or fits_there(managed, target, request)
        return quick, not decision.refused and not decision.steps & ~ORDER
    finally:
        managed_release(managed)
