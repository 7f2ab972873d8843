"""Shared memory from process to process."""

import fcntl
import gc
import mmap
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from support import sharing
from support.children import in_child
from support.sharing import array_of, message, received

import dlbridge
from dlbridge.processes import descriptors, segment

FORKS = "ignore::DeprecationWarning"        # of forks beside threads, from Python 3.12 on
beside_threads = in_child(warnings=FORKS)


# ---- the ways --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("way", sharing.WAYS, ids=lambda way: way.__name__)
def test_processes_share_it(way, method):
    way(multiprocessing.get_context(method))


@pytest.mark.parametrize("way", [way.__name__ for way in sharing.WAYS])
@beside_threads
def test_forked_processes_share_it(way):
    import multiprocessing

    from support import sharing

    getattr(sharing, way)(multiprocessing.get_context("fork"))


@pytest.mark.needs("torch", "jax")
def test_what_nobody_can_write_is_shared_with_jax_in_the_receiver():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        constant = dlbridge.shared(np.arange(4, dtype="float32"), readonly=True)
        assert executor.submit(sharing.read_only_in_jax, constant).result() == [True, True, [0, 1, 2, 3]]
        writable = dlbridge.shared(np.arange(4, dtype="float32"))
        assert executor.submit(sharing.read_only_in_jax, writable).result() == [False, False, [0, 1, 2, 3]]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_a_loader_share_their_batches(method):
    """They end at once though nobody wants the last batches."""
    from torch.utils.data import DataLoader

    loader = DataLoader(sharing.Batches(), batch_size=None, num_workers=1, multiprocessing_context=method)
    others = {*multiprocessing.active_children()}
    batches = iter(loader)
    worker, = {*multiprocessing.active_children()} - others
    for index, batch in enumerate(batches):
        assert array_of(batch["x"]).tolist() == [index] * 3
        sent = message(batch)
        assert len(sent) < 1000
        received(sent)
        if index == 3:
            break
    del batches
    worker.join()
    assert worker.exitcode == 0         # torch ends by force what does not end by itself in five seconds


# ---- messages --------------------------------------------------------------------------------------------------------

def test_a_message_has_no_elements():
    whole = dlbridge.shared(np.zeros((1000, 1000)))
    for tensor in whole, dlbridge.asdlpack(array_of(whole)[1:, 5]), [whole] * 3:
        sent = message(tensor)
        assert len(sent) < 1000
        received(sent)
    assert len(message(dlbridge.asdlpack(np.zeros(1000)))) > 8000
    assert len(pickle.dumps(whole)) > 8_000_000         # by value, as a pickle may go anywhere
    copy = pickle.loads(pickle.dumps(whole))
    array_of(copy)[0, 0] = 1
    assert array_of(whole)[0, 0] == 0


LAYOUTS = {
    "whole": lambda array: array, "backward": lambda array: array[::-1, ::-2],
    "an element": lambda array: array[1, 2, ...],
    "repeated": lambda array: np.broadcast_to(array[0], (5, 4)), "turned": lambda array: array.T[1:],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("readonly", [False, True])
def test_any_view_is_the_same_view_over_there(layout, readonly):
    view = layout(array_of(dlbridge.shared(np.arange(12.0).reshape(3, 4), readonly=readonly)))
    tensor = dlbridge.asdlpack(view)
    made = received(message(tensor))
    for name in "shape", "strides", "dtype", "data_ptr", "readonly":
        assert getattr(made, name) == getattr(tensor, name)


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "complex64", "bool", "int64"])
def test_dtypes_arrive(dtype):
    tensor = dlbridge.shared_empty((2, 3), dtype)
    made = received(message(tensor))
    assert (made.dtype, made.shape, made.data_ptr) == (tensor.dtype, (2, 3), tensor.data_ptr)


