"""What convert() would find and do, for explain(): nothing is copied, consumed or delivered."""

from typing import Any

def examine(
    facts: dict[str, Any], src: object, to: object, *, device: Any = None, copy: bool | None = None,
    stream: Any = None, readonly: Any = "copy", detach: bool = False, narrow: bool = False, dtype: Any = None,
    shape: Any = None, out: Any = None,
) -> bool: ...
