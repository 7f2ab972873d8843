"""Descriptors from process to process: the sender keeps each until it is fetched by a socket, or is withdrawn.

A receiver shows the ticket that was in the pickle. The sender shows the proof, which was there too, and gives the
descriptor. So no other process of the machine gets a descriptor, or can pass one off. The receiver says whether the
descriptor came with the proof, and the sender hangs up once it has let go of it, or offers it again.
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
from contextlib import suppress
from multiprocessing import util
from typing import Any

from dlbridge._core.locks import ImportLock, call_in_child
from dlbridge.errors import STAYS_OR_BY_VALUE, ConversionError, refusal
from dlbridge.libraries.torch import is_worker_of_loader

PATIENCE = 10           # seconds after the last that was sent, or fetched
MOST = 64               # clients at a time
ATTEMPTS = 1000         # of a receiver that gets no answer, 0.01 seconds apart
LENGTH = 16             # of a ticket, and of a proof
NO = bytes(LENGTH)      # in place of the proof: there is nothing for this ticket
HERE, MISSING = b"y", b"n"      # of a receiver: whether the descriptor came
FOR_NOW = errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS         # errors that pass
# Among what multiprocessing runs as a process ends: after the queues have written what was put into them (-5), and
# before the folder of its sockets is gone (-100).
LAST = -50
Kept = tuple[bytes, Any]        # the proof, and the Segment


class Sender:
    """What this process has sent and nobody has fetched yet, and the thread that hands it over."""

    def __init__(self) -> None:
        self.offered: dict[bytes, Kept] = {}                    # by the ticket
        self.lasting: set[bytes] = set()                        # the tickets of what may be fetched again
        # By the client's number, until that says what came. What lasts has no ticket: it is offered meanwhile, too.
        self.given: dict[int, tuple[bytes | None, Kept]] = {}
        self.changed = threading.Condition()                    # something was offered, or fetched
        self.waits = False
        self.server, self.address = listen()
        self.clients: dict[int, socket.socket] = {}             # by their descriptors, the oldest first
        self.spare: int | None = None                           # a descriptor for a client, where no other is left

    def begin(self) -> None:
        try:
            threading.Thread(target=self.serve, name="dlbridge-sender", daemon=True).start()
        except BaseException:           # there may be no room for a thread
            self.server.close()
            raise

    def offer(self, segment: Any, lasts: bool = False) -> tuple[str, bytes, bytes]:
        ticket, proof = secrets.token_bytes(LENGTH), secrets.token_bytes(LENGTH)
        with self.changed:
            self.offered[ticket] = proof, segment
            if lasts:
                self.lasting.add(ticket)
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
        while True:
            if self.spare is None:
                with suppress(OSError):
                    self.spare = os.open(os.devnull, os.O_RDONLY)
            ready = []
            with suppress(MemoryError):
                ready = poll.poll()
            for number, _ in ready:
                with suppress(Exception):       # whatever one client does, the others are served
                    if number == self.server.fileno():
                        self.accept(poll)
                    elif number in self.clients:        # it may be gone since it was ready
                        self.serve_client(number, poll)

    def serve_client(self, number: int, poll: Any) -> None:
        is_done = True
        try:
            is_done = self.answer(number)
        finally:
            if is_done:         # also where there was no memory to answer: it would wait for ever
                self.hang_up(number, poll)

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
        """End the connection to the oldest client that was given nothing. If it is still there, it asks again."""
        waiting = (number for number in self.clients if number not in self.given)
        self.hang_up(next(waiting, next(iter(self.clients))), poll)

    def answer(self, number: int) -> bool:
        """Serve a client that says something, or is gone; whether that was its last word."""
        said = b""
        with suppress(ConnectionError):
            said = self.clients[number].recv(LENGTH)
        if number not in self.given:
            return not self.give(number, said)
        self.settle(number, said == MISSING)
        return True

    def give(self, number: int, ticket: bytes) -> bool:
        """Give a client what its ticket is for; False if it gets nothing."""
        with self.changed:
            if ticket in self.offered:
                lasts = ticket in self.lasting
                self.given[number] = (None, self.offered[ticket]) if lasts else (ticket, self.offered.pop(ticket))
        if number in self.given:
            proof, segment = self.given[number][1]
            try:
                socket.send_fds(self.clients[number], [proof], [segment.descriptor])
                return True
            except OSError as error:
                self.settle(number, error.errno in FOR_NOW)
                if error.errno in FOR_NOW:
                    return False            # the client asks again
        with suppress(OSError):
            self.clients[number].sendall(NO)
        return False

    def settle(self, number: int, is_missing: bool) -> None:
        """Let go of what a client was given, or offer it again."""
        with self.changed:
            ticket, kept = self.given.pop(number)
            if is_missing and ticket is not None:
                self.offered[ticket] = kept
            else:
                self.changed.notify_all()

    def hang_up(self, number: int, poll: Any) -> None:
        """End a connection, also for a child that was forked meanwhile."""
        if number in self.given:            # a client that says nothing, and may have it
            self.settle(number, False)
        poll.unregister(number)
        with self.clients.pop(number) as connection, suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    # ---- the end ----

    def withdraw(self, ticket: bytes) -> None:
        """Let go of what may be fetched again."""
        with self.changed:
            self.lasting.discard(ticket)
            self.offered.pop(ticket, None)

    def left(self) -> int:
        """How much of what is fetched once is not fetched yet."""
        given = sum(ticket is not None for ticket, _ in self.given.values())
        return len(self.offered) - len(self.lasting) + given

    def wait(self) -> None:
        """Wait for what is sent and not fetched, as Python's queues wait until what was put into them is written."""
        with self.changed:
            self.waits = True
            try:
                while self.left() and self.changed.wait(PATIENCE):
                    pass
            finally:
                self.waits = False
            left = self.left()
            self.offered.clear()
            self.lasting.clear()
        if left:
            warnings.warn(f"dlbridge.shared: {left} of what was sent has not been received, and is lost with "
                          "its sender (receive them before, or send dlbridge.asdlpack(x, copy=True))",
                          RuntimeWarning, stacklevel=2)

    def forget(self) -> None:
        """In a forked child, what the parent has sent is the parent's."""
        self.offered.clear()
        self.lasting.clear()
        self.given.clear()
        for each in (self.server, *self.clients.values()):
            each.close()
        if self.spare is not None:
            os.close(self.spare)


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
    server.settimeout(None)             # whatever the program has set for all
    server.bind(address)
    server.listen()
    return server, address


