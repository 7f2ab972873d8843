"""Functions that run in fresh interpreters, several at a time.

A signal, an exit and a wait without end are outcomes like any other.
"""

import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from subprocess import DEVNULL, Popen, TimeoutExpired
from tempfile import TemporaryFile
from threading import Thread, current_thread, main_thread
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from dlbridge.matrix.machine import cpus

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GLOG_minloglevel": "2"}
SIGNALS = {number.value: number.name for number in signal.Signals}
SILENT_SECONDS = 2      # a measurement that takes no longer shows no line
LONGEST = 1 << 20       # bytes of a child's output that are read, from its end
ANSWER = re.compile(rb"\n\x1e(.*)\n\Z")         # other text may stand before it, printed while Python starts
Key = TypeVar("Key", bound=Hashable)


class Call(NamedTuple):
    """A function of a module; its result is of types that JSON has."""

    module: str
    function: str
    arguments: tuple[str, ...]

    def command(self, seconds: float) -> list[str]:
        """Write the command that calls the function.

        The child has this process's ``sys.path``, so it finds the same modules in any folder. An alarm ends it, because
        this process may be gone by then; Windows has none.
        """
        path = [folder for folder in sys.path if isinstance(folder, str)]
        alarm = f"signal.alarm({math.ceil(seconds) + 1})" if hasattr(signal, "alarm") else "None"
        code = (f"import signal, sys; {alarm}; sys.path[:] = {path!r}; "
                f"from dlbridge.matrix.children import answer; from {self.module} import {self.function}; "
                f"answer({self.function}, *{self.arguments!r})")
        return [sys.executable, "-c", code]


class Ended(NamedTuple):
    """A child's answer, or what ended it."""

    value: Any = None
    trouble: str = ""


def progress(total: int) -> Callable[[int, tuple[str, ...]], None]:
    """Make a function that writes how far the measurement is, on a line of the terminal that it overwrites.

    It is called with the number done and the last names.
    """
    start = time.monotonic()

    def tick(done: int, names: tuple[str, ...]) -> None:
        if sys.stderr.isatty() and time.monotonic() - start > SILENT_SECONDS:
            line = f"{done}/{total}: {' -> '.join(names)}" if done < total else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return tick


def ask(calls: Mapping[Key, Call], tick: Callable[[int, Key], None], seconds: float) -> dict[Key, Ended]:
    """Call all, as many at a time as there are CPUs; ``tick`` gets how many are done, and the key of the last."""
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
    """Let the interrupt key call a function, because its exception could come while processes are being stopped."""
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Children(Generic[Key]):
    """Processes that may take ``seconds`` each, and are gone after :meth:`stop`.

    They are run by plain threads, and by a queue that a signal's handler may use. asyncio would complain on stderr if
    the interrupt key came while a child was being started (CPython 3.13), and the futures of a pool would stay locked
    (CPython 3.11).
    """

    def __init__(self, calls: Mapping[Key, Call], seconds: float) -> None:
        self.seconds = seconds
        self.waiting = list(calls.items())[::-1]
        self.ended: SimpleQueue[tuple[Key, Ended] | None] = SimpleQueue()      # None stands for the interrupt key
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
            except Exception as error:          # there is no descriptor or no memory left for a process
                ended = Ended(trouble=f"{type(error).__name__}: {error}")
            self.ended.put((key, ended))

    def run(self, command: list[str]) -> Ended:
        """Run a child, and wait for it.

        It has a session of its own, so that all processes that it starts can be killed with it. Its output goes into
        files: a pipe would stay open as long as such a process had it.
        """
        with TemporaryFile() as out, TemporaryFile() as error, Popen(
            command, stdin=DEVNULL, stdout=out, stderr=error, env=os.environ | QUIET, start_new_session=True,
        ) as process:
            self.running.add(process)
            if self.stopped:                    # stop() ran before this process was added, and did not see it
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
    """Kill the child, if it runs, and all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()                      # Windows has no process groups


def end_of(file: BinaryIO) -> bytes:
    """Read the last part of a file."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST))
    return file.read()


def ending(status: int, answered: bool, error: bytes) -> str:
    """Say how a child failed: the signal or the exit code, and the last line that it wrote to stderr."""
    how = f"exit code {status}" if status >= 0 else SIGNALS.get(-status, f"signal {-status}")
    when = " at exit, after the conversion" if answered else ""
    last = error.decode(errors="replace").strip().rpartition("\n")[2].strip()
    return f"{how}{when}{': ' + last if last else ''}"


# ---- in the child ----------------------------------------------------------------------------------------------------

def answer(function: Callable[..., Any], *arguments: Any) -> None:
    """Call the function, and write its result to standard output as JSON; what libraries print goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    text = json.dumps(function(*arguments))
    with os.fdopen(out, "w") as file:
        file.write(f"\n\x1e{text}\n")