@pytest.mark.needs("ml_dtypes")
def test_elements_below_a_byte_arrive():
    import ml_dtypes

    packed = dlbridge.shared_empty((3, 5), "int4")
    padded = dlbridge.shared(np.ones((3, 5), ml_dtypes.int4))
    for tensor, nbytes in (packed, 8), (padded, 15):
        made = received(message(tensor))
        assert (str(made.dtype), made.shape, made.nbytes, made.data_ptr) == ("int4", (3, 5), nbytes, tensor.data_ptr)
    assert dlbridge.convert(received(message(padded)), "numpy").tolist() == np.ones((3, 5)).tolist()


def test_a_message_is_received_once():
    tensor = dlbridge.shared(np.ones(3))
    sent = message(tensor)
    received(sent)
    with pytest.raises(dlbridge.ConversionError, match=r"received before, .*\(.*asdlpack\(x, copy=True\)\)"):
        received(sent)
    copied = message(dlbridge.asdlpack(tensor, copy=True))          # what the hint says
    assert array_of(received(copied)).tolist() == array_of(received(copied)).tolist() == [1, 1, 1]


@in_child(says="")
def test_what_lasts_is_received_again_until_it_is_withdrawn():
    import numpy as np
    import pytest

    import dlbridge
    from dlbridge.processes import descriptors, sending

    tensor = dlbridge.shared(np.ones(3))
    kept = [descriptors.offer(tensor.owner, lasts=True) for _ in range(2)]

    def receive(offered):
        return sending.receive(type(tensor.owner), tensor.owner.as_sent(), *offered)

    for offered in kept * 2:
        assert receive(offered) is tensor.owner
    descriptors.withdraw(*kept[0])
    with pytest.raises(dlbridge.ConversionError, match="has no such memory to give"):
        receive(kept[0])
    assert receive(kept[1]) is tensor.owner         # for which nobody waits at the end


def test_the_memory_of_a_message_stays_until_it_is_received():
    received(message(dlbridge.shared(np.ones(1))))          # the socket is there
    gc.collect()
    before = sharing.descriptors()
    sent = [message(dlbridge.shared(np.full(1000, value))) for value in range(5)]
    gc.collect()
    assert [array_of(received(each))[0] for each in sent] == [0, 1, 2, 3, 4]
    gc.collect()
    assert sharing.descriptors() == before


def test_a_descriptor_that_was_not_shown_right_is_not_taken():
    sender = descriptors.Sender()
    sender.begin()
    tensor = dlbridge.shared(np.ones(3))
    address, ticket, proof = sender.offer(tensor.owner)
    before = sharing.descriptors()
    for shown, expected in (b"x" * len(ticket), proof), (ticket, b"x" * len(proof)), (b"x", proof):
        with pytest.raises(dlbridge.ConversionError, match="received before"):
            descriptors.fetch(segment.HostSegment(), address, shown, expected)
    assert sharing.descriptors() == before


def test_a_descriptor_is_not_for_programs_that_are_started():
    _, message = sharing.reduced(dlbridge.shared(np.ones(3)))
    _, _, *offered = message
    arriving = segment.HostSegment()
    descriptors.fetch(arriving, *offered)
    assert not os.get_inheritable(arriving.descriptor)


@in_child
def test_whoever_is_slow_or_strange_does_not_keep_others():
    import socket

    import numpy as np
    from support.sharing import message, received

    import dlbridge
    from dlbridge.processes import descriptors

    tensor = dlbridge.shared(np.ones(3))
    sent = message(tensor)
    sender = descriptors.senders[0]
    strange = [socket.socket(socket.AF_UNIX) for _ in range(descriptors.MOST + 10)]
    for each in strange:
        each.connect(sender.address)
    strange[-1].close()
    strange[-2].send(b"x" * 1000)
    assert strange[9].recv(1) == b""            # the oldest had to go
    assert received(sent).data_ptr == tensor.data_ptr
    for each in strange:
        each.close()


@in_child
def test_clients_that_are_gone_are_forgotten():
    import socket

    import numpy as np
    from support.sharing import message, received

    import dlbridge
    from dlbridge.processes import descriptors

    sent = [message(dlbridge.shared(np.ones(3))) for _ in range(2)]
    sender = descriptors.senders[0]
    for said in b"", b"x" * descriptors.LENGTH:
        with socket.socket(socket.AF_UNIX) as gone:
            gone.connect(sender.address)
            gone.send(said)
        received(sent.pop())
        assert sender.clients == {}


