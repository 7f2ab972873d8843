"""Run a function in a forked child, so that a crash is an outcome and not the end of the test run. It needs POSIX."""

import contextlib
import os
import pickle
import select
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What became of a function that ran in a child."""

    value: Any
    error: BaseException | None     # what the function raised; a ChildProcessError if the child ended without an answer
    signal: str | None              # the signal that killed the child, such as "SIGSEGV"; "SIGALRM" if it ran too long
    stderr: str                     # everything that was written to the file descriptor

    def result(self) -> Any:
        """Give the value, or raise what the function raised; a child that was killed is a ChildProcessError."""
        if self.signal is not None:
            raise ChildProcessError(f"killed by {self.signal}\n{self.stderr}")
        if self.error is not None:
            raise self.error
        return self.value


def run_in_child(function: Callable[..., Any], *arguments: Any, seconds: int = 60) -> Outcome:
    """Call ``function(*arguments)`` in a forked child; what it returns must be picklable."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as stderr:
        with warnings.catch_warnings():
            # Fork warns if other threads run, such as JAX's. The child does not need those threads.
            warnings.simplefilter("ignore")
            child = os.fork()
        if not child:
            _be_child(function, arguments, answer, stderr, seconds)
        _end_by_then(child, seconds + 30)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        stderr.seek(0)
        text = stderr.read().decode(errors="replace")
        if os.WIFSIGNALED(status):
            return Outcome(None, None, signal.Signals(os.WTERMSIG(status)).name, text)
        if not os.fstat(answer.fileno()).st_size:       # a sanitizer ends the process in this way
            ended = ChildProcessError(f"no answer, and exit code {os.waitstatus_to_exitcode(status)}\n{text}")
            return Outcome(None, ended, None, text)
        value, error = pickle.load(answer)
        return Outcome(value, error, None, text)


def _end_by_then(child: int, seconds: int) -> None:
    """Kill a child that hangs before its alarm is set: the lock of a sanitizer's malloc() may be taken by a thread."""
    with contextlib.suppress(AttributeError, OSError):      # Linux from 5.3 on, and no emulator
        ended = os.pidfd_open(child)
        try:
            waiting = select.poll()
            waiting.register(ended, select.POLLIN)
            if not waiting.poll(1000 * seconds):
                os.kill(child, signal.SIGKILL)
        finally:
            os.close(ended)


def _be_child(function: Callable[..., Any], arguments: tuple[Any, ...], answer: Any, stderr: Any, seconds: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    os.dup2(stderr.fileno(), 2)
    sys.stderr = sys.__stderr__ or sys.stderr     # a test runner may have replaced it
    # A crash is expected here, and the parent reports it, so a dump of every thread is not wanted.
    if "faulthandler" in sys.modules:
        sys.modules["faulthandler"].disable()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)     # its kernels would wait for the threads that the parent had
    made: tuple[Any, BaseException | None]
    try:
        made = function(*arguments), None
    except BaseException as error:
        made = None, error
    try:
        text = pickle.dumps(made)
        pickle.loads(text)
    except Exception:
        text = pickle.dumps(
            (None, RuntimeError("".join(traceback.format_exception(made[1])) if made[1] else repr(made[0]))))
    answer.write(text)
    answer.flush()
    sys.stderr.flush()
    os._exit(0)
