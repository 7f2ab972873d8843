"""Of the hostile rows some that end by themselves, for ``dlbridge info --speaks``."""

from support import hostile_rows

ROWS = tuple(row for row in hostile_rows.ROWS if row.name in ("numpy", "memoryview", "crashing", "broken"))
