"""watch(): every copy is seen, by the line that called, with why; and nothing else is."""

import copy
import inspect
import logging
import pickle
import re
import threading
import types
import weakref

import numpy as np
import pytest
from support.children import in_child, run_script

import dlbridge
from dlbridge.trees import containers
from dlbridge.watch import FURTHER, MOST_ROWS, pending, watching

swapped = np.arange(6.0).astype(">f8")
ORDER = "byte order is not this machine's, and {} has no other"


def watched(function, *arguments, **keywords):
    """The only copy that a call makes."""
    with dlbridge.watch() as copies:
        function(*arguments, **keywords)
    [found] = copies
    return found


@dlbridge.accepts("numpy", returns="like")
def accepting(first, *, named=None):
    return swapped if named is None else named["x"]


def by_prefetch(batches, **keywords):
    for _ in dlbridge.prefetch(batches, "dlbridge", **keywords):
        pass


def by_hand(tensor):
    tensor.__dlpack__()


WAYS = {
    "convert": (lambda: dlbridge.convert(swapped, "dlbridge"), 48, "dlbridge", ORDER.format("dlbridge"), ""),
    "asdlpack": (lambda: dlbridge.asdlpack(swapped), 48, "dlbridge", ORDER.format("dlbridge"), ""),
    "to_dlpack": (lambda: dlbridge.to_dlpack(swapped), 48, "dlpack", ORDER.format("dlpack"), ""),
    "copy=True": (lambda: dlbridge.convert(bytearray(3), "numpy", copy=True), 3, "numpy", "copy was asked for", ""),
    "out": (lambda: dlbridge.convert(swapped, "numpy", out=np.zeros(6)), 48, "numpy", "out takes a copy", ""),
    "dtype": (lambda: dlbridge.convert(b"12345678", "dlbridge", dtype=">i4"), 8, "dlbridge",
              ORDER.format("dlbridge"), ""),
    "capsule": (lambda: by_hand(dlbridge.asdlpack(b"123")), 3, "a legacy capsule", "readonly memory would become "
                "writable, since a legacy capsule cannot be told otherwise", ""),
    "deepcopy": (lambda: copy.deepcopy(dlbridge.asdlpack(np.zeros(2))), 16, "a capsule", "copy was asked for", ""),
    "pickle": (lambda: pickle.dumps(dlbridge.asdlpack(np.zeros((4, 4))[::2, ::2]), 5), 32, "a pickle",
               "strides (8, 2) of shape (2, 2) leave holes, which a pickle does not support", ""),
    "older pickle": (lambda: pickle.dumps(dlbridge.asdlpack(np.zeros(2)), 4), 16, "a pickle",
                     "protocol 4 carries bytes", ""),
    "convert_tree": (lambda: dlbridge.convert_tree({"a": [1, "b", swapped]}, "dlbridge"), 48, "dlbridge",
                     ORDER.format("dlbridge"), "['a'][2]"),
    "several places": (lambda: dlbridge.convert_tree([swapped, (swapped,)], "dlbridge"), 48, "dlbridge",
                       ORDER.format("dlbridge"), "[0]"),
    "columns": (lambda: dlbridge.convert_tree([np.zeros(2, [("x", "<f4"), ("y", ">f4")])], "dlbridge"), 8, "dlbridge",
                ORDER.format("dlbridge"), "[0]['y']"),
    "prefetch of words": (lambda: by_prefetch([[np.array(["ab"])]]), 8, "a batch",
                          "what prefetch() gives is the caller's own", ""),
    "prefetch": (lambda: by_prefetch([[np.zeros(3)]]), 24, "dlbridge", "what prefetch() gives is the caller's own",
                 "[0]"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_out_is_seen(way):
    call, nbytes, target, reason, path = WAYS[way]
    found = watched(call)
    assert (found.times, found.nbytes, found.target, found.reason, found.path) == (1, nbytes, target, reason, path)
    assert (found.device, found.target_device) == ("cpu", "cpu")
    assert found.hint
    # Of prefetch it is the line that made the iterator, and not one of the thread.
    file, _, line = found.place.rpartition(":")
    caller = by_prefetch if way.startswith("prefetch") else by_hand if way == "capsule" else call
    lines, first = inspect.getsourcelines(caller)
    # The copy module, which calls the Tensor, is the caller of its deep copy.
    assert file == copy.__file__ if way == "deepcopy" else file == __file__ and first <= int(line) < first + len(lines)


def test_arguments_and_results_of_a_function_are_seen_by_their_names():
    big = np.arange(3.0).astype(">f8")
    tensor = dlbridge.asdlpack(np.zeros(2))
    with dlbridge.watch() as copies:
        accepting(tensor, named={"x": big})
        accepting(tensor)
    assert sorted((each.path, each.target, each.nbytes) for each in copies) == [
        ("result", "dlbridge", 24), ("result", "dlbridge", 48)]


@pytest.mark.needs("torch")
def test_what_torch_copies_is_seen():
    import torch

    @dlbridge.accepts("torch")
    def take(first, *, named):
        pass

    found = watched(take, 1, named={"x": swapped})
    assert (found.target, found.path, found.source) == ("torch", "named['x']", "numpy.ndarray")
    found = watched(dlbridge.convert, torch.zeros(3), "torch", copy=True)
    assert (found.source, found.target, found.nbytes) == ("torch.Tensor", "torch", 12)
    found = watched(dlbridge.collate, [{"x": np.zeros(3, "f4")}] * 2)
    assert (found.nbytes, found.path, found.reason) == (24, "[…]['x']", "samples are stacked into one batch")
    found = watched(dlbridge.collate, [np.int64(1)] * 3)
    assert (found.nbytes, found.source) == (24, "numpy.int64")
    assert watched(dlbridge.collate, [type("Own", (dict,), {})(x=np.zeros(2))] * 3).nbytes == 48
    with dlbridge.watch() as copies:
        dlbridge.collate([1, 2, 3])
    assert list(copies) == []


def test_memory_that_is_made_anew_each_time_is_seen():
    class Lens:
        @property
        def __array_interface__(self):
            return {"version": 3, "shape": (4,), "typestr": "|u1", "data": bytearray(b"lens")}

    found = watched(dlbridge.convert, Lens(), "numpy", readonly="share")
    assert (found.nbytes, found.reason) == (4, dlbridge.explain(Lens(), "numpy").reason)
    with dlbridge.watch() as copies:
        dlbridge.convert(types.SimpleNamespace(__array_interface__=swapped.__array_interface__, kept=swapped), "numpy")
    assert list(copies) == []


@pytest.mark.needs("PIL")
def test_a_copy_by_its_own_library_says_why():
    from PIL import Image

    with dlbridge.watch() as copies:
        list(dlbridge.prefetch([[Image.new("L", (2, 2))]], "pillow"))
        dlbridge.convert(Image.new("L", (2, 2)), "pillow", copy=True)
    assert {copy.reason for copy in copies} == {"what prefetch() gives is the caller's own", "copy was asked for"}


@pytest.mark.needs("pyarrow")
def test_chunks_that_are_gathered_are_seen():
    import pyarrow

    chunks = pyarrow.chunked_array([[1, 2], [3]])
    found = watched(dlbridge.convert, chunks, "numpy")
    assert (found.nbytes, found.reason) == (24, "chunks are gathered into one array")
    with dlbridge.watch() as copies:
        dlbridge.explain(chunks, "numpy")
    assert not list(copies)


def test_what_is_shared_or_refused_or_explained_is_not_seen():
    with dlbridge.watch() as copies:
        tensor = dlbridge.asdlpack(np.zeros(3))
        dlbridge.convert(tensor, "numpy")
        dlbridge.convert_tree([tensor, 1], "numpy")
        dlbridge.explain(swapped, "dlbridge")
        with pytest.raises(dlbridge.CopyRequiredError):
            dlbridge.asdlpack(swapped, copy=False)
        with pytest.raises(dlbridge.ConversionError):
            dlbridge.convert(np.zeros(3), "numpy", out=np.zeros(4))
        accepting(np.zeros(3), named={"x": np.zeros(1)})
    assert list(copies) == []
    assert str(copies) == "no copies"
    dlbridge.asdlpack(swapped)              # nobody watches
    assert list(copies) == []
    assert pending == {}


def test_copies_of_a_line_are_in_one_row_and_the_most_bytes_come_first():
    with dlbridge.watch() as copies:
        for count in 1, 2, 3:
            dlbridge.asdlpack(np.zeros((count, 2), ">f8"))
        dlbridge.asdlpack(np.zeros(100, ">f8"))
    assert [(each.times, each.nbytes) for each in copies] == [(1, 800), (3, 96)]
    assert len(copies) == 2
    assert str(copies).startswith("4 times, 896 bytes copied\nonce, 800 bytes: numpy.ndarray on cpu -> dlbridge\n")
    html = copies._repr_html_()
    assert html.count("<tr>") == 3
    assert "byte order is not this machine&#x27;s" in html


def test_a_watch_sees_all_threads_and_others_watch_beside_it():
    start, together = threading.Barrier(4), 50

    def work():
        start.wait()
        for _ in range(together):
            dlbridge.asdlpack(swapped)
            dlbridge.convert_tree([swapped], "dlbridge")

    threads = [threading.Thread(target=work) for _ in range(4)]
    with dlbridge.watch() as outer:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        first = dlbridge.watch()
        first.__enter__()
        second = dlbridge.watch()
        second.__enter__()
        dlbridge.asdlpack(swapped)
        first.__exit__()
        dlbridge.asdlpack(swapped)          # they overlap, and none is inside of the other
        second.__exit__()
    assert sum(each.times for each in outer) == 4 * 2 * together + 2
    assert [sum(each.times for each in one) for one in (first, second)] == [1, 2]


def test_a_watch_that_is_used_again_counts_on():
    copies = dlbridge.watch()
    for _ in range(2):
        with copies:
            dlbridge.asdlpack(swapped)
    assert [each.times for each in copies] == [2]


def test_what_comes_from_too_many_places_is_in_one_row():
    names = {f"line {number}": number for number in range(MOST_ROWS + 20)}
    with dlbridge.watch() as copies:
        for name in names:
            exec(compile("dlbridge.asdlpack(swapped)", name, "exec"))
    assert len(copies) == MOST_ROWS + 1
    assert sum(each.times for each in copies) == len(names)
    assert next(iter(copies))[:2] == (20, 20 * 48)
    assert next(iter(copies)).place == FURTHER


def test_nothing_is_kept_of_what_is_copied():
    class Array(np.ndarray):
        pass

    array = swapped.view(Array)
    kept = weakref.ref(array)
    with dlbridge.watch() as copies:
        dlbridge.convert_tree([array], "dlbridge")
        dlbridge.asdlpack(array)
        with pytest.raises(dlbridge.DLBridgeError):
            dlbridge.convert_tree([array, object()], "dlbridge", others="raise")
        del array
        assert kept() is None
        assert pending == {}
    assert sum(each.times for each in copies) == 3


def test_a_tree_that_is_converted_by_the_code_of_another_one_has_its_own_paths():
    class Box:
        def __init__(self, array):
            self.array = array

    def flatten(box):
        dlbridge.convert_tree([inner], "dlbridge")
        return [box.array]

    dlbridge.register_container(Box, flatten, lambda box, arrays: Box(*arrays))
    inner, outer = np.zeros(3, ">f4"), np.zeros(5, ">f4")
    with dlbridge.watch() as copies:
        dlbridge.convert_tree({"x": outer, "box": Box(np.zeros(3))}, "dlbridge")
    assert sorted((each.times, each.nbytes, each.path) for each in copies) == [(1, 12, "[0]"), (1, 20, "['x']")]
    assert pending == {}


def test_watches_begin_and_end_beside_trees():
    stop, errors = threading.Event(), []

    def convert():
        while not stop.is_set():
            try:
                dlbridge.convert_tree([swapped, swapped.copy()], "dlbridge")
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=convert) for _ in range(3)]
    with dlbridge.watch():
        for each in threads:
            each.start()
        for _ in range(300):
            with dlbridge.watch():
                pass
        stop.set()
        for each in threads:
            each.join()
    assert (errors, pending, watching) == ([], {}, [])


