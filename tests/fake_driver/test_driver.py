"""The driver itself: when it is loaded, when there is none, and when any call of it fails."""

import pytest
from fake_driver.harness import in_child

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@pytest.mark.needs("torch", "jax")
@in_child(platform=None)
def test_host_memory_touches_no_driver():
    import sys
    from pathlib import Path

    import numpy as np

    import dlbridge

    def untouched():
        maps = Path("/proc/self/maps").read_text()
        assert not {"dlbridge._core.devices.cuda", "dlbridge._core.devices.transfers"} & set(sys.modules)
        assert "libcuda.so" not in maps and "libamdhip64" not in maps

    untouched()
    import torch

    array = np.arange(8.0, dtype="float32")
    tensor = dlbridge.asdlpack(array)
    for to in "numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge":
        for source in array, torch.ones(3), tensor, bytearray(3), dlbridge.to_dlpack(array):
            dlbridge.convert(source, to)
        dlbridge.convert(array, to, stream=1, device="cpu", copy=True)
    assert not hasattr(tensor, "__cuda_array_interface__")
    tensor.__dlpack__(stream=-1)
    dlbridge.explain(array, "torch")
    untouched()


@in_child(platform=None)
def test_without_a_driver_device_memory_is_refused_and_says_so():
    import numpy as np

    import dlbridge

    class Interface:
        def __init__(self, start, shape):
            self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (start, False), "version": 3}

    class Producer:
        def __init__(self, device):
            self.device = device

        def __dlpack__(self, **keywords):
            raise AssertionError("is not called where nothing can be done with it")

        def __dlpack_device__(self):
            return self.device

    for source in Interface(4096, (4,)), Interface(0, (0,)):
        for function in (
            lambda: dlbridge.asdlpack(source), lambda: dlbridge.to_dlpack(source, stream=-1),
            lambda: dlbridge.convert(source, "numpy", device="cpu"),
            lambda: dlbridge.convert(source, "numpy", stream=7),
        ):
            try:
                function()
            except dlbridge.errors.DeviceError as error:
                assert str(error) == (
                    "cuda: driver libcuda.so.1: is not on this machine (install the GPU's driver, or pass host "
                    "memory)")
            else:
                raise AssertionError
    plan = dlbridge.explain(Interface(4096, (4,)), "numpy", device="cpu")
    assert plan.action == "refuse" and "libcuda.so.1" in plan.reason
    assert dlbridge.convert(np.arange(3), "numpy", copy=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [2, 10])
@in_child(platform=None)
def test_without_a_driver_dlpack_memory_stays_describable(kind):
    import sys
    import types

    import dlbridge

    sys.modules["fake_driver.control"] = types.SimpleNamespace(driver=types.SimpleNamespace(log=None))
    from fake_driver.producers import Producer, delete

    source = Producer(4096, (kind, 1))
    tensor = dlbridge.asdlpack(source)
    assert (tensor.__dlpack_device__(), tensor.data_ptr) == ((kind, 1), 4096)
    delete(tensor.__dlpack__()), delete(tensor.__dlpack__(stream=-1))
    for function in (
        lambda: tensor.__dlpack__(stream=4711),
        lambda: dlbridge.convert(tensor, "numpy", device="cpu"),
        lambda: dlbridge.asdlpack(tensor, copy=True),
        lambda: tensor.__dlpack__(dl_device=(1, 0)),
    ):
        try:
            function()
        except dlbridge.errors.DeviceError as error:
            assert "is not on this machine" in str(error), error
        else:
            raise AssertionError
    tensor = function = None
    assert source.deleted == 1


@both
@in_child
def test_what_the_driver_says_of_a_pointer_is_where_the_memory_is(platform):
    from fake_driver.producers import CUDA, CUDA_HOST, CUDA_MANAGED, ROCM, Interface, counts, driver

    import dlbridge

    ROCM_HOST = 11
    driver.make_current(0)
    here = driver.hip
    for device in 0, 1:
        for kind, expected in {
            "device": (ROCM if here else CUDA, device),
            "host": (ROCM_HOST if here else CUDA_HOST, 0),
            "managed": (ROCM, device) if here else (CUDA_MANAGED, 0),
        }.items():
            start = driver.allocate(device, 64, kind)
            for offset in 0, 48:
                tensor = dlbridge.asdlpack(Interface(start + offset))
                assert (tensor.__dlpack_device__(), tensor.data_ptr) == (expected, start + offset), kind
    assert dlbridge.asdlpack(Interface(0, (0,))).__dlpack_device__() == (ROCM if here else CUDA, 0)
    before = counts()

    def refused(source, *texts):
        try:
            dlbridge.asdlpack(source)
        except dlbridge.errors.DeviceError as error:
            assert all(text in str(error) for text in texts), error
        else:
            raise AssertionError(texts)

    unknown = id(driver)
    refused(Interface(unknown), f"{unknown:#x}", "is no memory that the driver knows")
    if not driver.hip:                              # whose contexts are its devices
        driver.context_of_memory(0x1234)
        refused(Interface(start), "context 0x1234", "is not the device's primary one", "pycuda.autoprimaryctx")
        driver.context_of_memory(0)
    assert counts() == before


