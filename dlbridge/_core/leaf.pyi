"""What an object is in a batch: an array, a table, a value that is neither, or something that may contain others."""

from typing import Any

OTHER: int
VALUE: int
ARRAY: int
TABLE: int
VALUES: tuple[type[Any], ...]

def role_of(obj: object) -> int: ...
def columns_of(table: object, unpack: bool) -> Any: ...
