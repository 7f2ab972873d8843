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
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import util
from typing import Any

from dlbridge._core.locks import ImportLock, call_in_child
from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.torch import is_worker_of_loader

BY_VALUE = "let its sender live until it is received, or send dlbridge.asdlpack(x, copy=True)"
PATIENCE = 10           # seconds after the last that was sent, or fetched
MOST = 64               # clients at a time
LENGTH = 16             # of a ticket, and of a proof
NO = bytes(LENGTH)      # in place of the proof: there is nothing for this ticket
HERE, MISSING = b"y", b"n"      # what a client says then: whether the descriptor came with it
# Among what multiprocessing runs as a process ends: after the queues have written what was put into them (-5), and
# before the folder of its sockets is gone (-100).
LAST = -50
Offer = tuple[bytes, Any]       # the proof, and the Segment


class Sender:
    """What this process has sent and nobody has fetched yet, and the thread that hands it over."""

    def __init__(self) -> None:
        self.offered: dict[bytes, Offer] = {}                   # by the ticket
        self.given: dict[int, tuple[bytes, Offer]] = {}         # by the client, which has not said that it has it
        self.changed = threading.Condition()                    # something was offered, or fetched
        self.waits = False
        self.server, self.address = listen()
        self.clients: dict[int, socket.socket] = {}             # by their descriptors, the oldest first
        self.spare: int | None = None                           # a descriptor for a client, where no other is left

    def begin(self) -> None:
        threading.Thread(target=self.serve, name="dlbridge-sender", daemon=True).start()

    def offer(self, segment: Any) -> tuple[str, bytes, bytes]:
        ticket, proof = secrets.token_bytes(LENGTH), secrets.token_bytes(LENGTH)
        with self.changed:
            self.offered[ticket] = proof, segment
            self.changed.notify_all()
            is_late = ending.is_set() and not self.waits
        if is_late:             # a process of multiprocessing still waits for its threads
            with suppress(RuntimeError):        # no thread begins any more
                threading.Thread(target=wait, name="dlbridge-late").start()
        return self.address, ticket, proof

    # ---- the thread ----

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.server, select.POLLIN)
        while self.server.fileno() >= 0:
            with suppress(OSError):
                self.spare = os.open(os.devnull, os.O_RDONLY) if self.spare is None else self.spare
            for number, _ in poll.poll():
                with suppress(Exception):       # whatever one client does, the others are served
                    if number in self.clients:
                        self.answer(number, poll)
                    else:
                        self.accept(poll)

    def accept(self, poll: Any) -> None:
        if len(self.clients) == MOST:
            self.hang_up_oldest(poll)
        try:
            connection, _ = self.server.accept()
        except OSError:         # no descriptor is left
            spare, self.spare = self.spare, None
            if spare is not None:
                os.close(spare)
                self.accept(poll)
            elif self.clients:
                self.hang_up_oldest(poll)
            else:
                time.sleep(0.01)
            return
        connection.setblocking(False)
        self.clients[connection.fileno()] = connection
        poll.register(connection, select.POLLIN)

    def hang_up_oldest(self, poll: Any) -> None:
        """End the connection to a client that asks nothing; one that is still there asks again."""
        self.hang_up(next(iter(self.clients.keys() - self.given.keys()), next(iter(self.clients))), poll)

    def answer(self, number: int, poll: Any) -> None:
        """Give a client what it asks for; then let go of that, once the client has it or is gone."""
        if number in self.given:
            said = b""
            with suppress(OSError):
                said = self.clients[number].recv(1)
            self.settle(number, said == MISSING)
        elif self.give(number):
            return
        self.hang_up(number, poll)

    def give(self, number: int) -> bool:
        """Give a client what its ticket is for; False if it gets nothing."""
        connection = self.clients[number]
        ticket = connection.recv(LENGTH)
        with self.changed:
            if ticket in self.offered:
                self.given[number] = ticket, self.offered.pop(ticket)
        if number not in self.given:
            connection.sendall(NO)
            return False
        proof, segment = self.given[number][1]
        try:
            socket.send_fds(connection, [proof], [segment.descriptor])
        except OSError as error:
            self.settle(number, not isinstance(error, BrokenPipeError | ConnectionResetError))
            return False
        return True

    def settle(self, number: int, is_missing: bool) -> None:
        """Let go of what a client was given, or offer it again."""
        with self.changed:
            ticket, offer = self.given.pop(number)
            if is_missing:
                self.offered[ticket] = offer
            self.changed.notify_all()

    def hang_up(self, number: int, poll: Any) -> None:
        """End a connection, also for a child that was forked meanwhile."""
        if number in self.given:
            self.settle(number, False)
        poll.unregister(number)
        with self.clients.pop(number) as connection, suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    # ---- the end ----

    def wait(self) -> None:
        """Wait for what is sent and not fetched, as Python's queues wait until what was put into them is written."""
        with self.changed:
            self.waits = True
            while (self.offered or self.given) and self.changed.wait(PATIENCE):
                pass
            left = len(self.offered) + len(self.given)
            self.offered.clear()
            self.waits = False
        if left:
            warnings.warn(f"dlbridge.shared: {left} Tensors were sent and not received, and are lost with their sender "
                          "(receive them before, or send them by value)", RuntimeWarning, stacklevel=2)

    def forget(self) -> None:
        """In a forked child, what the parent has sent is the parent's."""
        self.offered.clear()
        self.given.clear()
        for each in (self.server, *self.clients.values()):
            each.close()
        if self.spare is not None:
            close(self.spare)


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


