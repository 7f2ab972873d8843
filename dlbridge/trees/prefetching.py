"""What ``prefetch`` does: a thread reads and converts the next batches while the caller works on this one.

The thread gives no array of a device to its library. It makes Tensors, and the caller's thread hands them out: only
there it is known which stream will use the memory. What was uploaded is complete by then, so the host does not wait.
"""

import atexit
import collections
import contextlib
import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from dlbridge.convert import asdlpack, convert
from dlbridge.errors import ConversionError, DLBridgeError, refusal, shown
from dlbridge.tensor import Tensor
from dlbridge.trees.ahead import addresses, destination, on_gpu, seal, traits, upload
from dlbridge.trees.failure import Failure, report
from dlbridge.trees.leaf import ARRAY
from dlbridge.trees.leaves import AS_THEY_ARE, Takers, taker, takers
from dlbridge.trees.walk import map_leaves, map_tree

SECONDS_AT_EXIT = 1.0           # that the end of Python waits for a source
Spans = list[tuple[int, int]]   # of addresses, sorted, none of which touches another


class Batch(NamedTuple):
    tree: Any
    handed: bool        # whether the caller's thread has to hand out Tensors in it
    spans: Spans        # of memory that the source may have, too


class Conversion:
    """The two halves of what becomes of a batch: ``begin`` in the thread, ``finish`` in the caller's."""

    def __init__(self, to: Any, others: str, columns: str, keywords: dict[str, Any]) -> None:
        self.take = takers("prefetch", to, others, columns, keywords,
                           functools.partial(self.convert_ahead, to=to, **keywords), queued=[])
        self.keywords = keywords
        self.target, self.device = destination(to, keywords.get("device"))
        self.immutable, self.copies_own = traits(self.target)
        copied = keywords.get("copy") or (self.immutable and keywords.get("readonly") != "share")
        self.shares = not copied        # whether a result may be in memory of the source
        self.uploaded: weakref.WeakSet[Tensor] = weakref.WeakSet()      # Tensors over copies that nobody else has
        late: dict[str, Any] = {name: keywords[name] for name in ("stream", "readonly", "narrow") if name in keywords}
        self.finishing: Takers = {
            **AS_THEY_ARE, ARRAY: taker(functools.partial(self.hand_out, to=to, **late), to, "pass")}
        self.handed = False
        self.shared: Spans = []

    def begin(self, batch: Any) -> Batch:
        self.handed, self.shared = False, []
        try:
            tree = map_tree(self.take, batch)
        except Failure as failure:
            report(failure, [("", batch)], function="prefetch")
        return Batch(tree, self.handed, merged(self.shared))

    def finish(self, batch: Batch) -> Any:
        try:
            return map_leaves(self.finishing, batch.tree, {}) if batch.handed else batch.tree
        except Failure as failure:
            report(failure, [("", batch.tree)], function="prefetch")

    def convert_ahead(self, array: Any, queued: list[Any] | None = None, *, to: Any, **keywords: Any) -> Any:
        """The array of the target, or a Tensor that becomes one in the caller's thread."""
        there, copy, detach = on_gpu(array), keywords.get("copy"), keywords.get("detach", False)
        if self.device is None and (keywords.get("device") is not None or not there):
            result: Any = convert(array, to, **keywords)
            self.note(result)
            return result
        self.handed = True
        if not there:           # as far as the type says; the Tensor says where the memory really is
            array = asdlpack(array, copy=False if copy is False else None, readonly="share", detach=detach)
        if there or on_gpu(array):
            shared = convert(array, "dlbridge", device=self.device, copy=copy, detach=detach)
            self.note(shared)
            return shared
        tensor = upload(array, self.target, self.device, copy, keywords.get("narrow", False), queued)
        self.uploaded.add(tensor)
        return seal(tensor) if self.immutable else tensor

    def note(self, result: Any) -> None:
        """Note memory that a later batch of the source may be in, too. A capsule may be asked only once."""
        if self.shares and type(result).__name__ != "PyCapsule":
            with contextlib.suppress(DLBridgeError):
                span = addresses(convert(result, "dlbridge", detach=True))
                self.shared.extend([span] if span else [])

    def hand_out(self, tensor: Any, to: Any, **keywords: Any) -> Any:
        if type(tensor) is not Tensor:
            return tensor
        if self.target.name == "dlbridge":
            keywords.pop("narrow", None)
            return asdlpack(tensor, **keywords)
        # A library that lets memory go before it has read it gets no copy that only a Tensor keeps.
        ours = tensor in self.uploaded
        copy = True if ours and self.copies_own else None if ours else self.keywords.get("copy")
        return convert(tensor, to, device=self.device, copy=copy, **keywords)


def merged(spans: Spans) -> Spans:
    together: Spans = []
    for first, last in sorted(spans):
        if together and first <= together[-1][1]:
            together[-1] = together[-1][0], max(last, together[-1][1])
        else:
            together.append((first, last))
    return together


def overlap(spans: Spans, others: Spans) -> bool:
    """Whether two lists of spans share an address. None of a list's own overlap, so two neighbours do, if any do."""
    together = sorted([*spans, *others])        # quick, since it is two sorted runs
    return any(begin < end for (_, end), (begin, _) in itertools.pairwise(together))