def test_whoever_has_the_name_of_a_sender_and_does_not_answer(monkeypatch):
    monkeypatch.setattr(descriptors, "ATTEMPTS", 3)
    server, address = descriptors.listen()

    def hang_up():
        for _ in range(descriptors.ATTEMPTS):
            server.accept()[0].close()

    with server, ThreadPoolExecutor(1) as pool:
        hung_up = pool.submit(hang_up)
        with pytest.raises(dlbridge.ConversionError, match="does not answer"):
            descriptors.fetch(segment.HostSegment(), address, b"", b"")
        hung_up.result()


@in_child
def test_a_sender_without_a_thread_is_none():
    import threading

    import numpy as np
    import pytest
    from support.sharing import message, received

    import dlbridge

    def fail(self):
        threading.Thread.start = start
        raise RuntimeError("can't start new thread")

    tensor = dlbridge.shared(np.ones(3))
    start, threading.Thread.start = threading.Thread.start, fail
    with pytest.raises(RuntimeError, match="new thread"):
        message(tensor)
    assert received(message(tensor)).data_ptr == tensor.data_ptr


@in_child
def test_a_sender_that_cannot_give_what_it_has_says_so():
    import os

    import numpy as np
    import pytest
    from support.sharing import message, received

    import dlbridge
    from dlbridge.processes import descriptors

    lower = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    tensor = dlbridge.shared(np.ones(3))
    sent = message(tensor)
    for number in *lower, tensor.owner.descriptor:      # a lower one is taken by whoever opens a file next
        os.close(number)
    with pytest.raises(dlbridge.ConversionError, match="has no such memory to give"):
        received(sent)
    assert not descriptors.senders[0].offered


@pytest.mark.parametrize("lie", ["a file", "no seals", "size", "nothing"])
def test_a_descriptor_that_is_not_what_it_should_be(lie):
    memory = os.open("/dev/zero", os.O_RDWR) if lie == "a file" else os.memfd_create(
        "lie", 0 if lie == "no seals" else os.MFD_ALLOW_SEALING)
    if lie != "a file":
        os.truncate(memory, 4096)
        if lie != "no seals":
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    size = {"size": 4097, "nothing": 0}.get(lie, 4096)
    arriving = segment.HostSegment()
    arriving.take(memory)
    with pytest.raises(dlbridge.ConversionError, match=rf"size {size}: is not what the descriptor is sealed to"):
        arriving.arrived(os.urandom(16), size)
    del arriving
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(memory)


def test_no_process_can_shrink_what_another_one_has():
    writable, constant = dlbridge.shared(np.ones(3)), dlbridge.shared(np.ones(3), readonly=True)
    for tensor in writable, constant:
        with pytest.raises(PermissionError):
            os.ftruncate(tensor.owner.descriptor, 0)
    with pytest.raises(PermissionError):
        os.pwrite(constant.owner.descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(constant.owner.descriptor, 24)


def test_threads_send_and_receive():
    def send(number):
        for turn in range(50):
            value = number * 1000 + turn
            whole = dlbridge.shared(np.full(100, value))
            sent = message([whole, dlbridge.asdlpack(array_of(whole)[5:7])])
            if turn % 2:
                del whole           # it is mapped anew
            first, part = received(sent)
            assert first.data_ptr == part.data_ptr - 40
            assert array_of(part).tolist() == [value] * 2

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(8)))


