"""The rows of what libraries lack that need a driver: what becomes of memory that a library does not support."""

import pytest
from fake_driver.harness import in_child
from support.lacking import LACKS
from support.optional import marked, needed_by
from support.quirk_rows import HEAVY, OF_ALL

OF_NUMBA = {"HOST", "ZERO_STRIDES", "SWAPPED_BYTES", "READ_ONLY"}
LABELS = [
    marked((quirk.library, "host" if quirk.lacks == "PINNED" else "managed"),
           *(["torch for CPUs"] if quirk.library == "torch" else needed_by(quirk.library)),
           id=f"{quirk.library}-{quirk.lacks}")
    for quirk in LACKS
    if quirk.lacks in ("PINNED", "UNIFIED") and quirk.library not in OF_ALL | HEAVY | {"cupy", "numba"}]


@pytest.mark.needs("numba")
def test_every_row_of_numba_is_here():
    assert {quirk.lacks for quirk in LACKS if quirk.library == "numba"} == {
        *OF_NUMBA, "LENGTH_1_STRIDES", "PINNED", "UNIFIED"}


@pytest.mark.needs("numba")
@in_child
def test_what_numba_lacks_stops_a_conversion():
    import numpy
    from fake_driver.scenes.labels import Interface, memory

    import dlbridge

    for source, text in (
        (numpy.zeros(3), "is the host's memory, which numba does not have"),
        (Interface(memory(), (3, 4), strides=(0, 4)), "repeat elements, which numba does not support"),
        (Interface(memory(), typestr=">f4"), "is not this machine's, and numba has no other"),
        (Interface(memory(), readonly=True), "would become writable, since numba cannot be told otherwise"),
    ):
        try:
            dlbridge.convert(source, "numba", copy=False)
        except (dlbridge.CopyRequiredError, dlbridge.DeviceError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(source)


@pytest.mark.needs("numba")
@in_child
def test_numba_has_pinned_and_managed_memory_as_its_devices():
    from fake_driver.scenes.labels import Interface, memory

    import dlbridge

    for kind in ("host", "managed"):
        start = memory(kind)
        array = dlbridge.convert(Interface(start), "numba", copy=False)
        assert array.__cuda_array_interface__["data"] == (start, False)
        assert array.copy_to_host().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("library", "kind"), LABELS)
@in_child
def test_a_library_without_the_label_has_the_memory_as_the_hosts(library, kind):
    import numpy
    from fake_driver.scenes.labels import Interface, memory, target

    import dlbridge

    start = memory(kind)
    array = dlbridge.convert(Interface(start), target(library), readonly="share")
    assert numpy.asarray(array).tolist() == [0, 1, 2, 3]
    assert dlbridge.asdlpack(array).device == "cpu"
    assert dlbridge.asdlpack(array).data_ptr == start
