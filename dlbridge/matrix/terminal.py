"""What the commands print: in colour on a terminal where rich is installed, or as NO_COLOR and FORCE_COLOR say."""

import importlib.util
import math
import os
import shutil
from collections.abc import Iterable
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
