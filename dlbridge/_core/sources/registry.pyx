"""The order in which sources are asked, and the sources that users add."""

cimport cython
from cpython.buffer cimport PyBUF_FULL_RO, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.atomic cimport add
from dlbridge._core.block cimport PROTOCOL_DLPACK_LEGACY, Managed, managed_keep
from dlbridge._core.cache cimport OFFERS, Entry, count_registrations, put
from dlbridge._core.copies cimport is_watched, note_given_copy
from dlbridge._core.late cimport c_function, load_module, pause_collector, resume_collector
from dlbridge._core.pending cimport PyErr_Occurred, take_error
from dlbridge._core.place cimport copies_made
from dlbridge._core.request cimport COPY_NEVER, Request
from dlbridge._core.sources.buffer cimport has_buffer
from dlbridge._core.sources.offer cimport (
    Acquire, Offer, element_row, facts_of, hints, library, new_offer, top_module, with_row,
)

import sys

import numpy as np

from dlbridge.errors import CopyRequiredError, DLBridgeError, UnsupportedError, full_name, refusal

cdef extern from "Python.h":
    PyTypeObject PyCapsule_Type
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()

cdef type CAPSULE_TYPE = <type> <PyObject*> &PyCapsule_Type

# The offer of a type that has this attribute, or None. Those from DLPACK to before BUFFER are asked of instances, too.
ctypedef Offer (*OfferOf)(object holder, object facts, str attribute)

cdef enum:
    SOURCES = 9
    DLPACK = 3
    BUFFER = 8

# The protocols in the order in which they are asked: those that say the most at the least cost come first. A file is
# imported with the first type that has one of its attributes; a file that names none is asked of every type.
cdef tuple FILES = (
    "dlbridge._core.native.numpy", "dlbridge._core.native.torch", "dlbridge._core.sources.exchange",
    "dlbridge._core.sources.dlpack", "dlbridge._core.sources.cuda_array_interface",
    "dlbridge._core.sources.array_interface", "dlbridge._core.sources.array_interface", "dlbridge._core.sources.arrow",
    "dlbridge._core.sources.buffer",
)
cdef tuple ATTRIBUTES = (
    (), ("__torch_function__",), ("__dlpack_c_exchange_api__",),
    ("__dlpack__",), ("__cuda_array_interface__",),
    ("__array_struct__",), ("__array_interface__", "__array_typestr__"),
    ("__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_stream__"),
    (),
)
cdef OfferOf[SOURCES] sources           # NULL where the file was not imported yet


cdef Offer ask_source(int index, object holder, object facts):
    """The offer of one protocol for a type, or for an object that may have it although its type does not."""
    cdef tuple attributes = <tuple> ATTRIBUTES[index]
    for attribute in attributes:
        if hasattr(holder, attribute):
            return offer_with(attribute, index, holder, facts)
    if attributes and (index != DLPACK or holder is not CAPSULE_TYPE):
        return None
    return offer_with(None, index, holder, facts)


cdef Offer offer_with(str attribute, int index, object holder, object facts):
    return (<OfferOf> c_function(<void**> &sources[index], FILES[index], "offers"))(holder, facts, attribute)


registered = []         # pairs of a predicate and an Offer, the newest first


@cython.auto_pickle(False)
cdef class Offers(Entry):
    """What is found out once for a type: its offers, and its role in a batch."""


cdef Offers find_offers(object kind):
    """Find the offers of a type. The first type of a library imports what is known of the library."""
    cdef size_t before = count_registrations()
    cdef Offers found = Offers.__new__(Offers)
    pause_collector()
    try:
        found.kind = kind
        found.offers = list_offers(kind)
        put(OFFERS, found, before)
        return found
    finally:
        resume_collector()


cdef tuple list_offers(object kind):
    facts = facts_of(kind)
    first = [offer for accepts, offer in list(registered) if accepts(kind)]
    last = [new_offer("instance", acquire_by_instance, facts)]
    offers, preferred = [], facts.preferred
    for index in range(SOURCES):
        offer = ask_source(index, kind, facts)
        if offer is not None:
            preferred = offer.protocol if (<Offer> offer).unordered else preferred
            offers.insert(0 if offer.protocol == preferred else len(offers), offer)
            if (<Offer> offer).exclusive:
                break
    for offer in offers[:len(offers) - 1]:
        (<Offer> offer).optional = True
    if facts.why_unasked():
        offers.insert(0, new_offer("refusal", refuse_unasked, facts))
    if facts.gives is not None:
        given = offer_function(facts.gives, facts)
        given.optional = True
        offers.insert(0, given)
    return tuple(first + offers + last)


cdef bint has_offer(tuple offers, object obj) except -1:
    """Whether an object offers a protocol: its type does, or the object does by itself."""
    cdef Py_ssize_t index
    if len(offers) > 1:
        return True
    facts = (<Offer> offers[0]).facts
    for index in range(DLPACK, BUFFER if not isinstance(obj, type) else DLPACK):
        if ask_source(index, obj, facts) is not None:
            return True
    return False


cdef void* acquire_pair         # of arrow.pyx, which the first pair loads