def test_what_a_handler_of_the_log_raises_does_not_reach_the_conversion(caplog, monkeypatch):
    def refuse(record):
        raise RuntimeError("a filter")

    caplog.set_level(logging.INFO, "dlbridge")
    monkeypatch.setattr(logging.getLogger("dlbridge"), "filter", refuse)
    with dlbridge.watch() as copies:
        dlbridge.asdlpack(swapped)
        with pytest.raises(dlbridge.UnsupportedError):
            dlbridge.convert_tree([swapped, object()], "dlbridge", others="raise")
    assert (sum(each.times for each in copies), watching, pending) == (2, [], {})


def test_a_watch_is_entered_once_at_a_time():
    copies = dlbridge.watch()
    with pytest.raises(RuntimeError, match="watch: it is not entered"):
        copies.__exit__()
    with copies:
        with pytest.raises(RuntimeError, match="watch: it is entered already"):
            copies.__enter__()
        dlbridge.asdlpack(swapped)
    assert [each.times for each in copies] == [1]


def test_the_logger_gets_each_row_once(caplog):
    caplog.set_level(logging.INFO, "dlbridge")
    for _ in range(2):
        with dlbridge.watch(), dlbridge.watch():
            for _ in range(3):
                dlbridge.asdlpack(swapped)
    assert [record.name for record in caplog.records] == ["dlbridge"] * 2
    assert re.match(r"once, 48 bytes: numpy\.ndarray on cpu -> dlbridge\n  at       .*test_watch\.py:\d+\n  because  ",
                    caplog.records[0].getMessage())


