"""From NumPy's two array interfaces, on objects that keep them as attributes."""

from typing import Any

from bench.rows import Group, Row


class Interface:
    """An object with ``__array_interface__`` alone."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Struct:
    """An object with ``__array_struct__`` alone."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__array_struct__ = array.__array_struct__


GROUP = Group("array interfaces", (
    Row("__array_interface__ -> torch", 'dlbridge.convert(interface, to="torch")', {
        "torch.from_numpy": "torch.from_numpy(numpy.asarray(interface))",
    }),
    Row("__array_struct__ -> torch", 'dlbridge.convert(struct, to="torch")', {
        "torch.from_numpy": "torch.from_numpy(numpy.asarray(struct))",
    }),
), {"interface": "Interface(ndarray)", "struct": "Struct(ndarray)"})