cdef Managed* acquire_by_instance(object obj, Offer offer, const Request* request) except? NULL:
    """Take the array that an object stands for, or else the protocols that it has although its type does not: a proxy
    with __getattr__, or an attribute set by hand. A pair of Arrow's capsules is an array, too.

    They are asked each time. A class is not asked, since it has the attributes of its instances without their memory.
    """
    cdef Managed* managed
    cdef Offer found
    cdef Py_ssize_t index
    if isinstance(obj, type):
        return NULL
    if type(obj) is tuple and len(obj) == 2 and type(obj[0]) is CAPSULE_TYPE:
        return (<Acquire> c_function(&acquire_pair, "dlbridge._core.sources.arrow", "acquire_pair"))(
            obj, offer, request)
    method = getattr(obj, "__dlpack__", None)
    if method is not None:
        exporter = exporter_behind(method)
        if exporter is not None and exporter is not obj:
            return acquire_from(exporter, request)
    for index in range(DLPACK, BUFFER):
        # An attribute that is not there costs as much as the rest of the call, so none is asked for twice.
        if index != DLPACK:
            found = ask_source(index, obj, offer.facts)
        else:
            found = None if method is None else offer_with("__dlpack__", index, obj, offer.facts)
        if found is not None:
            managed = found.acquire(obj, found, request)
            if managed != NULL:
                return managed
    return NULL


cdef object exporter_behind(object method):
    """The array whose bound ``__dlpack__`` this is, or None.

    A proxy (wrapt, weakref, flax.nnx, pint) hands on the attributes of its array. What is known of that array's type
    (a mask, lazy bits, memory that is read-only) holds for the array, and not for the proxy.
    """
    exporter = getattr(method, "__self__", None)
    # The __self__ of a C function is its module.
    return None if getattr(type(exporter), "__dlpack__", None) is None else exporter


cdef Managed* acquire_from(object exporter, const Request* request) except NULL:
    """Acquire another object in place of the one that was asked, which may go on without end."""
    Py_EnterRecursiveCall(" while asking what an object stands for")
    try:
        return acquire_by(offers_for_type(type(exporter)), exporter, request)
    finally:
        Py_LeaveRecursiveCall()


cdef Managed* acquire_by_others(tuple offers, object src, const Request* request) except NULL:
    """Ask the other offers, unless the first one left an exception."""
    cdef Managed* managed
    cdef Offer offer
    cdef Py_ssize_t index
    for index in range(1, PyTuple_GET_SIZE(offers)):
        raise_of_producer(offers, src)
        offer = <Offer> PyTuple_GET_ITEM(offers, index)
        managed = (<AcquireOrLeave> offer.acquire)(src, offer, request)
        if managed != NULL:
            return managed
    raise_of_producer(offers, src)
    if _load_plugins(type(src)):
        return acquire_by(offers_for_type(type(src)), src, request)
    raise unsupported(src, (<Offer> offers[len(offers) - 1]).facts)


def _load_plugins(kind):
    """Whether a package that knows the types of this module was loaded just now."""
    plugins = load_module("dlbridge._core.plugins")       # it reads the metadata of all packages
    return any([plugins.load(plugins.SOURCES, name) for name in {top_module(base): None for base in kind.__mro__}])


cdef int raise_of_producer(tuple offers, object src) except -1:
    """Raise the exception that a producer left behind, if it left one: as it is, with a hint as a note.

    What has a buffer slot and nothing else, and gives no buffer, is no array: all objects of VTK are so. Python's own
    exporters are arrays, which say why they give none any more.
    """
    if PyErr_Occurred() == NULL:
        return 0
    error = take_error()
    if isinstance(error, (DLBridgeError, MemoryError, RecursionError)):
        raise error
    hint = hint_for(src, (<Offer> offers[len(offers) - 1]).facts)        # the first may be a user's, of any type
    if isinstance(error, NO_BUFFER) and has_slot_alone(offers, type(src)):
        raise refusal(UnsupportedError, "buffer", "type", full_name(type(src)), f"gives no buffer: {error}",
                      hint or GENERAL_HINT) from error
    if hint is not None:
        note(error, hint)
    raise error


cdef int note(object error, str hint) except -1:
    """Add a hint to an error that has no notes, from Python 3.11 on; its class may do anything then."""
    try:
        if hasattr(error, "add_note") and not hasattr(error, "__notes__"):
            error.add_note(hint)
    except Exception:
        pass


# What the slot of an object raises that has no buffer.
NO_BUFFER = (BufferError, TypeError, ValueError)


cdef bint has_slot_alone(tuple offers, object kind) except -1:
    """Whether the buffer slot is all that a type has, and no exporter of Python's own has filled it."""
    cdef object base
    cdef Offer offer
    cdef bint found = False
    for offer in offers[:len(offers) - 1]:
        if offer.protocol == "buffer":
            found = True
        elif offer.protocol != "function" or not offer.optional:        # a library's file, or a user, knows the type
            return False
    if not found:
        return False
    for base in kind.__mro__:
        if has_buffer(base) and top_module(base) in sys.stdlib_module_names:
            return False
    return True


