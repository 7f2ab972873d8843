"""The walk through a tree: what is given for each of its leaves, without a call of Python between two arrays."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t

from dlbridge._core.atomic cimport load
from dlbridge._core.calls cimport convert_plainly
from dlbridge._core.dtypes cimport NO_ROW, NUMPY_TYPES, by_numpy_type
from dlbridge._core.numpy_api cimport array_type
from dlbridge._core.place cimport copies_made
from dlbridge.trees.leaf cimport ROLE_ARRAY, ROLE_OTHER, role_of

from operator import is_

import numpy as np

from dlbridge.errors import DLBridgeError
from dlbridge.trees.containers import EXACT, container_of
from dlbridge.trees.failure import Failure, locate

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()

cdef type ndarray = np.ndarray


@cython.final
cdef class Plainly:
    """convert(leaf, to) for the leaves of a tree. ``failed(leaf, error)`` says what becomes of one that is refused."""

    cdef object to
    cdef object failed

    def __init__(self, to, failed):
        self.to = to
        self.failed = failed

    def __reduce__(self):
        """A function behind accepts() is sent to other processes by what is in its closure."""
        return Plainly, (self.to, self.failed)

    def __call__(self, leaf, dict memo):
        return convert_leaf(self, leaf, memo)


cdef object convert_once(object src, object to, dict memo):
    """convert(src, to) in a tree: what is in several places is copied once.

    The memo has copies by the id of their source, with the source, so that no other object gets its id meanwhile. What
    is shared needs no memo. If another thread copies meanwhile, the memo is right all the same.
    """
    cdef PyObject* arguments[2]
    cdef int32_t before = load(&copies_made)
    if memo:
        found = memo.get(<size_t> <PyObject*> src)
        if found is not None:
            return found[1]
    arguments[0], arguments[1] = <PyObject*> src, <PyObject*> to
    result = convert_plainly(NULL, arguments, 2, NULL)
    if load(&copies_made) != before:
        memo[<size_t> <PyObject*> src] = src, result
    return result


cdef object convert_leaf(Plainly self, object leaf, dict memo):
    try:
        return convert_once(leaf, self.to, memo)
    except DLBridgeError as error:
        return self.failed(leaf, error)


def has_numbers(obj):
    """Whether this is an ndarray of numbers, as most are; False says nothing."""
    return isinstance(obj, ndarray) and 0 <= array_type(obj) < NUMPY_TYPES and by_numpy_type[array_type(obj)] != NO_ROW


cpdef list give_values(dict take, object values, dict memo):
    """What is given for each of the values."""
    cdef list made = []
    give = take[<int> ROLE_ARRAY]
    cdef Plainly plainly = give if type(give) is Plainly else None
    for value in values:
        if role_of(value) != ROLE_ARRAY:
            made.append(map_leaves(take, value, memo))
        elif plainly is None:
            made.append(give(value, memo))
        else:
            made.append(convert_leaf(plainly, value, memo))
    return made


cpdef object map_leaves(dict take, object tree, dict memo):
    """A container of what the function of each leaf's role gives for it."""
    cdef int role = role_of(tree)
    if role != ROLE_OTHER:
        return take[role](tree, memo)
    Py_EnterRecursiveCall(" while walking through a container")
    try:
        container = EXACT.get(type(tree))
        if container is not None:
            return container.remake(tree, give_values(take, container.values(tree), memo))
        container = container_of(tree)
        return take[<int> ROLE_OTHER](tree, memo) if container is None else map_container(take, tree, memo, container)
    finally:
        Py_LeaveRecursiveCall()


cdef object map_container(dict take, object tree, dict memo, object container):
    cdef list before = list(container.values(tree))
    try:
        values = give_values(take, before, memo)
    except Failure as failure:
        if container.is_described:
            locate(failure, tree, zip(container.labels(tree), before, strict=True))
        raise
    # Many objects of a batch have no arrays in them, and not all of them can be made again.
    return tree if not container.is_read and all(map(is_, values, before)) else container.remake(tree, values)
