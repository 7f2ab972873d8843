"""What an object is in a batch: an array, a table, a value that is neither, or something that may contain others."""

from typing import Any

from dlbridge.errors import UnsupportedError

OTHER: int
VALUE: int
ARRAY: int
TABLE: int
FORM: int
VALUES: tuple[type[Any], ...]

def role_of(obj: object) -> int: ...
def columns_of(table: object, unpack: bool) -> Any: ...
def columns_without_rows(table: object, unpack: bool) -> list[tuple[Any, Any]] | None: ...
def why_no_array(leaf: object) -> UnsupportedError: ...
