"""What ``prefetch`` does: a thread reads and converts the next batches while the caller works on this one.

What it gives is the caller's own: memory that the source may write again is copied in the thread.

The thread gives no array of a device to its library. It makes Tensors, and the caller's thread hands them out: only
there it is known which stream will use the memory. What was uploaded is complete by then, so the host does not wait.
"""

import atexit
import collections
import contextlib
import copy
import functools
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dlbridge._core.copies import OWN, OWN_HINT
from dlbridge._core.route import target_facts
from dlbridge.convert import asdlpack, convert
from dlbridge.errors import shown
from dlbridge.libraries.library import form_meant
from dlbridge.tensor import Tensor
from dlbridge.trees.ahead import Destination, on_gpu, tensor_of, upload_ahead
from dlbridge.trees.failure import Failure, name_copies, report
from dlbridge.trees.leaf import ARRAY, OTHER
from dlbridge.trees.leaves import AS_THEY_ARE, Takers, check_given, converter, device_of, form_of_several, taker, takers
from dlbridge.trees.walk import Converter, map_leaves, map_tree
from dlbridge.watch import bytes_of, called_from, caller, name_leaf, note_by_library, pending, watching

SECONDS_AT_EXIT = 1.0           # that the end of Python waits for a source


class Batch(NamedTuple):
    tree: Any
    pending: bool       # whether there are Pending arrays in it


class Pending:
    """A Tensor on a device, which becomes an array of the target in the caller's thread."""

    def __init__(self, tensor: Tensor, ours: bool) -> None:
        self.tensor = tensor
        self.ours = ours        # whether nobody else has its memory


class Later:
    """Several arrays for a device: the caller's own on the host by now, and converted in the caller's thread.

    With copy=False they are the source's, wherever these are.
    """

    def __init__(self, array: Any, device: str | None) -> None:
        self.array = array
        self.device = device        # where they were, if no device is asked for


class Ahead:
    """convert(), as far as the thread may go: it gives an array of the target, or what is Pending or for Later."""

    def __init__(self, to: Any, keywords: dict[str, Any]) -> None:
        library = target_facts(to, imported=False)
        self.has_masks = form_meant(library, to) == "masked"
        # What one array becomes beside those that are several, where the library has those alone.
        self.to_one = library.parts_of if library.delivery == "forms" and not self.has_masks else to
        self.to = to
        self.destination = Destination(self.to_one, keywords.get("device"))
        self.keywords = keywords
        self.take = converter(to, keywords, own=True)
        self.forms = library.forms
        no_host = any(fact.value == "HOST" for fact in library.lacks)
        self.take_to_host = converter("scipy" if no_host else to, {**keywords, "device": "cpu"}, own=True)
        self.move = Converter(self.to_one, {**keywords, "copy": None})
        self.pending = False        # whether an array of this batch is Pending

    def several_for_device(self, array: Any) -> Later | None:
        """What is for Later of several arrays that go to a device, or are there; None of all others.

        Where ``to`` has a mask, one array becomes several, too.
        """
        form = "masked" if self.has_masks else form_of_several(array)
        if form not in self.forms or not (self.destination.gpu is not None or self.is_there(array)):
            return None
        if self.keywords.get("copy") is False:
            return Later(array, None)
        return Later(self.take_to_host(array), None if self.destination.is_asked() else device_of(array))

    def is_there(self, array: Any) -> bool:
        """Whether an array is on a device. One array may be a capsule, which gives its memory once."""
        return self.destination.takes_there(array) if self.has_masks else device_of(array) != "cpu"

    def put_together(self, later: Later) -> Any:
        """Convert what is for Later. A move to the device that was asked for is no copy of the batch's own."""
        keywords, asked = dict(self.keywords), self.destination.is_asked()
        if keywords.get("copy") is not False or (
                asked and (device_of(later.array) == "cpu") == (self.destination.gpu is not None)):
            keywords["copy"] = None
        if later.device is not None:
            keywords["device"] = later.device
        return convert(later.array, self.to, **keywords)

    def __call__(self, array: Any, queued: list[Any] | None = None) -> Any:
        gpu, asked, copied = self.destination.gpu, self.destination.is_asked(), self.keywords.get("copy")
        later = self.several_for_device(array)
        if later is not None:
            self.pending = True
            return later
        if gpu is None and (asked or not self.destination.takes_there(array)):
            # A copy to the device that was asked for is no copy of the batch's own, so copy=False does not forbid it.
            moves = copied is False and asked and not self.destination.has(array)
            return self.move(array) if moves else self.take(array)
        self.pending = True
        order = self.keywords.get("order")
        tensor = tensor_of(array, gpu, copied, self.keywords.get("detach", False), order)
        if gpu is None or on_gpu(tensor):
            return Pending(tensor, copied is not False and not tensor.readonly)
        uploaded = upload_ahead(tensor, self.destination, copied, self.keywords.get("narrow", False), order, queued)
        if pending:
            name_leaf(array)
        return Pending(uploaded, True)


