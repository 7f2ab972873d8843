"""Functions in fresh interpreters, several at a time: a signal, an exit and a wait without end are outcomes."""

import json
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from subprocess import DEVNULL, Popen, TimeoutExpired
from tempfile import TemporaryFile
from threading import Thread, current_thread, main_thread
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GLOG_minloglevel": "2"}
SIGNALS = {number.value: number.name for number in signal.Signals}
LONGEST = 1 << 20
ANSWER = re.compile(rb"\n\x1e(.*)\n\Z")         # after whatever is printed while Python starts
Key = TypeVar("Key", bound=Hashable)


class Call(NamedTuple):
    """A function of a module; arguments and result are what JSON has."""

    module: str
    function: str
    arguments: tuple[str, ...]

    def command(self, seconds: float) -> list[str]:
        """The same modules are found as here, in whatever folder; it ends, also if nobody is left to end it."""
        path = [folder for folder in sys.path if isinstance(folder, str)]
        code = (f"import signal, sys; signal.alarm({math.ceil(seconds) + 1}); sys.path[:] = {path!r}; "
                f"from dlbridge.matrix.pair import answer; from {self.module} import {self.function}; "
                f"answer({self.function}, *{self.arguments!r})")
        return [sys.executable, "-c", code]


class Ended(NamedTuple):
    """What a child answered, or what ended it."""

    value: Any = None
    trouble: str = ""


def cpus() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ask(calls: Mapping[Key, Call], tick: Callable[[int, Key], None], seconds: float) -> dict[Key, Ended]:
    """Call all, as many at a time as there are CPUs; ``tick(how many are done, which was the last)``."""
    found: dict[Key, Ended] = {}
    children = Children(calls, seconds)
    with interrupt_key(lambda: children.ended.put(None)):
        try:
            children.start()
            while len(found) < len(calls):
                ended = children.ended.get()
                if ended is None:
                    raise KeyboardInterrupt
                found[ended[0]] = ended[1]
                tick(len(found), ended[0])
        finally:
            children.stop()
    return {key: found[key] for key in calls}


@contextmanager
def interrupt_key(call: Callable[[], object]) -> Iterator[None]:
    """Meanwhile the key calls this; else it would raise wherever Python is, also while things are put in order."""
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Children(Generic[Key]):
    """Processes that may take so many seconds each, and are gone after :meth:`stop`.

    Plain threads and a queue that a signal's handler may use: asyncio complains on stderr where the interrupt key comes
    while a child is being started (CPython 3.13), and the futures of a pool stay locked (3.11).
    """

    def __init__(self, calls: Mapping[Key, Call], seconds: float) -> None:
        self.seconds = seconds
        self.waiting = list(calls.items())[::-1]
        self.ended: SimpleQueue[tuple[Key, Ended] | None] = SimpleQueue()      # None: the interrupt key
        self.running: set[Popen[bytes]] = set()
        self.stopped = False
        self.threads = [Thread(target=self.work, daemon=True) for _ in range(min(cpus(), len(calls)))]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.running):
            kill(process)
        for thread in self.threads:
            if thread.is_alive():
                thread.join()

    def work(self) -> None:
        while not self.stopped:
            try:
                key, call = self.waiting.pop()
            except IndexError:
                return
            try:
                ended = self.run(call.command(self.seconds))
            except Exception as error:          # no descriptors or no memory left for another process
                ended = Ended(trouble=f"{type(error).__name__}: {error}")
            self.ended.put((key, ended))

    def run(self, command: list[str]) -> Ended:
        """In a session of its own, so that what it has started goes with it; into files, which nobody holds open."""
        with TemporaryFile() as out, TemporaryFile() as error, Popen(
            command, stdin=DEVNULL, stdout=out, stderr=error, env=os.environ | QUIET, start_new_session=True,
        ) as process:
            self.running.add(process)
            if self.stopped:                    # before it was added; afterwards stop() sees it
                kill(process)
            try:
                status = process.wait(self.seconds)
            except TimeoutExpired:
                return Ended(trouble=f"no answer after {self.seconds:g} s")
            finally:
                kill(process)
                self.running.discard(process)
            answer = ANSWER.search(end_of(out))
            if status == 0 and answer:
                return Ended(json.loads(answer[1]))
            return Ended(trouble=ending(status, bool(answer), end_of(error)))


def kill(process: Popen[bytes]) -> None:
    """The child, if it runs, and whatever it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def end_of(file: BinaryIO) -> bytes:
    """As much as anybody can want."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST))
    return file.read()


def ending(status: int, answered: bool, error: bytes) -> str:
    """How a child ended that should not have: the signal or the exit code, and the last that it had to say."""
    how = f"exit code {status}" if status >= 0 else SIGNALS.get(-status, f"signal {-status}")
    when = " at exit, after the conversion" if answered else ""
    last = error.decode(errors="replace").strip().rpartition("\n")[2].strip()
    return f"{how}{when}{': ' + last if last else ''}"