@beside_threads
def test_threads_that_receive_and_drop_it_at_once():
    import multiprocessing
    import sys
    import threading

    from support import sharing

    def take(messages):
        for each in messages:
            assert sharing.array_of(sharing.received(each))[5] == 1

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=sharing.send_again, args=(theirs,))
    process.start()
    sys.setswitchinterval(1e-5)
    for _ in range(40):
        ours.send(160)
        messages = ours.recv()
        threads = [threading.Thread(target=take, args=(messages[part::8],)) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ours.send(0)
    process.join()


@in_child
def test_what_is_withdrawn_while_somebody_fetches_it_is_gone():
    import socket

    import numpy as np

    import dlbridge
    from dlbridge.processes import descriptors

    tensor = dlbridge.shared(np.ones(3))
    address, ticket, proof = descriptors.offer(tensor.owner, lasts=True)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        client.send(ticket)
        assert client.recv(descriptors.LENGTH) == proof
        descriptors.withdraw(address, ticket, proof)
        client.send(descriptors.MISSING)
        assert client.recv(1) == b""
    sender, = descriptors.senders
    assert (sender.offered, sender.given, sender.left()) == ({}, {}, 0)


def test_a_damaged_message_keeps_nothing():
    memory = bytearray(16)
    for shape, strides, dtype in (None, (1,), "int8"), ((1,), None, "int8"), ((1, 2), (1,), "int8"), (
            (1,), ("x",), "int8"), ((1,), (1,), None), ((1,), (1,), "float128"):
        with pytest.raises((TypeError, dlbridge.ConversionError)):
            dlbridge.tensor.tensor_over(memory, 0, shape, strides, dtype, False, False)
    memory.append(0)            # which is an error while anything exports it


@in_child
def test_whoever_is_interrupted_while_it_receives_keeps_nothing():
    import signal

    import numpy as np
    from support.sharing import descriptors, mapped, message, received

    import dlbridge

    class InterruptedHereError(Exception):
        pass

    def interrupt(*_):
        raise InterruptedHereError

    sent = [message(dlbridge.shared(np.ones(3))) for _ in range(500)]
    signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    for turn, each in enumerate(sent):
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-5 * (turn % 50 + 1))
            received(each)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except InterruptedHereError:
            interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    offered = dlbridge.processes.descriptors.senders[0].offered         # what nobody came to ask for
    assert interrupted
    assert (descriptors(), mapped()) == (len(offered), len(offered))
    offered.clear()


# ---- limits, forks and ends ------------------------------------------------------------------------------------------

@in_child
def test_without_descriptors_there_are_errors():
    import resource

    import numpy as np
    import pytest
    from support.sharing import array_of, message, open_files, received

    import dlbridge

    tensor, kept = dlbridge.shared(np.ones(3)), []
    received(message(tensor))       # the socket is there
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 5, 4096))
    with pytest.raises(OSError, match="shared: 24 bytes: Too many open files"):
        kept.extend(dlbridge.shared(np.ones(3)) for _ in range(20))
    sent = message(tensor)
    with pytest.raises(OSError, match="Too many open files"):
        received(sent)
    kept.clear()
    assert array_of(received(sent)).tolist() == [1, 1, 1]       # whoever had none for the socket may try again


@in_child(says="1\n")
def test_a_sender_without_descriptors_gives_what_it_has_sent():
    import multiprocessing
    import resource
    import socket

    import numpy as np
    import pytest
    from support import sharing

    import dlbridge
    from dlbridge.processes import descriptors

    context = multiprocessing.get_context("fork")
    (ours, theirs), kept = context.Pipe(), []
    process = context.Process(target=sharing.take, args=(theirs,))
    process.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (sharing.open_files() + 12, 4096))
    ours.send(dlbridge.shared(np.ones(1)))
    assert ours.recv() == [1]
    ours.send(dlbridge.shared(np.ones(1)))
    idle = socket.socket(socket.AF_UNIX)
    idle.connect(descriptors.senders[0].address)
    with pytest.raises(OSError, match="Too many open files"):
        kept.extend(dlbridge.shared(np.ones(3)) for _ in range(20))
    print(*map(int, ours.recv()))
    process.join()
    idle.close()


@beside_threads
def test_a_child_that_is_forked_meanwhile_keeps_no_memory():
    import os
    import threading

    import numpy as np
    from support import sharing

    import dlbridge

    backward = np.ones((2000, 2000), "float32")[:, ::-1]
    made, ended = [], threading.Event()

    def share():
        while not ended.is_set():
            made.append(dlbridge.shared(backward, readonly=True).readonly)
            made.append(dlbridge.shared(backward.base).readonly)

    thread = threading.Thread(target=share)
    thread.start()
    codes = []
    for _ in range(20):
        child = os.fork()
        if not child:
            os._exit(sharing.descriptors() - sharing.mapped())
        codes.append(os.waitpid(child, 0)[1])
    ended.set()
    thread.join()
    assert codes == [0] * 20
    assert set(made) == {True, False}