@both
@in_child
def test_any_call_that_fails_says_what_the_driver_says_and_costs_nothing(platform):
    from fake_driver.producers import driver, held
    from fake_driver.scenes.failing import copy, export, fetch, locate, order, source, state

    import dlbridge

    CODES = {
        2: ("CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "no memory is left"),
        719: ("CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure", "a kernel failed"),
        709: ("CUDA_ERROR_CONTEXT_IS_DESTROYED", "hipErrorContextIsDestroyed", "the context is destroyed"),
        4: ("CUDA_ERROR_DEINITIALIZED", "hipErrorDeinitialized", "the driver is shutting down"),
        4711: ("error 4711", "hipErrorUnknown", ""),
    }

    def check(call, function, code):
        before, events = state(), driver.alive("events")
        driver.fail(call, code)
        try:
            function()
        except dlbridge.errors.DeviceError as error:
            said, kind = str(error), type(error)
        else:
            raise AssertionError(call)
        cuda, hip, text = CODES[code]
        if (call, code) == ("MemAllocAsync", 2):
            text = f"16 bytes were wanted, and {1 << 34} are free"
            assert kind is dlbridge.DeviceMemoryError and issubclass(kind, MemoryError)
        name = f"rocm: {driver.symbol(call)} {hip}" if driver.hip else f"cuda: {driver.symbol(call)} {cuda}"
        assert said.startswith(f"{name}: {text}"), said
        assert (state(), held) == (before, []), (call, code)
        assert driver.alive("events") <= events
        driver.fail(call, 0)

    # What happens once in a process; a later try goes on where this one ended.
    for call in "Init", "DeviceGet", "DevicePrimaryCtxRetain":
        check(call, export, 719)
    dlbridge.convert(source, "numpy", device="cpu")
    check("EventCreate", export, 719)
    for call, function in [
        ("CtxGetCurrent", order), ("CtxPushCurrent", order), ("PointerGetAttributes", order),
        ("StreamIsCapturing", order), ("EventRecord", order), ("StreamWaitEvent", order),
        ("CtxGetCurrent", fetch), ("MemcpyDtoHAsync", fetch), ("StreamSynchronize", fetch),
        ("MemAllocAsync", copy), ("MemcpyDtoDAsync", copy), ("DeviceGetAttribute", locate),
        ("CtxPushCurrent", export), ("EventRecord", export), ("StreamWaitEvent", export),
    ]:
        if driver.hip and call == "DeviceGetAttribute":
            continue                    # managed memory is the device's there
        function()
        for code in CODES:
            check(call, function, code)
        function()                      # and so does a later try
    assert driver.alive("events") <= 1


@both
@in_child
def test_where_one_of_several_calls_fails_what_was_done_before_is_undone(platform):
    from fake_driver.producers import driver
    from fake_driver.scenes.failing import copy, export, fetch, order, state

    import dlbridge

    for function in order, fetch, copy, export:
        function()                      # what happens once in a process is done
    if driver.hip:
        driver.make_current(0)          # to make another one current again takes a push
    for function in order, fetch, copy, export:
        for call in "CtxGetCurrent", "CtxPushCurrent", "StreamIsCapturing":
            for after in range(1, 6):
                before = state()
                driver.fail(call, 719, after, times=1)
                try:
                    function()          # where no more is called so often, or only at the release
                except dlbridge.errors.DeviceError as error:
                    assert driver.symbol(call) in str(error)
                    assert state() == before, (function, call, after)
                driver.fail(call, 0)
    assert fetch().tobytes() == b"0123456789abcdef"


@in_child
def test_a_driver_that_does_not_start_is_tried_again():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    source = Interface(driver.allocate(0, 16))
    driver.fail("Init", 100)
    for _ in range(2):
        try:
            dlbridge.asdlpack(source)
        except dlbridge.errors.DeviceError as error:
            assert str(error).startswith("cuda: cuInit CUDA_ERROR_NO_DEVICE: there is no device")
        else:
            raise AssertionError
    driver.fail("Init", 0)
    assert dlbridge.asdlpack(source).device == "cuda:0"


@pytest.mark.parametrize("platform", [None, "cuda", "hip"])
@in_child
def test_a_driver_that_fails_is_the_one_that_is_spoken_of(platform):
    """On a machine with one family's driver, the error is that driver's."""
    import dlbridge

    class Interface:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    expected = "cuda: driver libcuda.so.1: is not on this machine"
    if platform is not None:
        from fake_driver.control import driver

        driver.fail("Init", 100)
        expected = "rocm: hipInit hipErrorNoDevice" if driver.hip else "cuda: cuInit CUDA_ERROR_NO_DEVICE"
    try:
        dlbridge.asdlpack(Interface())
    except dlbridge.errors.DeviceError as error:
        assert str(error).startswith(expected), error
    else:
        raise AssertionError
