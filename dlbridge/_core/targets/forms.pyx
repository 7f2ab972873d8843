"""Libraries whose arrays are several arrays each: no array by itself is one of them."""

from dlbridge._core.block cimport Managed, managed_release, managed_shape
from dlbridge._core.dtypes cimport row_name
from dlbridge._core.target cimport Target

from dlbridge.errors import ConversionError, refusal


def prepare(Target target):
    target.deliver = deliver
    target.accepts = why_not
    target.adjust = ask_always


def ask_always(Target target):
    target.asked_rows = ~0


cdef object why_not(const Managed* managed, Target target):
    form = next(iter(target.facts.forms.values()))
    return refusal(ConversionError, target.name, "shape", managed_shape(managed),
                   f"of {row_name(managed.row)} is one array, and {target.name} has only sparse ones",
                   f"pass {form.of_dense}")


cdef object deliver(Managed* managed, Target target):
    try:
        raise why_not(managed, target)
    finally:
        managed_release(managed)
