"""Functions in fresh interpreters, several at a time: a signal, an exit and a wait without end are outcomes."""

import json
import os
import signal
import sys
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any, NamedTuple, TypeVar

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GLOG_minloglevel": "2"}
Key = TypeVar("Key", bound=Hashable)


class Call(NamedTuple):
    """A function of a module; arguments and result are what JSON has."""

    module: str
    function: str
    arguments: tuple[str, ...]

    def command(self) -> list[str]:
        """The same modules are found as here, whatever folder this is run in."""
        code = (f"import sys; sys.path[:] = {sys.path!r}; from dlbridge.matrix.pair import answer; "
                f"from {self.module} import {self.function}; answer({self.function}, *{self.arguments!r})")
        return [sys.executable, "-c", code]


class Ended(NamedTuple):
    """What a child answered, or what ended it."""

    value: Any = None
    trouble: str = ""


def cpus() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ask(calls: Mapping[Key, Call], tick: Callable[[int, Key], None], seconds: float) -> dict[Key, Ended]:
    """Call all, as many at a time as there are CPUs; ``tick(how many are done, which was the last)``.

    In threads, for asyncio complains on stderr where it ends while a child is being started (CPython 3.13).
    """
    found: dict[Key, Ended] = {}
    children = Children(seconds)
    with ThreadPoolExecutor(cpus()) as threads:
        try:
            keys = {threads.submit(children.run, call.command()): key for key, call in calls.items()}
            for future in as_completed(keys):
                found[keys[future]] = future.result()
                tick(len(found), keys[future])
        except BaseException:       # the interrupt key too
            threads.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise
    return {key: found[key] for key in calls}


class Children:
    """Processes that may take so many seconds each; whatever happens here, they are gone afterwards."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.running: set[Popen[bytes]] = set()
        self.stopped = False

    def run(self, command: list[str]) -> Ended:
        with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=os.environ | QUIET) as process:
            self.running.add(process)
            if self.stopped:        # before it was added; afterwards stop() sees it
                process.kill()
            try:
                out, error = process.communicate(timeout=self.seconds)
            except TimeoutExpired:
                return Ended(trouble=f"no answer after {self.seconds:g} s")
            finally:
                process.kill()
                self.running.discard(process)
        if process.returncode == 0 and out:
            return Ended(json.loads(out))
        return Ended(trouble=ending(process.returncode, out, error))

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.running):
            process.kill()


def ending(status: int, out: bytes, error: bytes) -> str:
    """How a child ended that should not have: the signal or the exit code, and the last that it had to say."""
    how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    when = " at exit, after the conversion" if out else ""
    last = error.decode(errors="replace").strip().rpartition("\n")[2].strip()
    return f"{how}{when}{': ' + last if last else ''}"