class BatchConversion:
    """The two halves of what becomes of a batch: ``begin`` in the thread, ``finish`` in the caller's."""

    def __init__(self, to: Any, others: str, columns: str, keywords: dict[str, Any]) -> None:
        check_given("prefetch", to, others, columns, keywords)
        self.ahead = Ahead(to, keywords)
        keep = None if keywords.get("copy") is False else copy_of_words
        self.take = takers("prefetch", to, others, columns, keywords, self.ahead, queued=[], keep=keep)
        late: dict[str, Any] = {name: keywords[name] for name in ("stream", "readonly", "narrow") if name in keywords}
        take_pending = taker(functools.partial(
            hand_out, ahead=self.ahead, copied=keywords.get("copy"), late=late), to, "pass")
        self.finishing: Takers = {**AS_THEY_ARE, OTHER: take_pending, ARRAY: take_pending}

    def begin(self, batch: Any) -> Batch:
        self.ahead.pending = False
        try:
            tree = map_tree(self.take, batch)
        except Failure as failure:
            report(failure, [("", batch)], function="prefetch")
        finally:
            if pending:
                name_copies([("", batch)])
        return Batch(tree, self.ahead.pending)

    def finish(self, batch: Batch) -> Any:
        try:
            return map_leaves(self.finishing, batch.tree, {}) if batch.pending else batch.tree
        except Failure as failure:
            report(failure, [("", batch.tree)], function="prefetch")
        finally:
            if pending:
                name_copies([("", batch.tree)])


def hand_out(leaf: Any, ahead: Ahead, copied: bool | None, late: dict[str, Any]) -> Any:
    """The array of what is Pending or for Later, ready for the stream that is current here. All else is handed on."""
    destination = ahead.destination
    if type(leaf) is Later:
        return ahead.put_together(leaf)
    if type(leaf) is not Pending:
        return leaf
    if destination.target.name == "dlbridge":
        return asdlpack(leaf.tensor, **{name: late[name] for name in late if name != "narrow"})
    if leaf.ours:
        # A library that releases memory before it has read it copies it itself, since only a Tensor keeps this memory.
        copied = True if destination.copies_own else None
        late = {**late, "readonly": "share"} if destination.immutable else late
    return convert(leaf.tensor, ahead.to_one, device=destination.gpu, copy=copied, **late)


def copy_of_words(array: Any) -> Any:
    """A copy of an array that is handed on, but not of the objects in it; the array itself if it cannot be copied.

    copy.copy() makes a new view of some arrays, such as those of pandas and xarray, whose copy() copies their memory.
    """
    try:
        if isinstance(array, np.ndarray):
            made = np.array(array, subok=True)
        else:
            made = array.copy() if hasattr(array, "copy") else copy.copy(array)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return array
    if watching:
        note_by_library(array, "a batch", bytes_of(array), OWN, OWN_HINT, "")
    return made


# ---- the thread ------------------------------------------------------------------------------------------------------

readers: "weakref.WeakSet[Reader]" = weakref.WeakSet()


