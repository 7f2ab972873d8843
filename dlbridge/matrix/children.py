"""Functions in fresh interpreters, several at a time: a signal, an exit and a wait without end are outcomes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
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
    """Call all, as many at a time as there are CPUs; ``tick(how many are done, which was the last)``."""
    return asyncio.run(ask_all(calls, tick, seconds))


async def ask_all(
    calls: Mapping[Key, Call], tick: Callable[[int, Key], None], seconds: float,
) -> dict[Key, Ended]:
    room = asyncio.Semaphore(cpus())
    found: dict[Key, Ended] = {}

    async def ask_one(key: Key, call: Call) -> None:
        async with room:
            found[key] = await child(call.command(), seconds)
            tick(len(found), key)

    tasks: list[Awaitable[None]] = [ask_one(key, call) for key, call in calls.items()]
    await asyncio.gather(*tasks)
    return {key: found[key] for key in calls}


async def child(command: list[str], seconds: float) -> Ended:
    """One of them; whatever happens here, it is gone afterwards."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=os.environ | QUIET)
    try:
        out, error = await asyncio.wait_for(process.communicate(), seconds)
    except asyncio.TimeoutError:
        return Ended(trouble=f"no answer after {seconds:g} s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):      # it may end meanwhile
                process.kill()
            await process.wait()
    if process.returncode == 0 and out:
        return Ended(json.loads(out))
    return Ended(trouble=ending(process.returncode or 0, out, error))


def ending(status: int, out: bytes, error: bytes) -> str:
    """How a child ended that should not have: the signal or the exit code, and the last that it had to say."""
    how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    when = " at exit, after the conversion" if out else ""
    last = error.decode(errors="replace").strip().rpartition("\n")[2].strip()
    return f"{how}{when}{': ' + last if last else ''}"