LOCK = ImportLock()                 # a thread that forks takes it too: a child finds no Sender half made
senders: list[Sender] = []          # of this process: one, from the first that was sent on
ending = threading.Event()          # set once this process waits for what it sent, or has waited
arrived: set[int] = set()           # descriptors that were received, and are nobody's yet


def offer(segment: Any) -> tuple[str, bytes, bytes]:
    """Keep a Segment until it is fetched: what fetched() takes to do that, once, in a process of this machine."""
    with LOCK.lock:
        if not senders:
            senders.append(Sender())
            senders[0].begin()
        sender = senders[0]
    return sender.offer(segment)


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
    while arrived:
        close(arrived.pop())
    wait_at_end()


def close(descriptor: int) -> None:
    with suppress(OSError):         # of one that a thread had closed, in the parent
        os.close(descriptor)


wait_at_end()
call_in_child(begin_in_child)
util.register_after_fork(util, wait_at_end)     # since a process of multiprocessing begins without anything to finalize


@contextmanager
def fetched(address: str, ticket: bytes, proof: bytes) -> Iterator[int]:
    """The descriptor that was offered, which is the caller's. The sender keeps nothing for it any more."""
    descriptor = fetch(address, ticket, proof)
    try:
        yield descriptor
    finally:
        arrived.discard(descriptor)


def fetch(address: str, ticket: bytes, proof: bytes) -> int:
    while True:
        try:
            answer, descriptors = asked(address, ticket)
        except (ConnectionRefusedError, FileNotFoundError):
            raise refusal(ConversionError, "receive", "sender", address.strip("\0"),
                          "has ended, or is on another machine", BY_VALUE) from None
        if answer:
            break
        time.sleep(0.01)        # the sender had too many clients, or no memory
    if not secrets.compare_digest(answer, proof):
        for descriptor in descriptors:
            arrived.discard(descriptor)
            os.close(descriptor)
        raise refusal(ConversionError, "receive", "sender", address.strip("\0"),
                      "has no such memory to give: it was received before", BY_VALUE)
    if not descriptors:
        raise OSError(errno.EMFILE, f"receive: descriptor: {os.strerror(errno.EMFILE)} (share fewer, larger arrays)")
    return descriptors[0]


def asked(address: str, ticket: bytes) -> tuple[bytes, list[int]]:
    """What a sender answers, once it has let go of what it gives; no bytes if it does not."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(None)
        connection.connect(address)
        try:
            connection.sendall(ticket)
            answer, descriptors, _, _ = socket.recv_fds(connection, LENGTH, 1)
        except (BrokenPipeError, ConnectionResetError):
            return b"", []
        arrived.update(descriptors)
        try:
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            with suppress(ConnectionError):
                connection.sendall(HERE if descriptors else MISSING)
                connection.recv(1)
        except BaseException:
            for descriptor in descriptors:
                arrived.discard(descriptor)
                os.close(descriptor)
            raise
        return answer, descriptors
