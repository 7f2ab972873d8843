"""The line on a terminal that says how far the measurement is."""

import sys
import time
from collections.abc import Callable

SILENT_SECONDS = 2      # a measurement that takes no longer shows no line


def progress(total: int) -> Callable[[int, tuple[str, ...]], None]:
    """Make a function that writes and overwrites the line; it is called with the number done and the last names."""
    start = time.monotonic()

    def tick(done: int, names: tuple[str, ...]) -> None:
        if sys.stderr.isatty() and time.monotonic() - start > SILENT_SECONDS:
            line = f"{done}/{total}: {' -> '.join(names)}" if done < total else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return tick
