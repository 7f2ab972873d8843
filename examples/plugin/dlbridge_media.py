"""A plug-in of dlbridge: wave.Wave_read as a source, and "pillow" as a target.

Nobody imports this module: dlbridge does, when it first meets one of the two names.
"""

import wave

import dlbridge


def add_source():
    dlbridge.register_source(wave.Wave_read, samples)


def samples(sound):
    """The samples from where the file stands, one row for each moment, as an object that dlbridge takes."""
    memory = memoryview(bytearray(sound.readframes(sound.getnframes())))
    if sound.getsampwidth() != 2:
        raise dlbridge.ConversionError(f"wave: sampwidth {sound.getsampwidth()}: is not 2 (convert the file)")
    return memory.cast("h").cast("B").cast("h", (memory.nbytes // (2 * sound.getnchannels()), sound.getnchannels()))


def add_target():
    from PIL import Image

    dlbridge.register_target("pillow", image, array_type=Image.Image, dtypes=["uint8"])


def image(tensor):
    """Grey of two axes, in colours of three; over the same memory where Pillow can, which is all but RGB."""
    from PIL import Image

    mode = {(): "L", (3,): "RGB", (4,): "RGBA"}[tensor.shape[2:]]
    return Image.frombuffer(mode, tensor.shape[1::-1], memoryview(tensor), "raw", mode, 0, 1)
