"""Descriptors from process to process: the sender keeps each until it is fetched, by a socket.

Whoever fetches one shows its ticket, which was in the pickle, and is shown the seal, which was there too. So no other
process of the machine gets a descriptor, or can pass one off.
"""

import errno
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from multiprocessing import util
from typing import Any

from dlbridge._core.locks import ForkableLock, call_in_child
from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.torch import is_worker_of_loader

BY_VALUE = "let its sender live until it is received, or send dlbridge.asdlpack(x, copy=True)"
PATIENCE = 10           # seconds
LENGTH = 16             # of a ticket, and of a seal
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
# Among what multiprocessing runs as a process ends: after the queues have written what was put into them (-5), and
# before the folder of its sockets is gone (-100).
LAST = -50


class Sender:
    """What this process has sent and nobody has fetched yet, and the thread that hands it over."""

    def __init__(self) -> None:
        self.offered: dict[bytes, tuple[bytes, Any]] = {}       # by the ticket: the seal and the Segment
        self.fetched = threading.Condition()
        self.server, self.address = listen()
        threading.Thread(target=self.serve, name="dlbridge-sender", daemon=True).start()

    def offer(self, segment: Any) -> tuple[str, bytes, bytes]:
        ticket, seal = secrets.token_bytes(LENGTH), secrets.token_bytes(LENGTH)
        self.offered[ticket] = seal, segment
        return self.address, ticket, seal

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:         # no descriptor is left for the connection, which waits
                threading.Event().wait(0.01)
                continue
            with connection, suppress(OSError):
                connection.settimeout(1)        # of one that was stopped the others do not wait long
                self.hand_over(connection)

    def hand_over(self, connection: socket.socket) -> None:
        seal, segment = self.offered.pop(connection.recv(LENGTH, socket.MSG_WAITALL), (b"", None))
        try:
            if segment is not None:
                socket.send_fds(connection, [seal], [segment.descriptor])
        finally:
            del segment
            with self.fetched:
                self.fetched.notify_all()

    def wait(self) -> None:
        """Wait for what is sent and not fetched, as Python's queues wait until what was put into them is written."""
        with self.fetched:
            self.fetched.wait_for(lambda: not self.offered, PATIENCE)
        if self.offered:
            warnings.warn(f"dlbridge.shared: {len(self.offered)} Tensors were sent and not received, and are lost with "
                          "their sender", RuntimeWarning, stacklevel=2)
            self.offered.clear()

    def forget(self) -> None:
        """In a forked child, what the parent has sent is the parent's."""
        self.server.close()
        self.offered.clear()


def listen() -> tuple[socket.socket, str]:
    """A socket of this machine, and its address. On Linux it has no file that could be left behind."""
    name = f"dlbridge-{os.getpid()}-{secrets.token_hex(8)}"
    if sys.platform == "linux":
        address = f"\0{name}"
    else:
        folder = tempfile.mkdtemp(prefix="dlbridge-")
        util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=LAST - 1)
        address = f"{folder}/socket"
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    return server, address


LOCK = ForkableLock()
senders: list[Sender] = []          # of this process: one, from the first that was sent on


def offer(segment: Any) -> tuple[str, bytes, bytes]:
    """Keep a Segment until it is fetched: what fetch() takes to do that, once, in a process of this machine."""
    with LOCK.lock:
        if not senders:
            senders.append(Sender())
    return senders[0].offer(segment)


def wait() -> None:
    if senders and not is_worker_of_loader():
        senders[0].wait()


def wait_at_end(_: Any = None) -> None:
    # Before anything is sent: a queue's thread may send when this process is about to end.
    util.Finalize(None, wait, exitpriority=LAST)


def begin_in_child() -> None:
    while senders:
        senders.pop().forget()
    wait_at_end()


wait_at_end()
call_in_child(begin_in_child)
util.register_after_fork(util, wait_at_end)     # since a process of multiprocessing begins without anything to finalize


def fetch(address: str, ticket: bytes, seal: bytes) -> int:
    """The descriptor that was offered."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(ticket)
            answer, descriptors, _, _ = socket.recv_fds(connection, LENGTH, 1, CLOSE_ON_EXEC)
    except (ConnectionError, FileNotFoundError):
        raise refusal(ConversionError, "receive", "sender", address.strip("\0"),
                      "has ended, or is on another machine", BY_VALUE) from None
    if not secrets.compare_digest(answer, seal):
        for descriptor in descriptors:
            os.close(descriptor)
        raise refusal(ConversionError, "receive", "sender", address.strip("\0"),
                      "has no such memory to give: it was received before", BY_VALUE)
    if not descriptors:
        raise OSError(errno.EMFILE, f"receive: descriptor: {os.strerror(errno.EMFILE)} (close some)")
    return descriptors[0]