def test_a_program_is_watched_by_its_environment():
    code = 'import numpy, dlbridge\nfor _ in range(2): dlbridge.asdlpack(numpy.zeros(6, ">f8"))\n'
    ended = run_script(code, DLBRIDGE_WATCH="1")
    assert ended.stdout == ""
    assert ended.stderr.startswith(
        "2 times, 96 bytes copied\n2 times, 96 bytes: numpy.ndarray on cpu -> dlbridge\n  at       ")
    assert "child.py:2" in ended.stderr
    for unset in "", "0":
        ended = run_script(code, DLBRIDGE_WATCH=unset)
        assert (ended.stdout, ended.stderr) == ("", "")


@in_child(says="converted, 0 watch\n", warnings="default")
def test_what_converts_in_the_last_finalizers_is_not_watched():
    import os
    import sys

    import numpy as np

    import dlbridge
    from dlbridge.watch import watching

    source = np.zeros(3, ">f4")

    class Late:             # what its finalizer needs is in it, since modules are empty by then
        def __del__(self, convert=dlbridge.asdlpack, source=source, write=os.write, watching=watching, len=len):
            convert(source)
            write(1, b"converted, %d watch\n" % len(watching))

    dlbridge.watch().__enter__()
    dlbridge.asdlpack(source)
    late = Late()
    late.itself = late
    sys.kept = late


