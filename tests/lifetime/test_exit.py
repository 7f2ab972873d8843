"""The end of the interpreter and the fork of a process: what was made before may be there, and nothing is said of it.

test_lifetime.py has the ends of ordinary programs; here other threads, and what runs late, come into it.
"""

import re
import textwrap

import pytest
from support.children import run_program
from support.compiling import compiled

PRELUDE = """
import atexit, ctypes, functools, gc, os, sys, threading, time, weakref
import numpy
import dlbridge
from dlbridge import asdlpack, convert

TARGETS = ("numpy", "memoryview", "dlpack", "dlbridge")
SOURCES = {
    "ndarray": lambda: numpy.zeros(64, "float32"),
    "bytes": lambda: bytes(64),
    "bytearray": lambda: bytearray(64),
    "Tensor": lambda: asdlpack(bytearray(64)),
    "capsule": lambda: convert(bytearray(64), "dlpack"),
    "swapped": lambda: numpy.zeros(64, ">f4"),
}

def convert_all(convert=convert, sources=tuple(SOURCES.values()), targets=TARGETS):
    return [convert(make(), target) for make in sources for target in targets]

def start(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread

convert_all()
"""


def run(program, *arguments):
    """Run a program that must end well and without a word."""
    return run_program(PRELUDE + textwrap.dedent(program), "-W", "error", arguments=arguments, quiet=True)


# ---- at exit ---------------------------------------------------------------------------------------------------------

