"""A driver may wait for a thread that wants the GIL, such as one that runs a host callback: so it is called without."""

import pytest
from fake_driver.harness import in_child


@pytest.mark.parametrize("platform", ["cuda", "hip"])
@in_child(timeout=30)
def test_the_gil_is_given_up_while_the_driver_is_called(platform):
    from fake_driver.producers import Interface, Producer, Stream, delete, driver

    import dlbridge

    driver.make_current(0)
    start, managed, pinned = (driver.allocate(0, 16, kind) for kind in ("device", "managed", "host"))
    first, then = Stream(driver.stream()), Stream(driver.stream())
    kept, place = {}, None if driver.hip else "cpu"

    def keep(name, value):
        kept[name] = value

    steps = {
        "take": lambda: keep("tensor", dlbridge.asdlpack(Interface(start, stream=first.handle))),
        "hand over": lambda: keep("handed", dlbridge.asdlpack(Interface(start), stream=then)),
        "export": lambda: keep("capsule", kept["handed"].__dlpack__(stream=first.handle)),
        "release": lambda: delete(kept.pop("capsule")),
        "take a capsule": lambda: keep("told", dlbridge.asdlpack(Producer(start), stream=then)),
        "fetch": lambda: keep("host", dlbridge.convert(kept["tensor"], "numpy", device="cpu")),
        "copy": lambda: keep("copy", dlbridge.convert(kept["tensor"], "dlbridge", copy=True)),
        "release a copy": lambda: kept.pop("copy"),
        "take managed memory": lambda: keep("managed", dlbridge.asdlpack(Interface(managed), device=place)),
        "take pinned memory": lambda: keep("pinned", dlbridge.asdlpack(Interface(pinned), device="cpu")),
        "release all": kept.clear,
    }
    silent = []
    for step, function in steps.items():
        print(step, flush=True)
        driver.clear()
        driver.want_gil()
        function()
        silent += [] if driver.log() else [step]
    # The work of these is left to the next call, or to the producer.
    assert {*silent} <= {"release", "take a capsule", "release all"}