@in_child(says="True True\nTrue\n", warnings=FORKS)
def test_a_forked_child_sends_for_itself():
    import atexit
    import os
    import sys

    import numpy as np
    from support.sharing import array_of, message, received

    import dlbridge

    tensor = dlbridge.shared(np.ones(3))
    received(message(tensor))
    sent = message(tensor)
    read, write = os.pipe()
    sys.stdout.flush()
    if not os.fork():
        made = received(sent)               # of the parent
        print(made.data_ptr == tensor.data_ptr, array_of(made).tolist() == [1, 1, 1], flush=True)
        os.write(write, message(dlbridge.shared(np.full(2, 7.0))))
        atexit.register(os.close, write)    # runs first
        sys.exit()
    os.close(write)
    theirs = os.read(read, 4096)
    assert os.read(read, 1) == b""          # the child is about to end, and waits
    print(array_of(received(theirs)).tolist() == [7, 7])
    os.wait()


@beside_threads
def test_a_forked_child_does_not_answer_for_its_parent():
    import os
    import signal

    import numpy as np
    import pytest
    from support.sharing import message, received

    import dlbridge

    (from_child, to_parent), (waits, go) = os.pipe(), os.pipe()
    sender = os.fork()
    if not sender:
        sent = message(dlbridge.shared(np.ones(3)))
        if not os.fork():
            os.read(waits, 1)               # it outlives the sender, with the sockets that it was forked with
            os._exit(0)
        os.write(to_parent, sent)
        signal.pause()
    os.close(to_parent)
    sent = os.read(from_child, 4096)
    os.kill(sender, signal.SIGKILL)
    os.waitpid(sender, 0)
    with pytest.raises(dlbridge.ConversionError, match="has ended"):
        received(sent)
    os.write(go, b"x")


@in_child(complains="RuntimeWarning: dlbridge.shared: 2 of what was sent has not", warnings="default")
def test_what_nobody_received_is_said_at_the_end():
    import numpy as np
    from support.sharing import message

    import dlbridge
    from dlbridge.processes import descriptors

    descriptors.PATIENCE = 0.01
    tensor = dlbridge.shared(np.ones(3))
    message(tensor), message(tensor)


@in_child
def test_what_is_sent_while_a_process_waits_is_waited_for():
    import threading

    import numpy as np
    from support.sharing import array_of, message, received

    import dlbridge
    from dlbridge.processes import descriptors

    dlbridge.shared(np.ones(1))
    descriptors.PATIENCE = 60
    first = message(dlbridge.shared(np.ones(1)))
    sender = descriptors.senders[0]
    waiting = threading.Thread(target=descriptors.wait)
    waiting.start()
    second = message(dlbridge.shared(np.full(1, 2.0)))
    for sent, value in (first, 1), (second, 2):
        assert waiting.is_alive()
        assert array_of(received(sent)) == [value]
    waiting.join()
    assert (sender.offered, sender.given) == ({}, {})


@in_child
def test_importing_dlbridge_does_not_import_multiprocessing():
    import sys

    import dlbridge

    assert "multiprocessing" not in sys.modules
    dlbridge.shared_empty(3)
    assert "multiprocessing.reduction" in sys.modules


def test_killed_processes_leave_nothing():
    context = multiprocessing.get_context("forkserver")
    ways = sharing.by_a_sender_that_is_killed, sharing.by_a_receiver_that_is_killed
    counts = []
    for _ in range(4):
        for way in ways:
            way(context)
        gc.collect()
        counts.append((sharing.descriptors(), sharing.mapped()))
    assert len({*counts}) == 1


@in_child(says="")
def test_a_segment_may_live_until_the_end():
    import multiprocessing

    import numpy as np

    import dlbridge

    multiprocessing.current_process().kept = dlbridge.shared(np.ones(3))       # as the arguments of a process
