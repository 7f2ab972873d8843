"""asdlpack, and consumers of its result."""

import atexit
from typing import Any

from bench.rows import Group, Row


def silent(pydlpack: Any) -> Any:
    """Keep pydlpack from complaining at exit of the arrays that it wrapped and that were not consumed."""
    atexit.unregister(pydlpack.MemoryManager._sanity_check)
    return pydlpack


GROUP = Group("asdlpack", (
    Row("asdlpack", "dlbridge.asdlpack(ndarray)", {
        "pydlpack": "silent_pydlpack.asdlpack(ndarray)",
    }, "floors.wrap(ndarray)"),
    Row("asdlpack, __dlpack__", "dlbridge.asdlpack(ndarray).__dlpack__(max_version=(1, 1))", {
        "pydlpack": "silent_pydlpack.asdlpack(ndarray).__dlpack__()",
    }, "floors.wrap(ndarray).__dlpack__(max_version=(1, 1))"),
    Row("asdlpack, torch.from_dlpack", "torch.from_dlpack(dlbridge.asdlpack(ndarray))", {
        "torch.from_dlpack": "torch.from_dlpack(ndarray)",
        "pydlpack": "torch.from_dlpack(silent_pydlpack.asdlpack(ndarray))",
    }),
), {"silent_pydlpack": "silent(pydlpack)"})
