"""The code in a hint."""

import re
from collections.abc import Iterable, Iterator


def code_in(hint: str, names: Iterable[str]) -> Iterator[str]:
    """Each piece of Python's code in a hint: x, or a name that it may use, and what follows it."""
    at = 0
    for begin in re.finditer(rf"(?<![\w.\"'])(?:x|{'|'.join(names)})(?=[.(\[])", hint):
        if begin.start() < at:
            continue                    # within the last one
        at = begin.end()
        while found := re.match(r"\.\w+", hint[at:]):
            at += found.end()
            while hint[at:at + 1] and hint[at] in "([":
                at += length_of_brackets(hint[at:])
        while hint[at:at + 1] and hint[at] in "([":
            at += length_of_brackets(hint[at:])
            while found := re.match(r"\.\w+", hint[at:]):
                at += found.end()
        yield hint[begin.start():at]


def length_of_brackets(text: str) -> int:
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if not depth:
            return index + 1
    raise AssertionError(text)
