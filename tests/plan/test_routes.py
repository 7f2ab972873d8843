"""What is remembered of a type, and by which threads."""

import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dlbridge
from dlbridge._core.cache import clear_cache

GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


def new_type():
    return type("Image", (), {"__array_interface__": property(lambda image: image.pixels.__array_interface__)})


def image_of(kind, pixels):
    image = kind()
    image.pixels = pixels
    return image


@pytest.mark.needs("types that die")
def test_a_thread_that_ends_lets_its_routes_go():
    def convert_one():
        kind = new_type()
        dlbridge.convert(image_of(kind, np.zeros(3)), "numpy")
        return weakref.ref(kind)

    with ThreadPoolExecutor(1) as pool:
        died = pool.submit(convert_one).result()
        gc.collect()
        assert died() is not None       # its routes keep it alive, so that no other type gets its address
    if GIL:
        clear_cache()                  # all threads have the same routes
    gc.collect()
    assert died() is None


def test_other_threads_see_what_is_registered():
    kind = new_type()
    old, new = np.zeros(3), np.ones(3)
    with ThreadPoolExecutor(1) as pool:
        def converted():
            return pool.submit(lambda: dlbridge.convert(image_of(kind, old), "numpy").tolist()).result()

        assert converted() == [0, 0, 0]
        dlbridge.register_source(kind, lambda image: new)
        assert converted() == [1, 1, 1]
        assert dlbridge.convert(image_of(kind, old), "numpy").tolist() == [1, 1, 1]


class Wrapped:
    """A proxy: it hands on the attributes of its array."""

    def __init__(self, array):
        self.array = array

    def __getattr__(self, name):
        return getattr(self.array, name)


@pytest.mark.parametrize("source", [Wrapped(np.ones(2)), np.float32(1), memoryview(b"12")], ids=type)
def test_what_an_object_stands_for_is_found_once(source):
    asked = []
    kind = new_type()
    dlbridge.register_source(kind, lambda image: source)
    dlbridge.register_source(lambda kind: asked.append(kind), lambda source: None)
    assert dlbridge.convert(kind(), "numpy").size
    assert type(source) in asked
    del asked[:]
    assert dlbridge.convert(kind(), "numpy").size
    assert dlbridge.convert(kind(), "dlbridge").size    # another target has the same sources
    assert not asked


@pytest.mark.needs("types that die")
def test_more_types_than_there_are_slots():
    kinds = [new_type() for _ in range(2400)]
    for _ in range(2):
        for number, kind in enumerate(kinds):
            assert dlbridge.convert(image_of(kind, np.full(2, number)), "numpy").tolist() == [number, number]
    died = [weakref.ref(kind) for kind in kinds]
    del kinds, kind
    gc.collect()
    assert sum(each() is None for each in died) > 1200
    clear_cache()
    gc.collect()
    assert all(each() is None for each in died)


def test_threads_that_convert_while_others_register():
    kind = new_type()
    pixels = np.arange(3)
    stop = threading.Event()
    wrong = []

    def convert_all_the_time():
        while not stop.is_set():
            if dlbridge.convert(image_of(kind, pixels), "numpy").tolist() != [0, 1, 2]:
                wrong.append(1)

    threads = [threading.Thread(target=convert_all_the_time) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        dlbridge.register_source(new_type(), lambda image: image.pixels)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