ENDINGS = {
    "weak references that call back": """
        class Array(numpy.ndarray):
            pass
        made = [numpy.zeros(4).view(Array) for _ in range(4)]
        kept = [convert(array, target) for array, target in zip(made, TARGETS)]
        watched = [weakref.ref(array, lambda _, convert_all=convert_all: convert_all()) for array in made]
        weakref.finalize(made[0], convert_all)
        late = Late = type("Late", (), {})()
        late.itself = late
        ended = weakref.ref(late, lambda _, kept=kept: kept.clear())
        del made
    """,
    "results in the locals of a thread, of a context and of a traceback": """
        import contextvars
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
    """,
    "a finalizer that runs among the last": """
        class Late:
            def __init__(self):
                self.kept = convert_all()
            def __del__(self, convert_all=convert_all):
                self.made = convert_all()
        sys.late = Late()
        sys.modules["builtins"].late = Late()
    """,
    "a finalizer that lets results go while another thread waits for the interpreter": """
        def wait(event=threading.Event()):
            kept = convert_all()
            event.wait()
        start(wait)
        class Late:
            def __init__(self):
                self.kept = convert_all()
            def __del__(self, sleep=time.sleep):
                sleep(0.05)
                self.kept.clear()
        late = Late()
        late.itself = late
    """,
    "a thread that is no daemon": """
        def go_on(main=threading.main_thread()):
            main.join()
            kept = convert_all()
        threading.Thread(target=go_on).start()
    """,
    "large copies by daemon threads": """
        def copy(source=numpy.zeros((2048, 1024), ">f4").T):
            while True:
                convert(source, "numpy", copy=True)
        threads = [start(copy) for _ in range(3)]
        time.sleep(0.02)
    """,
    "a chain of owners": """
        kept = numpy.zeros(4)
        for _ in range(10_000):
            kept = convert(convert(convert(kept, "memoryview"), "numpy"), "dlbridge")
    """,
    "a registered source and a registered target": """
        class Source:
            array = numpy.zeros(4)
        dlbridge.register_source(Source, lambda source: source.array)
        dlbridge.register_target("own", lambda tensor: (tensor, convert_all()))
        class Late:
            def __del__(self, convert=convert, Source=Source):
                self.made = convert(Source(), "own")
        late = Late()
        late.itself = late
        kept = convert(Source(), "own")
    """,
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_interpreter_ends_in_silence(ending):
    run(ending)


def test_what_was_used_before_works_while_nothing_can_be_imported():
    """And of what was not it is said."""
    output = run_program("""
        import sys, numpy, dlbridge
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
    """)
    assert re.fullmatch(r"UnsupportedError import: module dlbridge\._core\.sources\.\w+: cannot be imported, since "
                        r"Python goes down \(call the same function with the same kinds of arrays before\)\n", output)


# Without one, CPython 3.13 stops a daemon thread that holds the lock of an object, and waits for that lock at the end.
@pytest.mark.needs("a GIL")
@pytest.mark.parametrize("delay", range(6))
def test_daemon_threads_convert_until_the_end(delay):
    """At another moment each time, for what matters is where the end finds them."""
    run(f"""
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
        time.sleep({delay * 0.003})
    """)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled("deleters.c", tmp_path_factory.mktemp("deleters"))


@pytest.mark.needs("an end beside threads of C")
@pytest.mark.parametrize("microseconds", [0, 20, 200])
@pytest.mark.parametrize("owner", ["bytearray(64)", "numpy.zeros(8)", "asdlpack(b'abc')", "numpy.zeros(8, '>f4')"])
def test_threads_that_python_never_saw_let_go_until_the_end(library, owner, microseconds):
    """Before the end, while it is going on, and after it."""
    run(f"""
        from dlbridge.testing import abi
        from dlbridge.testing.producers import capsule_pointer, rename_capsule
        library = ctypes.CDLL(sys.argv[1])
        used = ctypes.c_char_p(b"used_dltensor_versioned")
        def started(count=300):
            tensors, deleters = (ctypes.c_void_p * count)(), (ctypes.c_void_p * count)()
            for index in range(count):
                capsule = dlbridge.to_dlpack({owner}, max_version=(1, 0))
                tensors[index] = capsule_pointer(capsule, abi.VERSIONED_NAME)
                struct = abi.DLManagedTensorVersioned.from_address(tensors[index])
                deleters[index] = ctypes.cast(struct.deleter, ctypes.c_void_p).value
                rename_capsule(capsule, used)
            pause = ctypes.c_long({microseconds})
            return lambda: library.start_letting_go(ctypes.c_long(count), deleters, tensors, pause)
        starts = [started() for _ in range(3)]
        sys.kept = used, library        # what C has the address of lives as long as the process
        class Slow:
            def __del__(self, sleep=time.sleep):
                sleep(0.03)             # of the main thread, which ends everything, without the GIL
        slow = Slow()
        slow.itself = slow
        for each in starts:
            assert each() == 0
    """, library)


@pytest.mark.needs("torch", "jax")
def test_results_of_torch_and_jax_live_to_the_end():
    run("""
        import jax, torch
        jax.config.update("jax_platforms", "cpu")
        settled = jax.numpy.zeros(64, "float32")
        sources = [*SOURCES.values(), lambda: torch.zeros(64), lambda: settled]
        targets = [*TARGETS, "torch", "jax"]
        convert_everything = functools.partial(convert_all, sources=sources, targets=targets)
        kept = convert_everything()
        sys.kept = convert_everything()
        late = [convert_everything()]
        late.append(late)
        atexit.register(kept.clear)
        atexit.register(convert_everything)
    """)


# ---- fork ------------------------------------------------------------------------------------------------------------

# The child ends as any program does: what it inherited is let go, and what its atexit functions do is done.
FORK = """
def fork(in_child):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        import signal
        signal.alarm(20)        # rather than to wait for ever for a thread that is not there
        in_child()
        sys.exit()
    status = os.waitpid(child, 0)[1]
    assert status == 0, status
"""


def run_forking(program):
    # From Python 3.12 on, a fork beside other threads is warned of: that is what is tested.
    return run(FORK + 'import warnings\nwarnings.filterwarnings("ignore", "This process", DeprecationWarning)\n'
               + textwrap.dedent(program))


def test_forked_child_uses_and_drops_what_it_inherited():
    run_forking("""
        memory = bytearray(range(64))
        kept = [convert(memory, target) for target in TARGETS]
        others = convert_all()
        def in_child():
            assert kept[0].sum() == sum(range(64)) and kept[1][7] == 7 and kept[3].shape == (64,)
            assert convert(kept[2], "numpy")[7] == 7
            convert_all()
            others.clear()
            kept.clear()
            gc.collect()
            memory.extend(b"more")      # nobody has it any more
        fork(in_child)
        assert kept[0].sum() == sum(range(64)) and convert(kept[2], "numpy")[7] == 7
        fork(lambda: None)              # and who does nothing drops it too
    """)


@pytest.mark.needs("a GIL")     # the lock of an object may be held by a thread that the child does not have
def test_forked_child_of_a_process_with_busy_threads():
    run_forking("""
        def work():
            while True:
                convert_all()
        for _ in range(3):
            start(work)
        kept = convert_all()
        for _ in range(20):
            fork(lambda: (convert_all(), kept.clear(), gc.collect()))
    """)


# A target is read off under a lock, by code of its namespace's own.
READ_OFF = """
class Namespace:
    from_dlpack = staticmethod(numpy.from_dlpack)
    def __init__(self, function):
        self.function = function
    @property
    def __version__(self):
        self.function()
        return "1"
"""


def test_forked_child_while_another_thread_reads_off_a_target():
    run_forking(READ_OFF + textwrap.dedent("""
        inside, over = threading.Event(), threading.Event()
        thread = start(lambda: convert(b"abc", Namespace(lambda: (inside.set(), over.wait()))))
        inside.wait()
        fork(lambda: convert(b"abc", Namespace(lambda: None)))
        over.set()
        thread.join()
        convert(b"abc", Namespace(lambda: None))
    """))


def test_fork_in_the_middle_of_reading_off_a_target():
    run_forking(READ_OFF + textwrap.dedent("""
        forked = []
        def divide():
            if not forked:
                forked.append(os.fork())
        assert convert(b"abc", Namespace(divide)).tolist() == [97, 98, 99]
        assert convert(b"abc", Namespace(divide)).tolist() == [97, 98, 99]
        if forked[0]:
            assert os.waitpid(forked[0], 0)[1] == 0
    """))


@pytest.mark.parametrize("target", ["numpy", "memoryview", "dlpack", "dlbridge"])
def test_fork_in_the_middle_of_a_conversion_and_of_a_release(target):
    run_forking(f"""
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
        result = convert(Dividing(), {target!r})
        assert convert(result, "numpy").tolist() == [0, 1, 2]
        array = numpy.zeros(3).view(Array)
        result = convert(array, {target!r})
        del array, result
        convert_all()
        assert len(times) == 2
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
    """)
