"""The end of the interpreter and the fork of a process: what was made before may be there, and nothing is said of it.

test_lifetime.py has the ends of ordinary programs; here other threads, and what runs late, come into it.
"""

import re

import pytest
from support.children import body_of, in_child, run_script
from support.compiling import compiled

# From Python 3.12 on, a fork beside other threads is warned of: that is what is tested.
beside_threads = in_child(says="", warnings="ignore::DeprecationWarning")


# ---- at exit ---------------------------------------------------------------------------------------------------------

@in_child(says="converted\n" * 4)
def test_weak_references_call_back_at_the_end():
    import ctypes
    import os
    import sys
    import weakref

    import numpy
    from lifetime.ending import TARGETS, convert, convert_all

    class Array(numpy.ndarray):
        pass

    arrays = [numpy.zeros(4).view(Array) for _ in range(4)]
    sys.kept = [convert(array, target) for array, target in zip(arrays, TARGETS, strict=True)]

    def call_back(_, convert_all=convert_all, write=os.write):
        convert_all()
        write(1, b"converted\n")

    # They are alive when the arrays go, which is after all that is in a module.
    watched = [weakref.ref(array, call_back) for array in arrays]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(watched))
    del arrays


@in_child(says="")
def test_the_locals_of_a_thread_of_a_context_and_of_a_traceback_end():
    import contextvars
    import threading

    from lifetime.ending import convert_all

    local, variable = threading.local(), contextvars.ContextVar("kept")
    local.kept = convert_all()
    variable.set(convert_all())

    def fail():
        kept = convert_all()
        raise ValueError

    try:
        fail()
    except ValueError as raised:
        error = raised


@in_child(says="converted\nconverted\n")
def test_a_finalizer_runs_among_the_last():
    import os
    import sys

    from lifetime.ending import convert_all

    class Late:
        def __init__(self):
            self.kept = convert_all()

        def __del__(self, convert_all=convert_all, write=os.write):
            self.made = convert_all()
            write(1, b"converted\n")

    sys.late = Late()
    sys.modules["builtins"].late = Late()


@in_child(says="dropped\n")
def test_a_finalizer_drops_results_while_another_thread_waits_for_the_interpreter():
    import os
    import sys
    import threading
    import time

    from lifetime.ending import convert_all, start

    ready = threading.Event()

    def work():
        while True:
            kept = convert_all()
            ready.set()

    class Late:
        def __init__(self):
            self.kept = convert_all()

        def __del__(self, sleep=time.sleep, write=os.write):
            sleep(0.05)         # the thread asks for the interpreter meanwhile
            self.kept.clear()
            write(1, b"dropped\n")

    start(work)
    ready.wait()
    sys.late = Late()       # the frame of the thread keeps the globals of this module, and what is in them


@in_child(says="converted\n")
def test_a_thread_that_is_no_daemon_ends():
    import os
    import threading

    from lifetime.ending import convert_all

    def go_on(main=threading.main_thread()):
        main.join()
        kept = convert_all()
        os.write(1, b"converted\n")

    threading.Thread(target=go_on).start()


@in_child(says="")
def test_large_copies_of_daemon_threads_end():
    import threading

    import numpy
    from lifetime.ending import convert, start

    source, barrier = numpy.zeros((8192, 2048), ">f4").T, threading.Barrier(3)      # by several threads each

    def copy(source=source, convert=convert):
        convert(source, "numpy", copy=True)
        barrier.wait()
        while True:
            convert(source, "numpy", copy=True)

    threads = [start(copy) for _ in range(2)]
    barrier.wait()


@in_child(says="")
def test_a_chain_of_owners_ends():
    import numpy
    from lifetime.ending import convert

    kept = numpy.zeros(4)
    for _ in range(10_000):
        kept = convert(convert(convert(kept, "memoryview"), "numpy"), "dlbridge")


