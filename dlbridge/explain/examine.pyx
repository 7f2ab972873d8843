"""What convert() would find and do, for explain(): nothing is copied, consumed or delivered."""

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    BYTE_STRIDES, PROTOCOL_EXCHANGE_API, Managed, Protocol, managed_nbytes, managed_release, managed_set_row,
    managed_shape, managed_strides, protocol_name,
)
from dlbridge._core.conversion cimport is_already
from dlbridge._core.decision cimport GIVEN_COPY, Decision, is_copy
from dlbridge._core.described cimport acquire_seen, refuse_several
from dlbridge._core.devices.table cimport device_name
from dlbridge._core.dtypes cimport dtype_name
from dlbridge._core.forms cimport parts_to_explain
from dlbridge._core.out cimport (
    OUT, OUT_ASKED, acquire_out, check_fit, check_out_type, check_reach, row_into, steps_into,
)
from dlbridge._core.plan cimport make_plan, reason_hint, reason_text, step_texts
from dlbridge._core.request cimport Request, parse_request
from dlbridge._core.route cimport Route, route_to
from dlbridge._core.target cimport Target

from dlbridge.errors import DLBridgeError, full_name


def examine(dict facts, src, to, *, device, copy, stream, readonly, detach, narrow, order, dtype, shape, out):
    """Put into ``facts`` what convert() would find and do; nothing is copied, consumed or delivered.

    Returns whether the producer gave a copy: it may share if it is asked for that.
    """
    cdef Request request
    cdef Managed* managed
    cdef Route route
    parse_request(&request, device, copy, stream, readonly, detach, narrow, order)
    route = route_to(src, to, &request)
    facts["target"] = route.target.name
    request.peek = True
    if out is not None:
        examine_out(facts, src, route, dtype, shape, out, &request)
        return False
    if route.forms is not None and dtype is None and shape is None:
        parts = parts_to_explain(facts, src, route, &request)
        if parts is not None:
            facts["parts"] = parts
            return False
    if route.already and dtype is None and shape is None and is_already(src, route, &request):
        facts["action"] = "return"
        facts["reason"] = f"src is of {route.target.name}'s own type already"
        return False
    try:
        managed = acquire_seen(route, src, dtype, shape, &request)
    except DLBridgeError:
        if dtype is not None or shape is not None or not route.already or route.target.facts.duplicate is None:
            raise
        facts |= {"action": "copy", "reason": f"{route.target.name} copies its own",
                  "hint": "pass copy=None" if copy is True else ""}
        return False
    try:
        state_memory(facts, managed)
        if dtype is not None or shape is not None:
            facts["reason"] = f"bytes are seen as {facts['dtype']} of shape {facts['shape']}"
            src = None              # which is no array of these elements
        return state_plan(facts, managed, route.target, &request, src)
    finally:
        managed_release(managed)


cdef bint state_plan(dict facts, Managed* managed, Target target, const Request* request, object src) except -1:
    cdef Decision decision
    make_plan(managed, target, request, src, &decision)
    facts["action"] = "copy" if is_copy(&decision) else "share"
    if decision.reason:
        facts["reason"] = reason_text(managed, target, &decision) or facts.get("reason", "")
        facts["hint"] = reason_hint(managed, target, &decision, src)
    facts["steps"] = step_texts(managed, target, request, &decision, src)
    # A table of functions cannot be told what copy=False is.
    return decision.reason == GIVEN_COPY and managed.protocol != PROTOCOL_EXCHANGE_API


cdef int examine_out(
    dict facts, object src, Route route, object dtype, object shape, object out, Request* request,
) except -1:
    cdef Managed* managed
    cdef Managed* into
    cdef int row
    if out is src and dtype is None and shape is None:
        managed_release(acquire_out(out, route.target, request))
        facts |= {"action": "return", "reason": "out is src"}
        return 0
    refuse_several(route, src, "out", full_name(type(out)))
    check_out_type(out, route.target, request)
    managed = acquire_seen(route, src, dtype, shape, request)
    try:
        state_memory(facts, managed)
        check_reach(managed, request)
        into = acquire_out(out, route.target, request)
        try:
            row = row_into(managed, route.target, request)
            steps = steps_into(into, managed, row, request)
            managed_set_row(managed, row)
            check_fit(managed, into)
        finally:
            managed_release(into)
    finally:
        managed_release(managed)
    facts |= {"action": "copy", "reason": OUT, "hint": OUT_ASKED, "steps": steps}


cdef int state_memory(dict facts, const Managed* managed) except -1:
    facts["protocol"] = protocol_name(<Protocol> managed.protocol)
    facts["dtype"] = dtype_name(managed.abi.dl_tensor.dtype)
    facts["device"] = device_name(managed.abi.dl_tensor.device)
    facts["shape"] = managed_shape(managed)
    facts["strides"] = managed_strides(managed)
    facts["strides_unit"] = "bytes" if managed.marks & BYTE_STRIDES else "elements"
    facts["nbytes"] = managed_nbytes(managed)
    facts["readonly"] = bool(managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY)
