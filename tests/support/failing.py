"""Lets every allocation of a path fail in turn: what test_injected_failures.py runs under its counting wrapper.

    LD_PRELOAD=failing.so PYTHONMALLOC=malloc PYTHONPATH=tests python failing.py 0::1

prints, as JSON, what came of each path of the sources in that slice: of each source half of the uses, or with the word
"full" behind it all. With PYTHONMALLOC=malloc the interpreter's objects are blocks of malloc()'s as dlbridge's own are,
so that one count is of all. Within a path no function of Python's is called: CPython 3.11 itself loses the exception
where there is no memory for what belongs to a frame. Each source has a child of its own.
"""

import ctypes
import functools
import gc
import json
import operator
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dlbridge
from dlbridge.explain import picture
from dlbridge.testing import abi
from dlbridge.testing.producers import Producer, capsule_name, new_capsule
from support import paths
from support.arrow_producers import ArrowArray, ArrowSchema
from support.buffers import view_of
from support.child import run_in_child

NEVER = sys.maxsize - 1
MOST = 5000             # allocations of one path

wrapper = ctypes.CDLL(None)
arm, disarm = wrapper.failing_arm, wrapper.failing_disarm
calls, live, deleted = wrapper.failing_calls, wrapper.failing_live, wrapper.failing_deleted
arm.argtypes = ctypes.c_long, ctypes.c_long
arm.restype = disarm.restype = None
calls.restype = live.restype = deleted.restype = ctypes.c_long


# ---- sources without code in Python ----------------------------------------------------------------------------------

class Bound:
    """``__dlpack__`` of an array as an attribute that the type has too."""

    __slots__ = ("__dlpack__", "__weakref__")

    def __init__(self, array):
        self.__dlpack__ = array.__dlpack__


class Registered:
    def __init__(self, array):
        self.array = array


class Refused(types.SimpleNamespace):
    """Without any protocol."""


class Pretending:
    """With an exchange API that is for another type, and refuses this one: its functions leave an exception behind."""

    __dlpack_c_exchange_api__ = dlbridge.Tensor.__dlpack_c_exchange_api__


sys.modules["cuda.core._memoryview"] = types.SimpleNamespace(StridedMemoryView=Pretending)      # or none would ask it

dlbridge.register_source(Registered, operator.attrgetter("array"))
dlbridge.register_target("failing", operator.attrgetter("shape"))


def capsules_over(versioned=True, **fields):
    """Makes capsules over one struct, whose deleter needs no memory."""
    producer = Producer(versioned=versioned, deleter=None, **fields)
    struct = producer.struct()
    struct.deleter = abi.Deleter(ctypes.cast(wrapper.failing_delete, ctypes.c_void_p).value)
    structs.append((producer, struct))

    def make():
        given.append(new_capsule(ctypes.addressof(struct), producer.fields["name"], None))
        return given[-1]

    return make


class Arrow:
    """``__arrow_c_array__`` as an attribute that the type has too."""

    __slots__ = ("__arrow_c_array__", "__weakref__")


def arrows(**fields):
    """Makes arrays of Arrow's, whose release callback needs no memory."""
    release = ctypes.cast(wrapper.failing_delete, ctypes.c_void_p).value
    schema = ArrowSchema(format=b"f", release=release)
    buffers = (ctypes.c_void_p * 2)(None, ARRAY.ctypes.data)
    structs.append((schema, buffers))

    def make():
        array = ArrowArray(**{"length": 12, "n_buffers": 2, "release": release, **fields})
        array.buffers = ctypes.cast(buffers, ctypes.POINTER(ctypes.c_void_p))
        given.append(array)
        source = Arrow()
        # A tuple of a tuple is that tuple.
        source.__arrow_c_array__ = functools.partial(tuple, (
            new_capsule(ctypes.addressof(schema), b"arrow_schema", None),
            new_capsule(ctypes.addressof(array), b"arrow_array", None)))
        return source

    return make


structs = []            # which the capsules do not keep alive
given = []              # capsules and arrays of this attempt: consumed ones are owed a deleter


def interface(**entries):
    array = paths.numbers()
    return types.SimpleNamespace(array=array, __array_interface__=array.__array_interface__ | entries)


