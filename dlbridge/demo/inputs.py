"""Real data, read with the standard library: a photograph, a sound, and a mapped file."""

import re
import wave
from importlib.resources import as_file, files
from io import BytesIO
from mmap import ACCESS_COPY, mmap
from typing import Any, NamedTuple

import numpy as np

PHOTOGRAPH = files(__package__) / "photograph.ppm"
PPM_HEADER = re.compile(rb"P6\s(?:#.*\n)*(\d+) (\d+)\n255\n")
FRAMES_PER_SECOND = 22_050


class Input(NamedTuple):
    """Memory that was made without any array library."""

    title: str
    holder: str
    memory: Any


def photograph() -> Input:
    """Read the file into bytes, which are read-only."""
    return Input("A photograph, read", "bytes", pixels(PHOTOGRAPH.read_bytes()))


def mapped() -> Input:
    """Map the same file; a page that is written becomes this process's own, so the file never changes."""
    with as_file(PHOTOGRAPH) as path, path.open("rb") as file:
        return Input("The photograph, mapped", "mmap", pixels(mmap(file.fileno(), 0, access=ACCESS_COPY)))


def pixels(ppm: bytes | mmap) -> memoryview:
    """View the pixels of a binary PPM in the shape (height, width, 3), without copying."""
    header = PPM_HEADER.match(ppm)
    if header is None:
        raise ValueError("photograph.ppm: magic is not that of a binary PPM with 8 bits per channel")
    width, height = map(int, header.groups())
    return memoryview(ppm)[header.end():].cast("B", (height, width, 3))


def sound() -> Input:
    """Write a decaying chord as a WAV file, and view its samples, which begin behind the header's 44 bytes."""
    seconds = np.arange(FRAMES_PER_SECOND) / FRAMES_PER_SECOND
    chord = sum(np.sin(2 * np.pi * frequency * seconds) for frequency in (261.63, 329.63, 392.0)) * np.exp(-3 * seconds)
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(FRAMES_PER_SECOND)
        writer.writeframes((chord * 10_000).astype("i2").tobytes())
    return Input("A sound in a WAV file, read", "bytearray", memoryview(bytearray(file.getvalue()))[44:].cast("h"))


INPUTS = (photograph, sound, mapped)
