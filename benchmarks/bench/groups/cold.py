"""Calls with other work between them, as in a program: the processor's caches then hold the data of that work."""

import json
from time import perf_counter_ns

from bench.rows import Group, Names, Row, Sample, Settings

CALLS = 8                       # in a chunk
NBYTES = 4 * 2**20              # of what the other work reads and writes: more than a second cache has
DOCUMENT = json.dumps({str(number): [number, {"name": "work"}] for number in range(100)})


def cold(statement: str, names: Names, settings: Settings) -> Sample:
    """Make a sampler of the nanoseconds of one call after other work."""
    call = eval(f"lambda: {statement}", names)
    call()                          # the first call may do what happens once, such as an import
    before, after = bytes(NBYTES), bytearray(NBYTES)

    def sample() -> float:
        spent = 0
        for _ in range(CALLS):
            after[:] = before
            json.loads(DOCUMENT)
            begin = perf_counter_ns()
            call()
            spent += perf_counter_ns() - begin
        return spent / CALLS

    return sample


GROUP = Group("other work between the calls", (
    Row("ndarray -> torch", 'dlbridge.convert(ndarray, to="torch")', {
        "torch.from_numpy": "torch.from_numpy(ndarray)",
        "torch.from_dlpack": "torch.from_dlpack(ndarray)",
    }, sampler=cold),
    Row("tensor -> numpy", 'dlbridge.convert(tensor, to="numpy")', {
        "Tensor.numpy": "tensor.numpy()",
        "numpy.from_dlpack": "numpy.from_dlpack(tensor)",
    }, sampler=cold),
))
