"""examples/pipeline.py on the fake driver: who waits for whom, buffer by buffer."""

from pathlib import Path

import pytest
from fake_driver.harness import run

pytestmark = pytest.mark.needs("numba")

PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline.py"

# In the child: the example's names, its arguments, and the driver's log in the words of these tests.
START = f"""
import runpy
from fake_driver.control import driver
from numba import cuda
from dlbridge.testing import unordered_releases

pipeline = runpy.run_path({str(PIPELINE)!r})

def options(batches, buffers):
    return ["--consumer", "copies", "--elements", "1000", "--batches", str(batches), "--buffers", str(buffers)]

def lines(*calls):
    for line in driver.log(*calls):
        call, *fields = line.split()
        yield call, dict(field.split("=") for field in fields)

def trace(consumer):
    '''Fills, reads and waits in their order; buffers are numbered as they are first filled.'''
    buffers, recorded, streams, steps = [], {{}}, set(), []
    for call, fields in lines("MemcpyHtoDAsync", "MemcpyDtoDAsync", "EventRecord", "StreamWaitEvent"):
        stream = "consumer" if fields["stream"] == consumer else "producer"
        streams.add(fields["stream"])
        if call == "MemcpyHtoDAsync":
            if fields["to"] not in buffers:
                buffers.append(fields["to"])
            steps.append((stream, "fills", buffers.index(fields["to"])))
        elif call == "MemcpyDtoDAsync":
            steps.append((stream, "reads", buffers.index(fields["from"])))
        elif call == "EventRecord":
            recorded[fields["event"]] = stream, len(steps)
        else:
            waited, at = recorded[fields["event"]]
            assert at == len(steps), "recorded before the work that is to be waited for"
            steps.append((stream, "waits for", waited))
    assert len(streams) == 2 and not streams & {{"0x0", "0x1", "0x2"}}, streams
    return steps
"""


@pytest.mark.parametrize(("batches", "buffers"), [(7, 3), (5, 1), (2, 4), (1, 1), (40, 2)])
def test_each_hand_over_and_each_release_is_ordered(batches, buffers):
    said = run(
        START
        + f"""
batches, buffers = {batches}, {buffers}
class Consumer(pipeline["Copies"]):
    def __init__(self):
        super().__init__()
        Consumer.handle = hex(int(self.stream))

pipeline["CONSUMERS"]["copies"] = Consumer
assert pipeline["main"](options(batches, buffers)) == 0

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
assert {{fields["stream"] for _, fields in fetched}} == {{Consumer.handle}}
"""
    ).stdout
    assert "every pointer shared, every value right" in said
    assert said.count("\n") == 1


def test_nothing_is_left():
    run(
        START
        + """
import gc
gc.disable()                            # what is freed is freed at once, not when the collector comes by
assert pipeline["main"](options(9, 2)) == 0
assert len(driver.log("MemAlloc")) == len(driver.log("MemFree")) == 2 + 9       # the buffers, and the results
assert len(driver.log("MemHostAlloc")) == len(driver.log("MemFreeHost")) == 2
assert len(driver.log("StreamCreate")) == len(driver.log("StreamDestroy")) == 2
# One event for each buffer, and one for all hand-overs and releases, which dlbridge keeps for the next.
assert len(driver.log("EventCreate")) == 2 + 1 and len(driver.log("EventDestroy")) == 2
assert [driver.alive(what) for what in ("allocations", "streams", "events")] == [0, 0, 1]
""",
        NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT="0",
    )


def test_a_buffer_that_is_still_lent_is_not_filled():
    run(
        START
        + """
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
"""
    )


def test_the_trace_shows_when_nobody_waits():
    run(
        START
        + """
class Unordered(pipeline["Copies"]):
    def take(self, lent):
        import dlbridge
        Unordered.handle = hex(int(self.stream))
        return dlbridge.convert(dlbridge.asdlpack(lent, stream=-1), "numba", stream=-1)

pipeline["CONSUMERS"]["copies"] = Unordered
assert pipeline["main"](options(2, 2)) == 0         # the fake driver does all at once, so values are right
assert len(driver.races()) == 2                     # each batch is read too early
assert [step for _, step, _ in trace(Unordered.handle)] == ["fills", "fills", "reads", "reads"]
"""
    )


def test_a_wrong_value_is_noticed():
    run(
        START
        + """
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
"""
    )


@pytest.mark.needs("numba")
def test_without_a_gpu_it_says_so_in_one_line():
    code = f"""
        import runpy, sys
        sys.argv = ["pipeline.py"]
        runpy.run_path({str(PIPELINE)!r}, run_name="__main__")
    """
    child = run(code, None, CUDA_VISIBLE_DEVICES="")
    assert child.stdout.startswith("Nothing to run: there is no GPU here. On one, ")
    assert child.stdout.count("\n") == 1
    assert child.stderr == ""