class Latch:
    """Says that something may have changed. It may be said before it is waited for, and more than once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wait = self.lock.acquire
        self.wait()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):     # it is set
            self.lock.release()


# The text of the error that takes the place of a StopIteration, which would pass for the end of the batches.
NO_END = "prefetch: a conversion raised StopIteration"


class Reader:
    """What the thread and the iterator share. The thread does not know the iterator, so that it can be abandoned.

    An interrupt may end a call of the caller's between any two steps. So a call leaves no lock taken that another call
    needs, and the next call does not rely on a latch that the first may have waited for: it looks itself. A batch that
    was just taken may be lost.
    """

    def __init__(self, source: Iterator[Any], conversion: BatchConversion, depth: int) -> None:
        self.source: Iterator[Any] | None = source
        self.conversion = conversion
        self.depth = depth
        self.process = os.getpid()
        self.place = caller()[0]        # where prefetch() was called
        self.batches: collections.deque[Batch] = collections.deque()
        self.error: BaseException | None = None     # the one that ended the batches
        self.asked = False              # the caller has asked for a batch
        self.stopped = False            # … and wants no more
        self.ended = False              # there are no more
        self.room, self.arrived, self.over = Latch(), Latch(), Latch()
        self.thread = threading.Thread(target=self.run, name="dlbridge.prefetch", daemon=True)

    def start(self) -> None:
        self.thread.start()
        readers.add(self)

    def run(self) -> None:
        called_from[threading.get_ident()] = self.place
        error = None
        try:
            while self.has_room() and self.read():
                pass
        except BaseException as raised:
            error = raised
        self.source = None      # which closes a generator that nobody else has
        self.error = error
        del error               # whose traceback has this frame
        self.ended = True
        if self.stopped:
            self.clear()
        del called_from[threading.get_ident()]
        self.arrived.set()
        self.over.set()

    def has_room(self) -> bool:
        """Wait until one more batch may be read; False if none is wanted."""
        while not self.stopped and len(self.batches) + self.asked > self.depth:
            self.room.wait()
        return not self.stopped

    def read(self) -> bool:
        """Read and convert a batch; False at the end."""
        assert self.source is not None
        try:
            read = next(self.source)
        except StopIteration:
            return False
        self.batches.append(self.conversion.begin(read))
        self.arrived.set()
        return True

    def take(self) -> Batch:
        """The next batch."""
        if os.getpid() != self.process:
            raise RuntimeError("prefetch: this process was forked from the one that reads (call prefetch here)")
        if self.thread is threading.current_thread():
            raise RuntimeError("prefetch: its source asks for batches that it would have to give itself")
        self.asked = True
        self.room.set()         # an interrupt may have come before the last call did it
        while not self.stopped:
            ended = self.ended  # read first: a batch that came before the end is then seen below
            try:
                return self.batches.popleft()
            except IndexError:
                if ended:
                    break
                self.arrived.wait()
        self.arrived.set()      # for another thread that waits
        if self.ended:
            self.join()         # so that nothing is left of the source, or of the target
        if self.stopped:
            self.clear()
        error, self.error = self.error, None
        try:
            if isinstance(error, StopIteration):
                raise RuntimeError(NO_END) from error
            raise StopIteration if error is None else error         # an error may count as false
        finally:
            del error

    def taken(self) -> None:
        """Let the thread read one more, and another thread of the caller's have the batches that are left."""
        self.room.set()
        if self.batches:
            self.arrived.set()

    def put_back(self, batch: Batch) -> None:
        """Have a batch come again, for whoever asks next, or waits already."""
        self.batches.appendleft(batch)
        self.arrived.set()
        if self.stopped:
            self.clear()

    def stop(self, seconds: float | None = 0) -> None:
        """Read no more. Wait up to ``seconds``, or for ever if it is None, for the batch that is being read."""
        if os.getpid() != self.process:
            return
        self.stopped = True
        self.clear()
        self.room.set()
        self.arrived.set()
        if seconds is None:
            self.join()
        elif seconds:
            self.thread.join(seconds)

    def clear(self) -> None:
        """Drop what nobody asks for any more."""
        self.batches.clear()
        self.error = None

    def join(self) -> None:
        """Wait for the thread: first by a latch, since its join() takes the thread for ended after an interrupt."""
        if self.thread is threading.current_thread():
            return
        if not self.ended:
            self.over.wait()
            self.over.set()     # for another thread that waits
        self.thread.join()


@atexit.register
def stop_all() -> None:
    """A thread that converts while Python ends could find nothing there any more."""
    running, end = list(readers), time.monotonic() + SECONDS_AT_EXIT
    for reader in running:
        reader.stop()
    for reader in running:
        reader.stop(max(0, end - time.monotonic()))


class Prefetched(Iterator[Any], contextlib.AbstractContextManager[Any]):
    """An iterator over converted batches: see :func:`dlbridge.prefetch`."""

    def __init__(self, batches: Any, to: Any, depth: int, others: str, columns: str, keywords: dict[str, Any]) -> None:
        conversion = BatchConversion(to, others, columns, keywords)
        if type(depth) is not int or depth < 1:
            raise ValueError(f"prefetch: depth {shown(depth)}: is no number of batches (pass 1 or more)")
        self._reader = Reader(iter(batches), conversion, depth)
        self._abandoned = weakref.finalize(self, self._reader.stop)
        self._abandoned.atexit = False
        self._reader.start()    # once somebody is there who ends it

    def __next__(self) -> Any:
        batch = self._reader.take()
        try:
            self._reader.taken()
            return self._reader.conversion.finish(batch)
        except Exception as error:
            self._reader.stop()         # an error is the end
            if isinstance(error, StopIteration):
                raise RuntimeError(NO_END) from error
            raise
        except BaseException:
            self._reader.put_back(batch)        # an interrupt is not
            raise

    def close(self) -> None:
        """End the thread, once it has read its batch. The source is released, and no batch comes any more."""
        self._reader.stop(None)

    def __exit__(self, *raised: object) -> None:
        self.close()
