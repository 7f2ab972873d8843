"""Loops that a GPU would run at once: nothing is read before it is written, or written before it was read."""

import pytest
from fake_driver.harness import in_child


@pytest.mark.parametrize("keywords", [{}, {"copy": True}])
@in_child
def test_a_copy_for_a_library_whose_streams_nobody_can_ask_for_is_its_own(keywords):
    from fake_driver.producers import driver
    from fake_driver.scenes.shared_again import loop
    from fake_driver.xla import compute

    from dlbridge.testing import unordered_releases

    loop(**keywords)
    assert driver.races() == []
    assert unordered_releases() == 0
    pool = driver.log("MemAllocAsync", "MemFreeAsync")
    assert len(pool) == 8 and all(line.endswith(f"stream={compute:#x}") for line in pool)
    assert driver.log("StreamSynchronize") == []            # the host waits for nobody


@pytest.mark.parametrize("keywords", [{}, {"copy": True}])
@in_child(XLA_VERSION='2')
def test_a_library_that_keeps_what_it_imports_needs_no_copy_of_its_own(keywords):
    from fake_driver import xla
    from fake_driver.producers import driver
    from fake_driver.scenes.shared_again import loop, source
    from fake_driver.xla import compute

    import dlbridge
    from dlbridge.testing import unordered_releases

    for _ in range(3):
        loop(**keywords)
        assert len(xla.unused) == 4         # copies that are being read
        xla.done()
    assert driver.races() == []
    assert unordered_releases() == 0
    pool = driver.log("MemAllocAsync", "MemFreeAsync")
    assert len(pool) == 24 and not any(f"stream={compute:#x}" in line for line in pool)
    assert dlbridge.explain(source, "xla").action == "copy"
    assert dlbridge.explain(source, "xla", readonly="share").hint == ""
    loop(readonly="share")
    xla.done()
    assert unordered_releases() == 0
    driver.races()                          # what shares memory is written while it is read


@in_child
def test_memory_that_is_shared_must_not_be_written_before_it_was_read():
    """The control: what the docs forbid is a race."""
    from fake_driver.producers import driver
    from fake_driver.scenes.shared_again import loop

    from dlbridge.testing import unordered_releases

    loop(readonly="share")
    assert len(driver.races()) == 3 and unordered_releases() == 4


@in_child
def test_what_explain_says_of_such_a_copy():
    from fake_driver.producers import driver
    from fake_driver.scenes.shared_again import source

    import dlbridge

    assert dlbridge.explain(source, "xla").action == "copy"
    shared = dlbridge.explain(source, "xla", readonly="share")
    assert (shared.action, shared.hint) == (
        "share", "keep the source, and do not write to it, until xla has done its work")
    try:
        dlbridge.convert(source, "xla", copy=False)
    except dlbridge.CopyRequiredError as error:
        assert error.field == "memory"
    else:
        raise SystemExit("shared")
    assert driver.log("MemAllocAsync") == []