# ---- the thread ------------------------------------------------------------------------------------------------------

readers: "weakref.WeakSet[Reader]" = weakref.WeakSet()


class Reader:
    """What the thread and the iterator share. The thread does not know the iterator, so that it can be abandoned."""

    def __init__(self, source: Iterator[Any], closes: bool, conversion: Conversion, depth: int) -> None:
        self.source: Iterator[Any] | None = source
        self.closes = closes            # the source, when it ends
        self.conversion = conversion
        self.depth = depth
        self.process = os.getpid()
        self.changed = threading.Condition()
        # All of these under its lock:
        self.batches: collections.deque[Batch] = collections.deque()
        self.error: BaseException | None = None
        self.given: Batch | None = None         # the caller's
        self.before: list[Batch] = []           # of batches when the one began that is being read
        self.stopped = False                    # the caller wants no more
        self.ended = False                      # there are no more
        self.thread = threading.Thread(target=self.run, name="dlbridge.prefetch", daemon=True)
        self.thread.start()
        readers.add(self)

    def run(self) -> None:
        error = None
        try:
            while self.has_room() and self.read():
                pass
        except BaseException as raised:
            error = raised
        try:
            self.close_source()
        except BaseException as raised:
            error = error or raised
        with self.changed:
            self.error, self.ended = error, True
            self.changed.notify_all()
        del error               # whose traceback has this frame

    def has_room(self) -> bool:
        """Wait until one more batch may be read, also in the place of the caller's; False if none is wanted."""
        with self.changed:
            while len(self.batches) + bool(self.given) > self.depth and not self.stopped:
                self.changed.wait()
            # These are in use while the next one is read. They are kept, so that their memory is not given out again.
            self.before = [batch for batch in (*self.batches, self.given) if batch and batch.spans]
            return not self.stopped

    def read(self) -> bool:
        """Read and convert a batch; False at the end."""
        assert self.source is not None
        try:
            read = next(self.source)
        except StopIteration:
            return False
        batch = self.conversion.begin(read)
        del read
        with self.changed:
            before, self.before = self.before, []
            self.check_memory(batch, before)
            self.batches.append(batch)
            self.changed.notify_all()
        return True

    def check_memory(self, batch: Batch, before: list[Batch]) -> None:
        """Refuse memory of a batch that waits, which nobody is to see then, or that the caller had meanwhile."""
        spoilt = next((place for place, other in enumerate(self.batches) if overlap(batch.spans, other.spans)), None)
        while spoilt is not None and len(self.batches) > spoilt:
            self.batches.pop()
        if spoilt is not None or any(overlap(batch.spans, other.spans) for other in before):
            raise refusal(ConversionError, "prefetch", "memory", "of a batch",
                          "is that of an earlier one, which is still in use, and may have been written again",
                          "pass copy=True")

    def close_source(self) -> None:
        source, self.source = self.source, None
        close = getattr(source, "close", None) if self.closes else None
        if close is not None:
            close()

    def take(self) -> Batch:
        """The next batch, which is the caller's until the next call."""
        if os.getpid() != self.process:
            raise RuntimeError("prefetch: this process was forked from the one that reads (call prefetch here)")
        with self.changed:
            self.given = None
            self.changed.notify_all()
            while not (self.ended or self.stopped or self.is_ready()):
                self.changed.wait()
            if self.batches and not self.stopped:
                self.given = self.batches.popleft()
                self.changed.notify_all()
                return self.given
            error, self.error = self.error, None
        try:
            if isinstance(error, StopIteration):
                raise RuntimeError("prefetch: a conversion raised StopIteration") from error
            raise error or StopIteration
        finally:
            del error

    def is_ready(self) -> bool:
        """Whether there is a batch to give. Before one that shares memory the next one is read, and checked."""
        return len(self.batches) > 1 or (len(self.batches) == 1 and not self.batches[0].spans)

    def stop(self, seconds: float | None = 0) -> None:
        """Read no more, and wait so long, or for ever, for what is being read."""
        if os.getpid() != self.process:
            return
        with self.changed:
            self.stopped = True
            self.batches.clear()
            self.given = None
            self.changed.notify_all()
        if self.thread is not threading.current_thread():
            self.thread.join(seconds)


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
        conversion = Conversion(to, others, columns, keywords)
        if type(depth) is not int or depth < 1:
            raise ValueError(f"prefetch: depth {shown(depth)}: is no number of batches (pass 1 or more)")
        source = iter(batches)
        # An iterator that was handed in belongs to the caller, unless nobody else can go on with it.
        closes = source is not batches or hasattr(source, "gi_frame")
        self._reader = Reader(source, closes, conversion, depth)
        self._abandoned = weakref.finalize(self, self._reader.stop)
        self._abandoned.atexit = False

    def __next__(self) -> Any:
        batch = self._reader.take()
        try:
            return self._reader.conversion.finish(batch)
        except BaseException:
            self._reader.stop()         # an error is the end
            raise

    def close(self) -> None:
        """End the thread, and close the source. It waits for the batch that is being read."""
        self._reader.stop(None)

    def __exit__(self, *raised: object) -> None:
        self.close()