class Parts:
    """A container, in the middle of which a test goes on."""

    def __init__(self, *parts):
        self.parts = parts


def test_a_watch_that_ends_takes_nothing_from_another_one(monkeypatch):
    monkeypatch.setattr(containers, "REGISTERED", dict(containers.REGISTERED))
    converted, ended = threading.Event(), threading.Event()

    def parts(container):
        converted.set()
        assert ended.wait(60)
        return container.parts

    dlbridge.register_container(Parts, parts, lambda container, parts: Parts(*parts))
    try:
        with dlbridge.watch() as outer:
            before = dlbridge.watch().__enter__()
            thread = threading.Thread(target=dlbridge.convert_tree, args=({"x": swapped, "y": Parts()}, "dlbridge"),
                                      daemon=True)
            thread.start()
            assert converted.wait(60)
            with dlbridge.watch() as later:
                pass
            before.__exit__()
            ended.set()
            thread.join()
    finally:
        containers.functions_of.cache_clear()
    assert [(copy.times, copy.path) for copy in outer] == [(1, "['x']")]
    assert [(copy.times, copy.path) for copy in before] == [(1, "")]
    assert list(later) == []


@in_child(says="")
def test_a_generator_that_watches_may_be_left_at_the_end():
    import dlbridge

    def steps():
        with dlbridge.watch():
            yield

    suspended = steps()
    next(suspended)


@in_child(says="0 1\n")
def test_a_forked_child_of_a_watch_begins_with_nothing():
    import os
    import sys

    import numpy as np

    import dlbridge

    source = np.zeros(3, ">f4")
    with dlbridge.watch() as copies:
        dlbridge.asdlpack(source)
        if not os.fork():
            before = len(copies)
            dlbridge.asdlpack(source)
            print(before, *[copy.times for copy in copies])
            sys.stdout.flush()
            os._exit(0)
        os.wait()
    assert [copy.times for copy in copies] == [1]


@in_child(says="1 3\n")
def test_a_forked_child_counts_for_itself():
    import os
    import threading

    import numpy as np

    import dlbridge

    source, stop = np.zeros(3, ">f4"), threading.Event()

    def work():
        while not stop.is_set():
            dlbridge.asdlpack(source)

    with dlbridge.watch():
        thread = threading.Thread(target=work)      # which may hold the lock while the process forks
        thread.start()
        for _ in range(20):
            child = os.fork()
            if not child:
                with dlbridge.watch() as copies:
                    dlbridge.asdlpack(source)
                os._exit(0 if [each.times for each in copies] == [1] else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
    with dlbridge.watch() as copies:
        for _ in range(3):
            dlbridge.asdlpack(source)
    print(1, sum(each.times for each in copies))
