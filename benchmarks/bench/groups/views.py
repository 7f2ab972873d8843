"""Looking at an array from an extension in C, beside other ways to do so."""

from types import ModuleType
from typing import Any

from bench import floors
from bench.rows import Group, Missing, Row


def by(kind: str) -> ModuleType:
    """The extension that looks at its argument by dlbridge, nanobind or Cython."""
    try:
        found = floors.load_views()
    except floors.FloorsError as error:
        raise Missing(str(error)) from error
    if kind not in found:
        raise Missing(f"{kind} is not installed (pip install {kind})")
    return found[kind]


def by_hand(views: Any, torch: Any) -> Any:
    """The function that calls torch's borrowed slot."""
    views.find_table(torch.Tensor)
    return views.borrow_by_hand


GROUP = Group("views", (
    Row("view of an ndarray", "views.view(ndarray)", {
        "nanobind": "nanobind_views.view(ndarray)",
        "Cython memoryview": "cython_views.view(ndarray)",
        "PyArray_FromAny": "views.from_any(ndarray)",
    }),
    Row("view of an ndarray, as asked", "views.view_asked(ndarray)", {
        "nanobind": "nanobind_views.view_asked(ndarray)",
        "Cython memoryview": "cython_views.view_asked(ndarray)",
    }),
    Row("view of a tensor", "views.view(tensor)", {
        "nanobind": "nanobind_views.view(tensor)",
    }, "borrow_by_hand(tensor)"),
    Row("view of a JAX array", "views.view(jax_array)", {"nanobind": "nanobind_views.view(jax_array)"}),
    Row("view of a bytearray", "views.view(buffer)", {"nanobind": "nanobind_views.view(buffer)"}),
    Row("view of a Tensor", "views.view(wrapped)", {"nanobind": "nanobind_views.view(wrapped)"}),
    Row("make and deliver, like a tensor", "views.deliver(tensor)", {
        "a capsule, torch.from_dlpack": "views.deliver_by_hand(torch.from_dlpack)",
    }),
), {
    "views": "by('dlbridge')",
    "nanobind_views": "by('nanobind')",
    "cython_views": "by('Cython')",
    "borrow_by_hand": "by_hand(views, torch)",
    "wrapped": "dlbridge.asdlpack(ndarray)",
})
