"""The example's names, its arguments, and the driver's log in the words of these tests."""

import runpy
from pathlib import Path

from fake_driver.control import driver
from numba import cuda  # noqa: F401 (what its import leaves to the collector is not the example's)

pipeline = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "pipeline.py"))


def options(batches, buffers):
    return ["--consumer", "copies", "--elements", "1000", "--batches", str(batches), "--buffers", str(buffers)]


def lines(*calls):
    for line in driver.log(*calls):
        call, *fields = line.split()
        yield call, dict(field.split("=") for field in fields)


def trace(consumer):
    """Fills, reads and waits in their order; buffers are numbered as they are first filled."""
    buffers, recorded, streams, steps = [], {}, set(), []
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
    assert len(streams) == 2 and not streams & {"0x0", "0x1", "0x2"}, streams
    return steps
