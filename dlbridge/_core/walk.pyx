"""The arrays in a container, one after the other, without a call of Python between them."""

cimport cython

from dlbridge._core.dtypes cimport NO_ROW, NUMPY_TYPES, by_numpy_type
from dlbridge._core.leaf cimport ROLE_ARRAY, role_of_object
from dlbridge._core.numpy_api cimport array_type
from dlbridge.convert cimport convert_once

import numpy as np

from dlbridge.errors import DLBridgeError

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


cdef object convert_leaf(Plainly self, object leaf, dict memo):
    try:
        return convert_once(leaf, self.to, memo)
    except DLBridgeError as error:
        return self.failed(leaf, error)


def has_numbers(obj):
    """Whether this is an ndarray of numbers, as most are; False says nothing."""
    return isinstance(obj, ndarray) and 0 <= array_type(obj) < NUMPY_TYPES and by_numpy_type[array_type(obj)] != NO_ROW


def give_values(dict take, values, dict memo, walk):
    """What is given for each of the values: an array is given here, and what else it is by ``walk(take, value, memo)``.
    """
    cdef list made = []
    give = take[<int> ROLE_ARRAY]
    cdef Plainly plainly = give if type(give) is Plainly else None
    for value in values:
        if role_of_object(value) != ROLE_ARRAY:
            made.append(walk(take, value, memo))
        elif plainly is None:
            made.append(give(value, memo))
        else:
            made.append(convert_leaf(plainly, value, memo))
    return made