cdef bint gives_buffer(object obj) except -1:
    """Whether an object gives a buffer, or raises an error that the user is to see."""
    cdef Py_buffer view
    try:
        PyObject_GetBuffer(obj, &view, PyBUF_FULL_RO)
    except Exception as error:
        return not isinstance(error, NO_BUFFER)
    PyBuffer_Release(&view)
    return True


cdef Managed* refuse_unasked(object obj, Offer offer, const Request* request) except? NULL:
    raise unsupported(obj, offer.facts)


cdef object unsupported(object src, object facts):
    """The error for an object that offers nothing, or whose protocols are not asked."""
    load_module("dlbridge._core.meant").check_order(src)
    hint = hint_for(src, facts) or GENERAL_HINT
    field, kind = ("class", src) if isinstance(src, type) else ("type", type(src))
    return refusal(UnsupportedError, "source", field, full_name(kind).removeprefix("builtins."),
                   facts.why_unasked() or "offers no array protocol", hint)


GENERAL_HINT = ("pass something with __dlpack__, __array_interface__, __cuda_array_interface__ or the buffer protocol; "
                "or register its type")


cdef str hint_for(object src, object facts):
    """What to do about an object that is no array, or None.

    CPython 3.11 loses the arguments of a Python call that it has no memory for, so most objects are not passed to one.
    """
    containers = load_module("dlbridge.trees.containers")
    if facts.is_of_a_library() or not containers.is_of_containers(type(src)):
        return facts.hint("type", src) or hints().for_type(type(src))
    try:
        if has_arrays(src):
            return hints().for_tree(facts.own_hint("tree"), src)
    except MemoryError:
        raise
    except Exception:
        return None             # it contains itself, or raises errors of its own
    of_fields = hints().for_type(type(src)) if containers.fields_of(src) else None
    return facts.hint("type", src) or of_fields or "it has no arrays in it"


cdef bint has_arrays(object thing) except -1:
    """Whether something is an array, or has one in it at any depth; NumPy's numbers count as numbers here.

    A container that a library's file takes apart counts as one with arrays, so that it need not be read.
    """
    if thing is None or isinstance(thing, (str, bytes, int, float, complex, np.generic)):
        return False
    containers = load_module("dlbridge.trees.containers")
    if containers.functions_of(type(thing)) is not None:
        return True
    container = containers.container_of(thing) if containers.is_of_containers(type(thing)) else None
    if container is None:
        return is_array(offers_for_type(type(thing)), thing)
    Py_EnterRecursiveCall(" while looking for arrays in a container")
    try:
        for value in container.values(thing):
            if has_arrays(value):
                return True
        return False
    finally:
        Py_LeaveRecursiveCall()


cdef bint is_array(tuple offers, object obj) except -1:
    if has_slot_alone(offers, type(obj)):
        return gives_buffer(obj)
    return (<Offer> offers[0]).protocol != "refusal" and has_offer(offers, obj)


# ---- functions that give something with a protocol -------------------------------------------------------------------

def add_source(accepts, function, readonly):
    """Put a source before all others, as :func:`dlbridge.register_source`.

    ``accepts(type)`` says whether it serves a type, and ``function(obj)`` gives a producer.
    """
    offer = offer_function(function, facts_of(object))
    offer.unflagged, offer.legacy_writable = readonly is True, readonly is False
    registered.insert(0, (accepts, offer))


cdef Offer offer_function(object function, object facts):
    """The offer for a library whose arrays have no protocol, or for a source that a user registered."""
    offer = new_offer("function", acquire_by_function, facts)
    offer.function = function
    return offer


cdef Managed* acquire_by_function(object obj, Offer offer, const Request* request) except? NULL:
    cdef Managed* managed
    cdef int row = element_row(obj, offer)
    array = offer.function(obj)
    if array is None and offer.optional:
        return NULL
    is_wrapped = type(array) is library().Copied
    copied = offer.copies or is_wrapped
    if copied and request.copy == COPY_NEVER:
        raise refusal(CopyRequiredError, offer.protocol, "copy", False,
                      f"but {type(obj).__qualname__} gives its elements by a copy alone", "pass copy=None")
    array = array.array if is_wrapped else array
    if array is obj:
        raise refusal(UnsupportedError, "source", "acquire", f"of {type(obj).__qualname__}", "returned its argument",
                      "return an object with __dlpack__ or a DLPack capsule")
    # The type of what the function made may be registered too, and so on without end.
    Py_EnterRecursiveCall(" while asking registered sources")
    try:
        managed = acquire_by(offers_for_type(type(array)), array, request)
    except BaseException:
        array = None                 # while the error is caught: a capsule's destructor would lose a pending error
        raise
    finally:
        Py_LeaveRecursiveCall()
    if offer.forgets:
        managed_keep(managed, obj)
    if copied:
        add(&copies_made, 1)
        managed.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
        if is_watched() and not request.peek:
            managed = note_given_copy(managed, obj)
    if offer.legacy_writable and managed.protocol == PROTOCOL_DLPACK_LEGACY:
        managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY
    if offer.unflagged:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    return with_row(managed, row, offer)