ARRAY = paths.numbers()
TENSOR = dlbridge.asdlpack(ARRAY)
READ_ONLY_TENSOR = dlbridge.asdlpack(b"Hello, world", readonly="error")
NAMES = (
    "ndarray", "ndarray of 0 axes", "ndarray without elements", "reversed ndarray", "transposed ndarray",
    "swapped ndarray", "field of records", "bytes", "bytearray", "memoryview", "array.array",
)
SOURCES = {
    **{name: paths.SOURCES[name] for name in NAMES},
    "read-only ndarray": lambda: np.frombuffer(b"Hello, world", "float32"),
    "broadcast ndarray": lambda: np.broadcast_to(np.float32(1), (3, 4)),
    "ndarray of objects": lambda: np.array([None]),
    "interface": interface,
    "interface that lies": lambda: interface(shape=(-1, 4)),
    "interface over a buffer": lambda: interface(data=bytearray(48), offset=0, strides=None),
    "interface beyond its buffer": lambda: interface(data=bytearray(40), offset=0, strides=None),
    "interface with a bad offset": lambda: interface(data=bytearray(48), offset=49, strides=None),
    "interface of swapped bytes": lambda: interface(typestr=">f4"),
    "struct": lambda: types.SimpleNamespace(__array_struct__=paths.numbers().__array_struct__),
    "bound method": lambda: Bound(paths.numbers()),
    "registered": lambda: Registered(paths.numbers()),
    "capsule": capsules_over(),
    "read-only capsule": capsules_over(flags=abi.READ_ONLY),
    "legacy capsule": capsules_over(versioned=False),
    "capsule that lies": capsules_over(shape=(-1, 3)),
    "capsule of version 2": capsules_over(version=(2, 0)),
    "Arrow array": arrows(),
    "Arrow array with nulls": arrows(null_count=2),
    "Arrow array that lies": arrows(offset=-1),
    "buffer of another format": lambda: view_of(ARRAY, format=b"w"),
    "buffer with suboffsets": lambda: view_of(ARRAY, suboffsets=(0, -1)),
    "buffer that lies": lambda: view_of(ARRAY, len=40),
    "exchange API of another type": lambda: Pretending(),
    "no array": lambda: Refused(),
    "Tensor": lambda: TENSOR,
    "read-only Tensor": lambda: READ_ONLY_TENSOR,
}


# ---- uses without code in Python -------------------------------------------------------------------------------------

def uses_of(targets):
    options = {**paths.OPTIONS, ", read-only is an error": {"readonly": "error"}}
    return {
        f"to {target}{suffix}": functools.partial(dlbridge.convert, to=target, **keywords)
        for target in targets for suffix, keywords in options.items()
    }


USES = uses_of(["numpy", "memoryview", "dlpack", "dlbridge", "failing"]) | {
    "to a namespace": functools.partial(dlbridge.convert, to=types.SimpleNamespace(from_dlpack=np.from_dlpack)),
    "to another device": functools.partial(dlbridge.convert, to="numpy", device="cuda:0"),
    "to no target": functools.partial(dlbridge.convert, to=object()),
    "on a wrong stream": functools.partial(dlbridge.convert, to="numpy", stream=0),
    "as bytes": functools.partial(dlbridge.convert, to="numpy", dtype="int8", shape=(-1, 1)),
    "into an array": functools.partial(dlbridge.convert, to="numpy", out=np.zeros(3)),
    "asdlpack": dlbridge.asdlpack,
    "from_dlpack, copied": functools.partial(dlbridge.from_dlpack, copy=True),
    "to_dlpack": functools.partial(dlbridge.to_dlpack, max_version=(1, 0)),
    "to_dlpack, legacy": dlbridge.to_dlpack,
}
call = operator.methodcaller
# What draws is Python over plain data and owns nothing, in thousands of allocations: the Tensor's part alone is tried.
picture.of_tensor = lambda *facts: ""
TENSOR_USES = {
    "__dlpack__": call("__dlpack__"),
    "__dlpack__, versioned": call("__dlpack__", max_version=(1, 3)),
    "__dlpack__, copied": call("__dlpack__", copy=True),
    "__dlpack__, never copied": call("__dlpack__", copy=False),
    "__dlpack__ elsewhere": call("__dlpack__", dl_device=(2, 0)),
    "__dlpack_device__": call("__dlpack_device__"),
    "__array_interface__": operator.attrgetter("__array_interface__"),
    "__array_struct__": operator.attrgetter("__array_struct__"),
    "__cuda_array_interface__": operator.attrgetter("__cuda_array_interface__"),
    "pickled": call("__reduce__"),
    "memoryview": memoryview,
    "repr": repr,
    "HTML": call("_repr_html_"),
    "owner": operator.attrgetter("owner"),
    "numpy.from_dlpack": np.from_dlpack,
}


