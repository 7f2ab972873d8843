"""Errors of the user, and the text that helps with a wrong name."""

from collections.abc import Iterable
from difflib import get_close_matches


class Mistake(Exception):
    """The user asked for something impossible; the text says what to do instead."""


def choice(name: str, names: Iterable[str]) -> str:
    """Say which name the user may have meant, and list all names."""
    known = list(names)
    near = get_close_matches(name, known, 1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"one of {', '.join(known)}"
