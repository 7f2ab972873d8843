"""The walk through a tree: what is given for each of its leaves, without a call of Python between two arrays."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t

from dlbridge._core.atomic cimport load
from dlbridge._core.cache cimport OFFERS, cached_of_type, steal
from dlbridge._core.calls cimport convert_any, convert_plainly
from dlbridge._core.dtypes cimport NO_ROW, NUMPY_TYPES, by_numpy_type
from dlbridge._core.numpy_api cimport array_type
from dlbridge._core.place cimport copies_made
from dlbridge._core.request cimport (
    COPY_IF_NEEDED, COPY_UNLESS_CONSTANT, KEYWORD_STREAM, Request, parse_keyword, parse_keywords,
)
from dlbridge._core.sources.offer cimport Offer
from dlbridge._core.sources.registry cimport Offers
from dlbridge._core.uploads cimport await_uploads
from dlbridge.trees.leaf cimport ROLE_ARRAY, ROLE_OTHER, role_of

from contextlib import suppress
from operator import is_

import numpy as np

from dlbridge.errors import DLBridgeError
from dlbridge.trees.containers import EXACT, container_of
from dlbridge.trees.failure import Failure, note_place
from dlbridge.trees.leaf import VALUES

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()

cdef enum:
    MOST_QUEUED = 256           # uploads that are waited for together; what they read is kept until then

cdef type ndarray = np.ndarray
# Types whose objects run no foreign code. Arrays of numbers run none either, nor do those that their source describes.
cdef frozenset QUIET = frozenset((*EXACT, *VALUES, bool))


@cython.final
cdef class Converter:
    """convert(src, to, …) for many arrays, whose keywords are read once.

    With ``own``, what it gives is the caller's own, unless it is constant, or was asked for with copy=False.
    """

    cdef object to
    cdef dict keywords          # which keep the stream that the request borrows
    cdef Request request
    cdef bint own

    def __init__(self, to, dict keywords, bint own=False):
        self.to = to
        self.keywords = keywords
        self.own = own
        parse_keywords(&self.request, keywords)
        if own and self.request.copy == COPY_IF_NEEDED:
            self.request.copy = COPY_UNLESS_CONSTANT

    def __reduce__(self):
        """A function behind accepts() is sent to other processes by what is in its closure."""
        return Converter, (self.to, self.keywords, self.own)

    def __call__(self, src):
        return convert_by(self, src, None)


cdef object convert_by(Converter self, object src, list queued):
    cdef PyObject* arguments[2]
    cdef Request request
    if self.keywords or self.own:
        request = self.request      # each conversion notes in it what its target says
        if request.has_stream:
            parse_keyword(&request, KEYWORD_STREAM, self.keywords["stream"])    # it may mean another stream by now
        request.queued = <PyObject*> queued if queued is not None else NULL
        return convert_any(src, self.to, &request)
    arguments[0], arguments[1] = <PyObject*> src, <PyObject*> self.to
    return convert_plainly(NULL, arguments, 2, NULL)


@cython.final
cdef class TakeArray:
    """What is given for an array of a tree. ``failed(array, error)`` says what becomes of one that is refused.

    ``queued`` is a list, for one tree at a time, into which conversions may put uploads that map_tree() is to wait for.
    ``convert`` is called with it, too, if there is one.
    """

    cdef object convert
    cdef object failed
    cdef Converter converter    # convert, if it is a Converter; or None
    cdef bint counts            # whether copies_made tells what was copied: without keywords
    cdef list queued            # uploads that are not waited for yet, or None

    def __init__(self, convert, failed, list queued=None):
        self.convert = convert
        self.failed = failed
        self.converter = convert if type(convert) is Converter else None
        self.counts = self.converter is not None and not (self.converter.keywords or self.converter.own)
        self.queued = queued

    def __reduce__(self):
        return TakeArray, (self.convert, self.failed)

    def __call__(self, array, dict memo):
        return take_array(self, array, memo)


cdef bint runs_no_code(object value) except -1:
    """Whether no code runs that somebody else wrote, while a value is looked at and converted."""
    cdef object kind = type(value)
    cdef PyObject* found
    if kind is ndarray:
        return has_numbers(value)       # objects in an array may run code of their own
    if kind in QUIET:
        return True
    found = cached_of_type(OFFERS, <PyObject*> kind, <PyObject*> None)
    return found != NULL and (<Offer> (<Offers> steal(found)).offers[0]).describe != NULL and not isinstance(
        value, ndarray)


cdef int await_tree(dict take) except -1:
    """Wait for what is queued, before code runs that may write to the memory that is read."""
    give = take[<int> ROLE_ARRAY]
    cdef TakeArray taker = give if type(give) is TakeArray else None
    return 0 if taker is None or not taker.queued else await_queued(taker.queued)


cdef int await_queued(list queued) except -1:
    await_uploads(queued)
    queued.clear()


cdef object take_array(TakeArray self, object array, dict memo):
    try:
        return convert_once(self, array, memo)
    except DLBridgeError as error:
        return self.failed(array, error)


cdef object convert_once(TakeArray self, object array, dict memo):
    """Convert an array of a tree: what is in several places is copied once.

    The memo has copies by the id of their source, with the source, so that no other object gets its id meanwhile. What
    is known to be shared needs no memo. If another thread copies meanwhile, the memo is right all the same.
    """
    cdef int32_t before = load(&copies_made)
    if memo:
        found = memo.get(<size_t> <PyObject*> array)
        if found is not None:
            return found[1]
    if self.converter is not None:
        result = convert_by(self.converter, array, self.queued)
    else:
        result = self.convert(array) if self.queued is None else self.convert(array, self.queued)
    if not self.counts or load(&copies_made) != before:
        memo[<size_t> <PyObject*> array] = array, result
    return result


def has_numbers(obj):
    """Whether this is an ndarray of NumPy's own numbers, as most are. One of ml_dtypes' numbers gives False, too."""
    return isinstance(obj, ndarray) and 0 <= array_type(obj) < NUMPY_TYPES and by_numpy_type[array_type(obj)] != NO_ROW


cpdef list give_values(dict take, object values, dict memo):
    """What is given for each of the values."""
    cdef list made = []
    give = take[<int> ROLE_ARRAY]
    cdef TakeArray taker = give if type(give) is TakeArray else None
    for value in values:
        if taker is not None and taker.queued and (len(taker.queued) >= MOST_QUEUED or not runs_no_code(value)):
            await_queued(taker.queued)
        if role_of(value) != ROLE_ARRAY:
            made.append(map_leaves(take, value, memo))
        elif taker is None:
            made.append(give(value, memo))
        else:
            made.append(take_array(taker, value, memo))
    return made


def convert_columns(tables, table, list columns, dict memo, list failures):
    """A dictionary of what a ``Tables`` gives for each column, without a call of Python between two arrays."""
    cdef Converter converter = tables.convert_array if type(tables.convert_array) is Converter else None
    cdef dict made = {}
    for name, column in columns:
        if name in made:
            raise tables.repeated(table, columns)
        if converter is not None and type(column) is ndarray and has_numbers(column):
            try:
                made[name] = convert_by(converter, column, None)
            except DLBridgeError as error:
                made[name] = tables.keep_refused(table, name, column, error, failures)
        else:
            made[name] = tables.convert_column(table, name, column, memo, failures)
    return made


cpdef object map_leaves(dict take, object tree, dict memo):
    """A container of what the function of each leaf's role gives for it."""
    cdef int role = role_of(tree)
    if role != ROLE_OTHER:
        return take[role](tree, memo)
    Py_EnterRecursiveCall(" while walking through a container")
    try:
        if type(tree) is dict:
            return dict_with(tree, give_values(take, (<dict> tree).values(), memo))
        container = EXACT.get(type(tree))
        if container is not None:
            return container.remake(tree, give_values(take, container.values(tree), memo))
        container = container_of(tree)
        return take[<int> ROLE_OTHER](tree, memo) if container is None else map_container(take, tree, memo, container)
    finally:
        Py_LeaveRecursiveCall()


cdef dict dict_with(dict tree, list values):
    """What EXACT gives for a dictionary, in a third of the time."""
    cdef dict made = tree.copy()
    cdef Py_ssize_t index = 0
    if len(made) != len(values):
        raise RuntimeError("dictionary changed size during iteration")
    for key in made:
        made[key] = values[index]
        index += 1
    return made


cdef object map_container(dict take, object tree, dict memo, object container):
    cdef list before = list(container.values(tree))
    try:
        values = give_values(take, before, memo)
    except Failure as failure:
        if container.is_described:
            note_place(failure, tree, zip(container.labels(tree), before, strict=True))
        raise
    await_tree(take)
    # Many objects of a batch have no arrays in them, and not all of them can be made again.
    return tree if not container.is_read and all(map(is_, values, before)) else container.remake(tree, values)


def map_tree(dict take, tree):
    """map_leaves() for a whole tree, whose uploads are there when this returns."""
    try:
        made = map_leaves(take, tree, {})
    except BaseException:
        with suppress(DLBridgeError):       # the first error is the one to tell
            await_tree(take)
        raise
    await_tree(take)
    return made
