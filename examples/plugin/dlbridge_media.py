"""A plug-in of dlbridge: wave.Wave_read, an open sound file, as a source, and "wav", a file's bytes, as a target.

Nobody imports this module: dlbridge does, when it first meets one of the two names.
"""

import io
import wave

import dlbridge

FRAMES_PER_SECOND = 44_100


def add_source():
    dlbridge.register_source(wave.Wave_read, samples)


def samples(sound):
    """The samples from where the file stands, one row for each moment, as an object that dlbridge takes."""
    memory = memoryview(bytearray(sound.readframes(sound.getnframes())))
    if sound.getsampwidth() != 2:
        raise dlbridge.ConversionError(f"wave: sampwidth {sound.getsampwidth()}: is not 2 (convert the file)")
    return memory.cast("h").cast("B").cast("h", (memory.nbytes // (2 * sound.getnchannels()), sound.getnchannels()))


def add_target():
    dlbridge.register_target("wav", file_of, dtypes=["int16"])


def file_of(tensor):
    """A sound file of 16-bit samples: one channel of one axis, or a channel for each column of two."""
    if tensor.ndim not in (1, 2):
        raise dlbridge.ConversionError(f"wav: ndim {tensor.ndim}: is neither 1 nor 2 (reshape it)")
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1 if tensor.ndim == 1 else tensor.shape[1])
        sound.setsampwidth(tensor.itemsize)
        sound.setframerate(FRAMES_PER_SECOND)
        sound.writeframes(memoryview(tensor).tobytes())       # in C order, whatever the strides
    file.seek(0)
    return file
