"""Memory of each kind of label, and targets that know it."""

import numpy
from fake_driver.control import driver


class Interface:
    def __init__(self, start, shape=(4,), typestr="<f4", strides=None, readonly=False):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (start, readonly), "strides": strides, "version": 3,
            "stream": 1}


class Namespace:
    from_dlpack = staticmethod(numpy.from_dlpack)


def memory(kind="device"):
    return driver.filled(0, numpy.arange(16, dtype="f4").tobytes(), kind)


def target(library):
    return Namespace() if library == "*" else library
