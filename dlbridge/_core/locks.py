"""A lock that a forked child finds free: the thread that may have held it does not run there."""

import os
from threading import RLock


class ForkableLock:
    """``with forkable.lock``, or its methods: who forks within lets go of the lock that was taken, in the child too.

    It may be taken again by the thread that has it: what an import or an error runs may convert something.
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = RLock()
