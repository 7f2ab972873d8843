"""Descriptors from process to process: the sender keeps each until it is fetched, by a socket.

Whoever fetches one shows its ticket, which was in the pickle, and is shown the proof, which was there too. So no other
process of the machine gets a descriptor, or can pass one off.
"""

import errno
import os
import secrets
import select
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
PATIENCE = 10           # seconds after the last client
MOST = 64               # clients that are there, and ask nothing
LENGTH = 16             # of a ticket, and of a proof
NO = bytes(LENGTH)      # in place of the proof: there is nothing for this ticket
# Among what multiprocessing runs as a process ends: after the queues have written what was put into them (-5), and
# before the folder of its sockets is gone (-100).
LAST = -50


class Sender:
    """What this process has sent and nobody has fetched yet, and the thread that hands it over."""

    def __init__(self) -> None:
        self.offered: dict[bytes, tuple[bytes, Any]] = {}       # by the ticket: the proof and the Segment
        self.fetched = threading.Condition()
        self.server, self.address = listen()
        self.clients: dict[int, socket.socket] = {}             # that have not asked yet, the oldest first
        self.spare: int | None = os.open(os.devnull, os.O_RDONLY)
        threading.Thread(target=self.serve, name="dlbridge-sender", daemon=True).start()

    def offer(self, segment: Any) -> tuple[str, bytes, bytes]:
        ticket, proof = secrets.token_bytes(LENGTH), secrets.token_bytes(LENGTH)
        self.offered[ticket] = proof, segment
        return self.address, ticket, proof

    # ---- the thread ----

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.server, select.POLLIN)
        while self.server.fileno() >= 0:
            for number, _ in poll.poll():
                if number in self.clients:
                    poll.unregister(number)
                    self.answer(self.clients.pop(number))
                elif connection := self.accept():
                    self.clients[connection.fileno()] = connection
                    poll.register(connection, select.POLLIN)
            if len(self.clients) > MOST:        # one that is still there asks again
                oldest = next(iter(self.clients))
                poll.unregister(oldest)
                hang_up(self.clients.pop(oldest))

    def accept(self) -> socket.socket | None:
        """The next client; None if no descriptor is left for it but the spare one, which it gets then."""
        try:
            connection, _ = self.server.accept()
        except OSError:
            if self.spare is None:
                threading.Event().wait(0.01)
            else:
                os.close(self.spare)
                self.spare = None
            return None
        connection.setblocking(False)
        return connection

    def answer(self, connection: socket.socket) -> None:
        with suppress(Exception):       # of a client that is gone, for example
            self.hand_over(connection)
        hang_up(connection)
        with suppress(OSError):
            self.spare = os.open(os.devnull, os.O_RDONLY) if self.spare is None else self.spare
        with self.fetched:
            self.fetched.notify_all()

    def hand_over(self, connection: socket.socket) -> None:
        ticket = connection.recv(LENGTH)
        proof, segment = self.offered.get(ticket, (NO, None))
        if segment is None:
            connection.sendall(proof)
            return
        try:
            socket.send_fds(connection, [proof], [segment.descriptor])
        finally:
            del self.offered[ticket]

    # ---- the end ----

    def wait(self) -> None:
        """Wait for what is sent and not fetched, as Python's queues wait until what was put into them is written."""
        with self.fetched:
            while self.offered and self.fetched.wait(PATIENCE):
                pass
        if self.offered:
            warnings.warn(f"dlbridge.shared: {len(self.offered)} Tensors were sent and not received, and are lost with "
                          "their sender (receive them before, or send them by value)", RuntimeWarning, stacklevel=2)
            self.offered.clear()

    def forget(self) -> None:
        """In a forked child, what the parent has sent is the parent's."""
        for each in (self.server, *self.clients.values()):
            each.close()
        if self.spare is not None:
            os.close(self.spare)
        self.offered.clear()


def hang_up(connection: socket.socket) -> None:
    """End a connection, also for a child that was forked meanwhile."""
    with connection, suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


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
    server.settimeout(None)
    server.bind(address)
    server.listen()
    return server, address


LOCK = ForkableLock()
senders: list[Sender] = []          # of this process: one, from the first that was sent on
ending = threading.Event()          # set once this process waits for what it sent, or has waited


def offer(segment: Any) -> tuple[str, bytes, bytes]:
    """Keep a Segment until it is fetched: what fetch() takes to do that, once, in a process of this machine."""
    with LOCK.lock:
        if not senders:
            senders.append(Sender())
    offered = senders[0].offer(segment)
    if ending.is_set():         # a process of multiprocessing still waits for its threads
        threading.Thread(target=wait, name="dlbridge-late").start()
    return offered


def wait() -> None:
    ending.set()
    if senders and not is_worker_of_loader():
        senders[0].wait()


def wait_at_end(_: Any = None) -> None:
    ending.clear()
    # Before anything is sent: a queue's thread may send when this process is about to end.
    util.Finalize(None, wait, exitpriority=LAST)


def begin_in_child() -> None:
    while senders:
        senders.pop().forget()
    wait_at_end()


wait_at_end()
call_in_child(begin_in_child)
util.register_after_fork(util, wait_at_end)     # since a process of multiprocessing begins without anything to finalize


def fetch(address: str, ticket: bytes, proof: bytes) -> int:
    """The descriptor that was offered. The sender keeps nothing for it any more."""
    answer = b""
    while not answer:           # where too many were there, and asked nothing
        try:
            answer, descriptors = asked(address, ticket)
        except (BrokenPipeError, ConnectionResetError):
            continue
        except (ConnectionRefusedError, FileNotFoundError):
            raise refusal(ConversionError, "receive", "sender", address.strip("\0"),
                          "has ended, or is on another machine", BY_VALUE) from None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if not secrets.compare_digest(answer, proof):
        for descriptor in descriptors:
            os.close(descriptor)
        raise refusal(ConversionError, "receive", "sender", address.strip("\0"),
                      "has no such memory to give: it was received before", BY_VALUE)
    if not descriptors:
        raise OSError(errno.EMFILE, f"receive: descriptor: {os.strerror(errno.EMFILE)} (share fewer, larger arrays)")
    return descriptors[0]


def asked(address: str, ticket: bytes) -> tuple[bytes, list[int]]:
    """What a sender answers, once it has let go of what it gives; no bytes if it does not."""
    with socket.socket(socket.AF_UNIX) as connection:
        os.close(os.dup(connection.fileno()))       # without a descriptor for what comes, it stays with the sender
        connection.settimeout(None)
        connection.connect(address)
        connection.sendall(ticket)
        answer, descriptors, _, _ = socket.recv_fds(connection, LENGTH, 1)
        if answer:
            connection.recv(1)
    return answer, descriptors
