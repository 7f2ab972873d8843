"""A lock that is free in a forked child, where the thread that held it does not run."""

import os
from _thread import RLock  # as in threading, which takes a millisecond to import
from collections.abc import Callable


def call_in_child(function: Callable[[], None]) -> None:
    """Call a function in each child that is forked from now on; Windows has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


class ForkableLock:
    """A lock that is used as ``with forkable.lock``, or by the lock's methods.

    A forked child gets a new lock. A thread that forks while it holds the lock releases the old one in the child too,
    because it kept a reference to it. A thread that holds the lock can take it again, because an import or an error may
    run code that converts something.
    """

    def __init__(self) -> None:
        self._renew()
        call_in_child(self._renew)

    def _renew(self) -> None:
        self.lock = RLock()


class ImportLock(ForkableLock):
    """A lock that a thread which forks takes too, so that the child finds nothing half done.

    Python has a lock for each module that is being imported. In a child nobody would release one that another
    thread had taken.
    """

    def __init__(self) -> None:
        super().__init__()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=lambda: self.lock.acquire(), after_in_parent=lambda: self.lock.release())


# Held while a module of dlbridge is imported with its first use. It is not held while another library or an entry point
# is imported: these may start threads that convert something, and would wait for the lock.
importing = ImportLock()