# ---- one failure after the other -------------------------------------------------------------------------------------

def consumed(thing):
    return thing.release is None if type(thing) is ArrowArray else capsule_name(thing).startswith(b"used")


def elements(source):
    """The values of a source, or why there are none; a capsule is only looked at."""
    try:
        if type(source) is CAPSULE:
            return str(dlbridge.explain(source, "dlbridge"))
        return dlbridge.asdlpack(source).__reduce__()[1][0]
    except dlbridge.DLBridgeError as error:
        return str(error)


CAPSULE = type(dlbridge.to_dlpack(ARRAY))


class Path(NamedTuple):
    make: Callable[[], Any]
    use: Callable[[Any], Any]

    def go(self, first=NEVER, last=NEVER):
        """Go the path while the allocations from the first to the last fail.

        The error, how many allocations there were, references to the source, and what it is afterwards.
        """
        source = self.make()
        references = sys.getrefcount(source)
        error = None
        try:
            arm(first, last)
            self.use(source)
            disarm()
        except BaseException as raised:
            disarm()
            error = type(raised)
        gained = sys.getrefcount(source) - references
        count = calls()
        return error, count, gained, None if any(map(consumed, given)) else elements(source)

    def settle(self):
        """Drop what is left of a path; how many deleters ran beyond those that were due."""
        gc.collect()
        due = sum(map(consumed, given))
        given.clear()
        return deleted() - due

    def lost(self, first, last):
        """Blocks that are lost each time: others come and go with what the interpreter keeps in stock."""
        for times in (2, 40, 200):
            before = live()
            for _ in range(times):
                self.go(first, last)
                self.settle()
            if live() - before < times:
                return 0
        return (live() - before) // times

    def fail_each(self, lasting):
        """Let each allocation fail in turn, or all from it on; how often which error came, and what was wrong."""
        sound = elements(self.make())
        for _ in range(3):
            expected = self.go()
            self.settle()
        outcomes, wrong = Counter(), []
        for number in range(1, MOST):
            last = NEVER if lasting else number
            error, count, gained, values = self.go(number, last)
            if count < number:
                break
            again, _, _, _ = self.go()
            surplus = self.settle()
            blocks = self.lost(number, last)
            outcomes[str(error)] += 1
            wrong += [f"allocation {number}, {error}: {text}" for text, is_so in (
                ("is no MemoryError", error not in (MemoryError, expected[0])),
                (f"{gained} references to the source", gained != expected[2]),
                (f"the source is {values}", values not in (None, sound)),
                (f"{surplus} deleters too many", surplus),
                (f"another time it is {again}", again != expected[0]),
                (f"{blocks} blocks are lost", blocks),
            ) if is_so]
        return outcomes, wrong


def fail_all(make, uses):
    """Go all paths from one source; by path the outcomes, and what was wrong."""
    gc.collect()
    gc.freeze()             # what is there already need not be gone through each time
    gc.disable()
    return {
        use + (", lastingly" if lasting else ""): Path(make, uses[use]).fail_each(lasting)
        for use in uses for lasting in (False, True)}


def main():
    cases = {name: (make, USES) for name, make in SOURCES.items()}
    cases |= {f"{name} itself": (SOURCES[name], TENSOR_USES) for name in ("Tensor", "read-only Tensor")}
    part = slice(*(int(bound) if bound else None for bound in sys.argv[1].split(":")))
    found = {}
    for index, (name, (make, uses)) in list(enumerate(cases.items()))[part]:
        if sys.argv[2:] != ["full"]:
            uses = dict(list(uses.items())[index // 2 % 2::2])      # half of them, the other half two sources later
        child = run_in_child(fail_all, make, uses, seconds=600)
        found[name] = [child.value or {}, f"{child.signal or ''} {child.error or ''} {child.stderr}".strip()]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
