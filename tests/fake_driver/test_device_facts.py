"""The rows of what libraries lack that need a driver: what becomes of memory that a library does not support."""

import pytest
from fake_driver.harness import run
from support.lacking import LACKS
from support.optional import marked, needed_by
from support.quirk_rows import HEAVY, OF_ALL

PRELUDE = """
    import numpy
    import dlbridge
    from fake_driver.control import driver

    class Interface:
        def __init__(self, start, shape=(4,), typestr="<f4", strides=None, readonly=False):
            self.__cuda_array_interface__ = {
                "shape": shape, "typestr": typestr, "data": (start, readonly), "strides": strides, "version": 3,
                "stream": 1}

    class Namespace:
        from_dlpack = staticmethod(numpy.from_dlpack)

    def memory(kind="device"):
        start = driver.allocate(0, 64, kind)
        driver.write(start, numpy.arange(16, dtype="f4").tobytes())
        return start

    def target(library):
        return Namespace() if library == "*" else library
"""
OF_NUMBA = {
    "HOST": "numpy.zeros(3)",
    "ZERO_STRIDES": "Interface(memory(), (3, 4), strides=(0, 4))",
    "SWAPPED_BYTES": "Interface(memory(), typestr='>f4')",
    "READ_ONLY": "Interface(memory(), readonly=True)",
}
LABELS = [
    marked(quirk, *(["torch for CPUs"] if quirk.library == "torch" else needed_by(quirk.library)),
           id=f"{quirk.library}-{quirk.lacks}")
    for quirk in LACKS
    if quirk.lacks in ("PINNED", "UNIFIED") and quirk.library not in OF_ALL | HEAVY | {"cupy", "numba"}]


@pytest.mark.needs("numba")
def test_every_row_of_numba_is_here():
    assert {quirk.lacks for quirk in LACKS if quirk.library == "numba"} == {
        *OF_NUMBA, "LENGTH_1_STRIDES", "PINNED", "UNIFIED"}


@pytest.mark.needs("numba")
def test_what_numba_lacks_stops_a_conversion():
    run(PRELUDE + f"""
    for source in ({", ".join(OF_NUMBA.values())}):
        try:
            dlbridge.convert(source, "numba", copy=False)
        except (dlbridge.CopyRequiredError, dlbridge.DeviceError) as error:
            print(error)
        else:
            raise AssertionError(source)
    """)


@pytest.mark.needs("numba")
def test_numba_has_pinned_and_managed_memory_as_its_devices():
    run(PRELUDE + """
    for kind in ("host", "managed"):
        start = memory(kind)
        array = dlbridge.convert(Interface(start), "numba", copy=False)
        assert array.__cuda_array_interface__["data"] == (start, False)
        assert array.copy_to_host().tolist() == [0, 1, 2, 3]
    """)


@pytest.mark.parametrize("quirk", LABELS)
def test_a_library_without_the_label_has_the_memory_as_the_hosts(quirk):
    kind = "host" if quirk.lacks == "PINNED" else "managed"
    run(PRELUDE + f"""
    start = memory("{kind}")
    array = dlbridge.convert(Interface(start), target("{quirk.library}"), readonly="share")
    assert numpy.asarray(array).tolist() == [0, 1, 2, 3]
    assert dlbridge.asdlpack(array).device == "cpu"
    assert dlbridge.asdlpack(array).data_ptr == start
    """)
