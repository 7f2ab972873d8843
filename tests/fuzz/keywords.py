"""The keywords of every public function, and of ``Tensor.__dlpack__``: any object in any of them."""

import numpy as np

import dlbridge
from fuzz.harness import ProducersError, check
from fuzz.objects import thing

ARRAYS = (
    np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=">i4"), np.zeros((0, 3)), np.arange(5.0)[::-2])
LOCKED = np.arange(8, dtype=np.int16)
LOCKED.flags.writeable = False
SOURCES = (
    *ARRAYS, LOCKED, *(dlbridge.asdlpack(array) for array in (*ARRAYS, LOCKED)), memoryview(b"abcdefgh"),
    bytearray(b"abcd"),
)
TARGETS = ("numpy", "dlbridge", "memoryview", "dlpack")
KEYWORDS = ("device", "copy", "stream", "readonly", "detach", "max_version", "dl_device", "to")
SOUND = {
    "device": ("cpu", None, (1, 0), "cuda", "cuda:0", (2, 0), (1, None)), "copy": (None, True, False),
    "stream": (None, -1, 1, 2, 0, 2**40), "readonly": ("copy", "share", "error"), "detach": (False, True),
    "max_version": (None, (1, 3), (0, 8), (2, 0)), "dl_device": (None, (1, 0), (2, 0), (3, 0)), "to": TARGETS,
}
# A wrong keyword is one of these, in a message of dlbridge's own.
STAGES = ("convert: ", "dlpack: ", "The truth value of an array")      # the last one's is NumPy's own, of detach=


def convert(source, words):
    return dlbridge.convert(source, words.pop("to", "numpy"), **words)


def tensor_dlpack(source, words):
    return dlbridge.asdlpack(source).__dlpack__(**words)


def explain(source, words):
    return str(dlbridge.explain(source, words.pop("to", "numpy"), **words))


# The function, and the keywords that it has.
CALLS = (
    (convert, ("device", "copy", "stream", "readonly", "detach", "to")),
    (lambda source, words: dlbridge.asdlpack(source, **words), ("device", "copy", "stream", "readonly", "detach")),
    (tensor_dlpack, ("stream", "max_version", "dl_device", "copy")),
    (lambda source, words: dlbridge.to_dlpack(source, **words), ("stream", "max_version", "readonly")),
    (lambda source, words: dlbridge.from_dlpack(source, **words), ("device", "copy")),
    (explain, ("device", "copy", "stream", "readonly", "detach", "to")),
)


def run(source):
    call, names = source.choice(CALLS)
    array = source.choice(SOURCES)
    words = {}
    while source.more():
        name = source.byte()
        key = names[name % len(names)]
        words[key] = source.choice(SOUND[key]) if name & 128 else thing(source)
    try:
        made = call(array, words)
    except (dlbridge.DLBridgeError, ProducersError):
        return
    except (TypeError, ValueError) as error:
        check(str(error).startswith(STAGES), repr(error))
        return
    if isinstance(made, str):
        return
    check(np.array_equal(dlbridge.convert(made, "numpy") if type(made) is not np.ndarray else made, expected(array)),
          "elements")


def expected(array):
    return array if isinstance(array, np.ndarray) else np.asarray(array)