LOCK = ImportLock()                 # a thread that forks takes it too: a child finds no Sender half made
senders: list[Sender] = []          # of this process: one, from the first that was sent on
ending = threading.Event()          # set once this process waits for what it sent, or has waited


def offer(segment: Any, lasts: bool = False) -> tuple[str, bytes, bytes]:
    """Keep a Segment until it is fetched: what fetch() takes to do that, once, in a process of this machine.

    What ``lasts`` may be fetched again, until it is withdrawn by its ticket. No process waits for it.
    """
    with LOCK.lock:
        if not senders:
            sender = Sender()
            sender.begin()
            senders.append(sender)
        sender = senders[0]
    return sender.offer(segment, lasts)


def withdraw(address: str, ticket: bytes, proof: bytes) -> None:
    """Let go of what offer() keeps."""
    if senders:
        senders[0].withdraw(ticket)


def wait() -> None:
    ending.set()
    if senders and not is_worker_of_loader():
        senders[0].wait()


def begin_to_wait(_: Any = None) -> None:
    """Let this process wait when it ends."""
    ending.clear()
    # Before anything is sent: a queue's thread may send when this process is about to end.
    util.Finalize(None, wait, exitpriority=LAST)


def begin_in_child() -> None:
    while senders:
        senders.pop().forget()
    begin_to_wait()


begin_to_wait()
call_in_child(begin_in_child)
util.register_after_fork(util, begin_to_wait)   # since a process of multiprocessing begins without anything to finalize


def fetch(arriving: Any, address: str, ticket: bytes, proof: bytes) -> None:
    """Let a new Segment receive the descriptor that was offered. It owns whatever comes."""
    for _ in range(ATTEMPTS):
        try:
            answer = ask(arriving, address, ticket)
        except (ConnectionRefusedError, FileNotFoundError):
            raise refused(address, "has ended, or is in another container or on another machine") from None
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise none_left() from None
        if answer:
            break
        time.sleep(0.01)        # the sender had too many clients, or no memory
    else:
        raise refused(address, "does not answer")
    if not secrets.compare_digest(answer, proof):
        raise refused(address, "has no such memory to give: it was received before, or is kept no longer")
    if arriving.descriptor < 0:
        raise none_left()


def none_left() -> OSError:
    return OSError(errno.EMFILE, f"receive: descriptor: {os.strerror(errno.EMFILE)} (share fewer, larger arrays)")


def refused(address: str, wrong: str) -> Exception:
    return refusal(ConversionError, "receive", "sender", address.strip("\0"), wrong, STAYS_OR_BY_VALUE)


def ask(arriving: Any, address: str, ticket: bytes) -> bytes:
    """What a sender answers, or no bytes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(None)
        connection.connect(address)
        try:
            connection.sendall(ticket)
            answer: bytes = arriving.receive(connection.fileno(), LENGTH)
        except (BrokenPipeError, ConnectionResetError):
            return b""
        with suppress(ConnectionError):
            connection.sendall(MISSING if arriving.descriptor < 0 else HERE)
            connection.recv(1)          # the sender hangs up
        return answer