@in_child(says="converted\n")
def test_a_registered_source_and_a_registered_target_end():
    import os
    import sys

    import numpy
    from lifetime.ending import convert, convert_all

    import dlbridge

    class Source:
        array = numpy.zeros(4)

    dlbridge.register_source(Source, lambda source: source.array)
    dlbridge.register_target("own", lambda tensor, convert_all=convert_all: (tensor, convert_all()))

    class Late:
        def __del__(self, convert=convert, Source=Source, write=os.write):
            self.made = convert(Source(), "own")
            write(1, b"converted\n")

    sys.late = Late()       # what is registered keeps the globals of this module, and what is in them
    kept = convert(Source(), "own")


def use_while_nothing_can_be_imported():
    import sys

    import numpy

    import dlbridge

    class Struct:
        def __init__(self, array):
            self.__array_struct__ = array.__array_struct__

    class Late:
        def __init__(self):
            self.convert, self.array, self.print = dlbridge.convert, numpy.zeros(4, "u1"), print
            self.struct = Struct(self.array)

        def __del__(self):
            assert sys.meta_path is None
            self.convert(self.array, "numpy", out=numpy.ones(4, "u1"))
            self.convert(self.array, "numpy", dtype="int16")
            try:
                self.convert(self.struct, "numpy")
            except Exception as error:
                self.print(type(error).__name__, error)

    late = Late()
    late.convert(late.array, "numpy", out=numpy.ones(4, "u1"))
    late.convert(late.array, "numpy", dtype="int16")
    sys.modules["kept"] = late
    del late


def test_what_was_used_before_works_while_nothing_can_be_imported():
    """And of what was not it is said."""
    ended = run_script(body_of(use_while_nothing_can_be_imported))
    assert re.fullmatch(r"UnsupportedError import: module dlbridge\._core\.sources\.\w+: cannot be imported, since "
                        r"Python goes down \(call the same function with the same kinds of arrays before\)\n",
                        ended.stdout + ended.stderr)


# Without one, CPython 3.13 stops a daemon thread that holds the lock of an object, and waits for that lock at the end.
@pytest.mark.needs("a GIL")
@pytest.mark.parametrize("delay", range(6))
@in_child(says="")
def test_daemon_threads_convert_until_the_end(delay):
    """At another moment each time, for what matters is where the end finds them."""
    import threading
    import time

    from lifetime.ending import TARGETS, asdlpack, convert, convert_all, start

    barrier = threading.Barrier(5)
    shared = asdlpack(bytearray(64))

    def work():
        kept = []
        barrier.wait()
        while True:
            kept[:] = convert_all() + [convert(shared, target) for target in TARGETS]

    for _ in range(4):
        start(work)
    barrier.wait()
    time.sleep(delay * 0.003)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return str(compiled("deleters.c", tmp_path_factory.mktemp("deleters")))


@pytest.mark.needs("an end beside threads of C")
@pytest.mark.parametrize("microseconds", [0, 20, 200])
@pytest.mark.parametrize("owner", ["bytearray(64)", "numpy.zeros(8)", "asdlpack(b'abc')", "numpy.zeros(8, '>f4')"])
@in_child(says="")
def test_threads_that_python_never_saw_let_go_until_the_end(library, owner, microseconds):
    """Before the end, while it is going on, and after it."""
    import ctypes
    import sys
    import time

    from lifetime.ending import asdlpack, numpy, started_deleters  # noqa: F401 (owners are made of them)

    library, kept = ctypes.CDLL(library), []
    starts = [started_deleters(library, lambda: eval(owner), microseconds, kept) for _ in range(3)]
    sys.kept = kept, library

    class Slow:
        def __del__(self, sleep=time.sleep):
            sleep(0.03)             # of the main thread, which ends everything, without the GIL

    slow = Slow()
    slow.itself = slow
    for each in starts:
        assert each() == 0


