"""examples/pipeline.py on the fake driver: who waits for whom, buffer by buffer."""

from pathlib import Path

import pytest
from fake_driver.harness import in_child, run

pytestmark = pytest.mark.needs("numba")

PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline.py"

@pytest.mark.parametrize(("batches", "buffers"), [(7, 3), (5, 1), (2, 4), (1, 1), (40, 2)])
@in_child
def test_each_hand_over_and_each_release_is_ordered(batches, buffers):
    import contextlib
    import io

    from fake_driver.control import driver
    from fake_driver.scenes.pipeline import lines, options, pipeline, trace

    from dlbridge.testing import unordered_releases

    class Consumer(pipeline["Copies"]):
        def __init__(self):
            super().__init__()
            Consumer.handle = hex(int(self.stream))

    pipeline["CONSUMERS"]["copies"] = Consumer
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert pipeline["main"](options(batches, buffers)) == 0
    assert "every pointer shared, every value right" in said.getvalue() and said.getvalue().count("\n") == 1

    expected, fills = [], 0
    for index in range(batches):
        while fills < min(batches, index + buffers):
            expected.append(("producer", "fills", fills % buffers))
            fills += 1
        expected += [
            ("consumer", "waits for", "producer"),
            ("consumer", "reads", index % buffers),
            ("producer", "waits for", "consumer"),
        ]
    assert trace(Consumer.handle) == expected
    assert unordered_releases() == 0

    # The host waits for no stream but when it fetches the results, and for those only on the consumer's.
    calls = driver.calls()
    begun = calls[:calls.index("MemcpyDtoHAsync")]
    assert "StreamSynchronize" not in begun and "CtxSynchronize" not in begun
    fetched = list(lines("MemcpyDtoHAsync", "StreamSynchronize"))
    assert [call for call, _ in fetched] == ["MemcpyDtoHAsync", "StreamSynchronize"] * batches
    assert {fields["stream"] for _, fields in fetched} == {Consumer.handle}


@pytest.mark.parametrize(("batches", "buffers"), [(7, 3), (1, 1), (40, 2)])
@in_child
def test_the_same_by_prefetch(batches, buffers):
    import contextlib
    import io

    from fake_driver.control import driver
    from fake_driver.scenes.pipeline import options, pipeline

    from dlbridge.testing import unordered_releases

    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert pipeline["main"](["--ahead", *options(batches, buffers)]) == 0
    assert f"{buffers} ahead" in said.getvalue() and "every value right" in said.getvalue()
    assert driver.races() == [] and unordered_releases() == 0


@in_child(NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT="0")
def test_nothing_is_left():
    import gc

    from fake_driver.control import driver
    from fake_driver.scenes.pipeline import options, pipeline

    gc.disable()                            # what is freed is freed at once, not when the collector comes by
    assert pipeline["main"](options(9, 2)) == 0
    assert len(driver.log("MemAlloc")) == len(driver.log("MemFree")) == 2 + 9       # the buffers, and the results
    assert len(driver.log("MemHostAlloc")) == len(driver.log("MemFreeHost")) == 2
    assert len(driver.log("StreamCreate")) == len(driver.log("StreamDestroy")) == 2
    # One event for each buffer, and one for all hand-overs and releases, which dlbridge keeps for the next.
    assert len(driver.log("EventCreate")) == 2 + 1 and len(driver.log("EventDestroy")) == 2
    assert [driver.alive(what) for what in ("allocations", "streams", "events")] == [0, 0, 1]


@in_child
def test_a_buffer_that_is_still_lent_is_not_filled():
    from fake_driver.control import driver
    from fake_driver.scenes.pipeline import options, pipeline

    class Keeper(pipeline["Copies"]):
        kept = []

        def take(self, lent):
            taken = super().take(lent)
            self.kept.append(taken[10:20])       # a part of it is enough
            return taken

    pipeline["CONSUMERS"]["copies"] = Keeper
    try:
        pipeline["main"](options(3, 2))
    except AssertionError as error:
        assert str(error).startswith("the buffer is still lent"), error
    else:
        raise SystemExit("a lent buffer was filled")
    assert len(driver.log("MemcpyHtoDAsync")) == 2


@in_child
def test_the_trace_shows_when_nobody_waits():
    from fake_driver.control import driver
    from fake_driver.scenes.pipeline import options, pipeline, trace

    class Unordered(pipeline["Copies"]):
        def take(self, lent):
            import dlbridge
            Unordered.handle = hex(int(self.stream))
            return dlbridge.convert(dlbridge.asdlpack(lent, stream=-1), "numba", stream=-1)

    pipeline["CONSUMERS"]["copies"] = Unordered
    assert pipeline["main"](options(2, 2)) == 0         # the fake driver does all at once, so values are right
    assert len(driver.races()) == 2                     # each batch is read too early
    assert [step for _, step, _ in trace(Unordered.handle)] == ["fills", "fills", "reads", "reads"]


@in_child
def test_a_wrong_value_is_noticed():
    from fake_driver.scenes.pipeline import options, pipeline

    class Wrong(pipeline["Copies"]):
        def expected(self, batch):
            return batch + (batch == batch[-1])

    pipeline["CONSUMERS"]["copies"] = Wrong
    try:
        pipeline["main"](options(3, 2))
    except AssertionError as error:
        assert str(error) == "batch 0 was read too early or too late", error
    else:
        raise SystemExit("a wrong value passed")


@pytest.mark.needs("numba")
def test_without_a_gpu_it_says_so_in_one_line():
    code = f"import runpy, sys; sys.argv = ['pipeline.py']; runpy.run_path({str(PIPELINE)!r}, run_name='__main__')"
    child = run(code, None, CUDA_VISIBLE_DEVICES="")
    assert child.stdout.startswith("Nothing to run: there is no GPU here. On one, ")
    assert child.stdout.count("\n") == 1
    assert child.stderr == ""
