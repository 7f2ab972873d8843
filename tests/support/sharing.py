"""What other processes do with memory that is shared with them. They import this by name."""

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import dlbridge
from dlbridge.processes import sending


def open_files():
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def descriptors():
    """How many of them are of memory."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):        # of the listing, or of a thread
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith("/memfd:") for link in links)


def mapped():
    """How many segments this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return sum("memfd:dlbridge" in line for line in lines)


def array_of(tensor):
    """An ndarray over the memory."""
    array = dlbridge.convert(tensor, "numpy", readonly="share")
    assert array.__array_interface__["data"][0] == tensor.data_ptr
    return array


def add_one(tensor):
    """Write to the memory, and say what was there."""
    array = array_of(tensor)
    before = array.tolist()
    array += 1
    return before


def add_ones(tensors, connection):
    connection.send([add_one(tensor) for tensor in tensors])
    connection.recv()       # the sender looks at them meanwhile


def serve(connection, inbox, outbox):
    """Do with what comes by the queue what comes by the connection."""
    while (function := connection.recv()) is not None:
        outbox.put(function(inbox.get()))


def same(tensor):
    return tensor


def made_there(value):
    return dlbridge.shared(np.full(4, value))


def put_and_end(queue, count):
    for value in range(count):
        queue.put(made_there(value))


def send_again(connection):
    """Send messages of one piece of memory, as many as are asked for."""
    tensor = dlbridge.shared(np.ones(1000))
    while count := connection.recv():
        connection.send([message(tensor) for _ in range(count)])


def take(connection):
    for _ in range(2):
        connection.send(array_of(connection.recv()).tolist())


def send_later(connection):
    """In a thread for which the process waits after all else."""
    threading.Thread(target=lambda: [threading.main_thread().join(), connection.send(made_there(2.0))]).start()


def take_and_wait(queue, connection):
    tensor = queue.get()
    connection.send(add_one(tensor))
    time.sleep(60)


def put_and_wait(queue):
    queue.put(made_there(3.0))
    queue.close()
    queue.join_thread()
    time.sleep(60)


def read_only_in_jax(tensor):
    """Whether nobody can write to it, whether JAX shares it then, and what JAX sees."""
    array = dlbridge.convert(tensor, "jax")
    return [tensor.readonly, array.unsafe_buffer_pointer() == tensor.data_ptr, array.tolist()]


class Batches:
    """A dataset of torch, by its two methods: ten batches."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {"x": dlbridge.shared(np.full(3, index))}


# ---- the sender's side: in every way in which processes begin --------------------------------------------------------

def by_arguments(context):
    whole = dlbridge.shared(np.arange(6.0))
    part = dlbridge.asdlpack(array_of(whole)[4:1:-1])
    ours, theirs = context.Pipe()
    process = context.Process(target=add_ones, args=([whole, part, whole], theirs))
    process.start()
    theirs.close()          # a process that ends is then seen to
    assert ours.recv() == [[0, 1, 2, 3, 4, 5], [5, 4, 3], [1, 2, 4, 5, 6, 5 + 1]]
    assert array_of(whole).tolist() == [2, 3, 5, 6, 7, 7]
    ours.send(None)
    process.join()
    assert process.exitcode == 0


def by_queues(context):
    ours, theirs = context.Pipe()
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=serve, args=(theirs, inbox, outbox))
    process.start()
    tensor = dlbridge.shared_empty((2, 2), "int16")
    for turn in range(3):
        ours.send(add_one)
        inbox.put(tensor)
        assert outbox.get(timeout=60) == [[turn] * 2] * 2
        assert array_of(tensor).tolist() == [[turn + 1] * 2] * 2
    ours.send(same)         # it comes back as what it is here already
    inbox.put(tensor)
    assert outbox.get(timeout=60).data_ptr == tensor.data_ptr
    ours.send(made_there)   # … and this stays where its sender has ended
    inbox.put(7)
    made = outbox.get(timeout=60)
    ours.send(None)
    process.join()
    assert array_of(made).tolist() == [7] * 4


def by_pools(context):
    tensor = dlbridge.shared_empty(3, "float32")
    with context.Pool(1) as pool:
        assert pool.apply(add_one, (tensor,)) == [0, 0, 0]
        assert array_of(pool.map(made_there, [1.0, 2.0])[1]).tolist() == [2] * 4
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        assert executor.submit(add_one, tensor).result() == [1, 1, 1]
        assert array_of(executor.submit(made_there, 3.0).result()).tolist() == [3] * 4
    assert array_of(tensor).tolist() == [2, 2, 2]


def by_a_sender_that_ends(context):
    queue = context.Queue()
    process = context.Process(target=put_and_end, args=(queue, 5))
    process.start()
    received = [queue.get(timeout=60) for _ in range(5)]
    process.join()
    assert process.exitcode == 0
    assert [array_of(tensor)[0] for tensor in received] == [0, 1, 2, 3, 4]


def by_a_thread_that_outlives_its_process(context):
    ours, theirs = context.Pipe()
    process = context.Process(target=send_later, args=(theirs,))
    process.start()
    theirs.close()
    assert array_of(ours.recv()).tolist() == [2] * 4
    process.join()


def by_a_sender_that_is_killed(context):
    """What was received stays; the rest is refused."""
    queue = context.Queue()
    process = context.Process(target=put_and_wait, args=(queue,))
    process.start()
    received = queue.get(timeout=60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert array_of(received).tolist() == [3] * 4
    queue = context.Queue()         # the first sender may have held the lock of the other one
    process = context.Process(target=put_and_wait, args=(queue,))
    process.start()
    while queue.empty() and process.is_alive():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(dlbridge.ConversionError, match="has ended"):
        queue.get(timeout=60)


def by_a_receiver_that_is_killed(context):
    queue = context.Queue()
    ours, theirs = context.Pipe()
    tensor = dlbridge.shared(np.ones(3))
    process = context.Process(target=take_and_wait, args=(queue, theirs))
    process.start()
    theirs.close()
    queue.put(tensor)
    assert ours.recv() == [1, 1, 1]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert array_of(tensor).tolist() == [2, 2, 2]
    queue.close()
    queue.join_thread()


WAYS = [by_arguments, by_queues, by_pools, by_a_sender_that_ends, by_a_thread_that_outlives_its_process,
        by_a_sender_that_is_killed,
        by_a_receiver_that_is_killed]


def reduced(tensor):
    """What a pickler of processes has of a Tensor's Segment: a function and its arguments."""
    _, (segment, *_) = tensor.__reduce_ex__(4)[1][0].in_segment()
    return sending.reduce_segment(segment)


def message(value):
    return bytes(ForkingPickler.dumps(value))


received = ForkingPickler.loads
