"""What the commands print, and the errors of the user.

The output is in colour on a terminal where rich is installed, or as NO_COLOR and FORCE_COLOR say.
"""

import importlib.util
import math
import os
import shutil
from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import fill
from typing import TextIO

# A text, and its style as rich writes it, such as "bold red"; empty for none.
Segment = tuple[str, str]
STYLES = {
    "returned": "green", "shared": "green", "equal": "green", "return": "green", "share": "green",
    "copied": "yellow", "copy": "yellow",
    "not here": "bright_black", "impossible": "bright_black",
    "failed": "bold white on red", "DIFFERENT": "bold white on red", "refuse": "red",
}


def styled(word: str, text: str = "") -> Segment:
    """Give a text the style of the outcome that it tells."""
    return text or word, STYLES.get(word, "")


def width_of(out: TextIO) -> float:
    """Count the columns of a terminal; a file and a pipe have no end to the right."""
    return shutil.get_terminal_size().columns if out.isatty() else math.inf


def wrapped(text: str, width: float, indent: str = "") -> str:
    """Break a line where the terminal ends."""
    return text if math.isinf(width) else fill(text, int(width), subsequent_indent=indent, break_on_hyphens=False)


def in_colour(out: TextIO) -> bool:
    """Tell whether to print in colour (https://no-color.org, https://force-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return (out.isatty() or bool(os.environ.get("FORCE_COLOR"))) and importlib.util.find_spec("rich") is not None


def show(lines: Iterable[list[Segment]], out: TextIO) -> None:
    """Print lines that have their ends already."""
    if not in_colour(out):
        print("\n".join("".join(text for text, _ in line).rstrip() for line in lines), file=out)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, force_terminal=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*line))


# ---- errors of the user ----------------------------------------------------------------------------------------------

class Mistake(Exception):
    """The user asked for something impossible; the text says what to do instead."""


def choice(name: str, names: Iterable[str]) -> str:
    """Say which name the user may have meant, and list all names."""
    known = list(names)
    near = get_close_matches(name, known, 1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"one of {', '.join(known)}"