@pytest.mark.needs("torch", "jax")
@in_child(says="60 converted\n")
def test_results_of_torch_and_jax_live_to_the_end():
    import atexit
    import functools
    import sys

    import jax
    import numpy
    import torch
    from lifetime.ending import SOURCES, TARGETS, convert_all

    from dlbridge.testing.producers import Producer

    jax.config.update("jax_platforms", "cpu")
    settled = jax.numpy.zeros(64, "float32")
    sources = [*SOURCES.values(), lambda: torch.zeros(64), lambda: settled, lambda: Producer(numpy.zeros(64, "f4")),
               lambda: Producer(numpy.zeros(64, "f4")).capsule()]
    convert_everything = functools.partial(convert_all, sources=sources, targets=[*TARGETS, "torch", "jax"])
    kept = convert_everything()
    sys.kept = convert_everything()
    late = [convert_everything()]
    late.append(late)
    garbage = [convert_everything()]
    garbage.append(garbage)
    del garbage
    atexit.register(kept.clear)
    atexit.register(lambda: print(len(convert_everything()), "converted"))


# ---- fork ------------------------------------------------------------------------------------------------------------

@beside_threads
def test_forked_child_uses_and_drops_what_it_inherited():
    import gc

    from lifetime.ending import TARGETS, convert, convert_all, fork

    memory = bytearray(range(64))
    kept = [convert(memory, target) for target in TARGETS]
    others = convert_all()

    def in_child():
        assert kept[0].sum() == sum(range(64))
        assert kept[1][7] == 7
        assert kept[3].shape == (64,)
        assert convert(kept[2], "numpy")[7] == 7
        convert_all()
        others.clear()
        kept.clear()
        gc.collect()
        memory.extend(b"more")      # nobody has it any more

    fork(in_child)
    assert kept[0].sum() == sum(range(64))
    assert convert(kept[2], "numpy")[7] == 7
    fork(lambda: None)              # and who does nothing drops it too


@pytest.mark.needs("a GIL")     # the lock of an object may be held by a thread that the child does not have
@beside_threads
def test_forked_child_of_a_process_with_busy_threads():
    import gc

    from lifetime.ending import convert_all, fork, start

    def work():
        while True:
            convert_all()

    for _ in range(3):
        start(work)
    kept = convert_all()
    for _ in range(20):
        fork(lambda: (convert_all(), kept.clear(), gc.collect()))


@beside_threads
def test_forked_child_while_another_thread_reads_off_a_target():
    import threading

    from lifetime.ending import Namespace, convert, fork, start

    inside, over = threading.Event(), threading.Event()
    thread = start(lambda: convert(b"abc", Namespace(lambda: (inside.set(), over.wait()))))
    inside.wait()
    fork(lambda: convert(b"abc", Namespace(lambda: None)))
    over.set()
    thread.join()
    convert(b"abc", Namespace(lambda: None))


@beside_threads
def test_fork_in_the_middle_of_reading_off_a_target():
    import os

    from lifetime.ending import Namespace, convert

    forked = []

    def divide():
        if not forked:
            forked.append(os.fork())

    assert convert(b"abc", Namespace(divide)).tolist() == [97, 98, 99]
    assert convert(b"abc", Namespace(divide)).tolist() == [97, 98, 99]
    if forked[0]:
        assert os.waitpid(forked[0], 0)[1] == 0


@pytest.mark.parametrize("target", ["numpy", "memoryview", "dlpack", "dlbridge"])
@beside_threads
def test_fork_in_the_middle_of_a_conversion_and_of_a_release(target):
    import os

    import numpy
    from lifetime.ending import convert, convert_all

    times, children = [], []

    def divide():
        times.append(None)
        child = os.fork()
        if child:
            children.append(child)
        else:
            children.clear()        # they are the parent's

    class Dividing:
        def __dlpack__(self, **keywords):
            divide()
            return numpy.arange(3).__dlpack__()

    class Array(numpy.ndarray):
        def __del__(self):
            divide()

    result = convert(Dividing(), target)
    assert convert(result, "numpy").tolist() == [0, 1, 2]
    array = numpy.zeros(3).view(Array)
    result = convert(array, target)
    del array, result
    convert_all()
    assert len(times) == 2
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
