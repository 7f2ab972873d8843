"""numpy.ndarray, through NumPy's C API."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, uint64_t

from dlbridge._core.atomic cimport add_rows
from dlbridge._core.block cimport (
    OWNS_BUFFER, PROTOCOL_EXCHANGE_API, Managed, managed_release, managed_move_buffer, managed_unwrapped,
)
from dlbridge._core.cache cimport steal
from dlbridge._core.capsule cimport OWNER_NAME, new_capsule
from dlbridge._core.dtypes cimport get_row, numpy_dtype, rows_named
from dlbridge._core.native.numpy cimport array_over
from dlbridge._core.numpy_api cimport array_set_base, import_array_api
from dlbridge._core.pending cimport raise_pending
from dlbridge._core.sources.buffer cimport HeldBuffer
from dlbridge._core.target cimport Target

from dlbridge._core.dtypes import NAMES
from dlbridge.errors import MissingLibraryError

import_array_api()

# The rows of ml_dtypes' types. complex32 is the only type with a PEP 3118 letter that NumPy lacks.
cdef uint64_t ml_dtypes_rows = rows_named(
    name for row, name in enumerate(NAMES) if get_row(row).format == NULL or name == "complex32")


def prepare(Target target):
    target.accepts = accepts
    target.deliver = deliver
    target.share = share
    target.adjust = adjust


def adjust(Target target):
    target.asked_rows = ml_dtypes_rows


cdef object accepts(const Managed* managed, Target target):
    """Refuse ml_dtypes' types if ml_dtypes is missing, or too old for them."""
    cdef int32_t row = managed.row      # without the declaration it would be an int of Python
    if not (ml_dtypes_rows & target.rows) >> row & 1:
        return None             # a type of NumPy's, or one that the target lacks; the plan deals with that
    missing = None
    try:
        numpy_dtype(row)
    except MissingLibraryError as error:
        missing = error
    if missing is not None:
        return missing
    if not get_row(row).subbyte:
        add_rows(&target.plain_rows, <uint64_t> 1 << <int> row)     # ml_dtypes has it, and need not be asked again
    return None


# As array_over(), for a caller that takes the exception itself.
ctypedef PyObject* (*ArrayOver)(const Managed* memory) noexcept


cdef object deliver(Managed* managed, Target target):
    """An ndarray over the memory, whose base keeps the memory alive. It is read-only if the memory is."""
    cdef PyObject* made = (<ArrayOver> array_over)(managed)
    if made == NULL:
        managed_release(managed)
        raise_pending()
    array = steal(made)
    owner = base_over(managed)
    if owner is None:
        owner = new_capsule(managed, managed, OWNER_NAME, _release_owner)
    Py_INCREF(owner)        # SetBaseObject steals it
    array_set_base(array, owner)
    return array


cdef object share(const Managed* memory, object keeper):
    """An ndarray over memory that an object keeps, which becomes its base."""
    array = steal(array_over(memory))
    Py_INCREF(keeper)
    array_set_base(array, keeper)
    return array


cdef object base_over(Managed* managed):
    """A smaller base than the block, which is then freed; or None, and the block stays.

    On failure the block is released.
    """
    cdef HeldBuffer held
    # A tensor can be the base. An ndarray cannot: NumPy would take that array's base instead, and a subclass may keep
    # more alive than its base does. An object with an interface cannot either: the user could make it release its
    # memory through the base.
    if managed.protocol == PROTOCOL_EXCHANGE_API:
        return managed_unwrapped(managed)
    if managed.owns != OWNS_BUFFER:
        return None
    try:
        held = HeldBuffer.__new__(HeldBuffer)
    except BaseException:
        managed_release(managed)
        raise
    if not managed_move_buffer(managed, &held.view):
        return None
    held.exporter = <object> held.view.obj
    return held


cdef void _release_owner(object capsule) noexcept:
    managed_release(<Managed*> PyCapsule_GetPointer(capsule, OWNER_NAME))
