"""Descriptions of device memory that are odd, old, hostile or wrong."""

import pytest
from fake_driver.harness import in_child

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@both
@in_child
def test_every_version_of_the_interface_is_read(platform):
    import numpy as np
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start = driver.filled(0, bytes(range(256)) * 16)
    raw = np.frombuffer(bytes(range(256)) * 16, "u1")

    class Zero:         # version 0: no version, and strides always given
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (start, False), "strides": (4,)}

    class ByInstance:
        pass

    instance = ByInstance()
    instance.__cuda_array_interface__ = Zero.__cuda_array_interface__
    for source in Zero(), instance:
        tensor = dlbridge.asdlpack(source)
        assert (tensor.shape, tensor.strides, tensor.dtype, tensor.owner) == ((4,), (1,), "float32", source)
        assert (tensor.protocol, tensor.readonly) == ("cuda_array_interface", False)

    for version, entries in [
        (1, {"strides": None}), (1, {}), (1, {"strides": (4,), "mask": None}), (2, {"strides": None}),
        (3, {"strides": None, "stream": None}), (3, {"descr": [("", "<f4")]}), (99, {"unknown": object()}),
    ]:
        tensor = dlbridge.asdlpack(Interface(start, version=version, **entries))
        assert (tensor.shape, tensor.strides, tensor.data_ptr) == ((4,), (1,), start)

    # The bytes that come to the host are those that NumPy reads from the same description.
    for typestr in (
        "|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16",
        ">i2", ">u4", ">f8", ">c16",
    ):
        step = np.dtype(typestr).itemsize
        for offset, shape, strides in [
            (0, (8,), None), (0, (2, 3), None), (0, (3, 2), (step, 3 * step)), (0, (5,), (2 * step,)),
            (4 * step, (5,), (-step,)), (5 * step, (2, 3), (-3 * step, -step)), (step, (), ()),
            (0, (3, 4), (0, step)), (0, (4, 0, 2), None), (0, (1, 5), (999, step)), (0, (3,), (step + 1,)),
        ]:
            expected = np.ndarray(shape, typestr, raw, offset, strides)
            source = Interface(start + offset, shape, typestr, strides=strides)
            found = dlbridge.convert(source, "numpy", device="cpu")
            assert (found.dtype, found.shape) == (expected.dtype, shape)
            if typestr == "|b1":            # a copy has only the bytes 0 and 1
                expected = expected.view("u1") != 0
            assert found.tobytes() == expected.tobytes(), (typestr, offset, shape, strides)
            # In the machine's own byte order, and in elements' strides.
            found = np.from_dlpack(dlbridge.asdlpack(source, device="cpu"))
            native = expected.dtype.newbyteorder("=")
            assert (found.dtype, found.shape) == (native, shape)
            assert found.tobytes() == expected.astype(native).tobytes(), (typestr, offset, shape, strides)


@both
@in_child
def test_a_wrong_description_is_refused_by_the_name_of_its_field(platform):
    from fake_driver.producers import Interface, counts, driver

    import dlbridge
    from dlbridge.errors import ConversionError, DeviceError

    driver.make_current(0)
    start = driver.allocate(0, 64)
    dlbridge.asdlpack(Interface(start))
    before = counts()

    def refused(error, *texts, **changed):
        source = Interface(start)
        for field, value in changed.items():
            source.entries[field] = value
            if value is refused:
                del source.entries[field]
        for function in (
            lambda: dlbridge.asdlpack(source), lambda: dlbridge.convert(source, "numpy", device="cpu"),
            lambda: dlbridge.to_dlpack(source, stream=-1),
        ):
            try:
                function()
            except error as raised:
                assert all(text in str(raised) for text in texts), raised
            else:
                raise AssertionError((changed, texts))
        assert dlbridge.explain(source, "dlbridge").action == "refuse"

    for field in "shape", "typestr", "data":
        refused(ConversionError, f"'{field}'", **{field: refused})
    refused(ConversionError, "'stream' 0", "forbids", "use 1 for the legacy default stream", stream=0)
    for stream in -1, 2**63, 2**64, "1", 1.0, (1,), object():
        refused(ConversionError, "'stream'", "is no stream", stream=stream)
    for version in -1, "3", None, 3.0:
        refused(ConversionError, "'version'", "is no version", version=version)
    refused(ConversionError, "'mask'", "would be dropped", mask=Interface(start))
    for shape in [4], 4, None, (-1,), (2**63,), ("4",), (4.0,), (2**62, 2**62), (1,) * 65, (2**61,):
        refused(ConversionError, shape=shape)
    for strides in (4, 4), [4], 4, ("4",), (2**63,), (2**61,):
        refused(ConversionError, "strides", strides=strides)
    for typestr in "<V2", "|V8", "<f3", "<f16", "f4", "", None, b"<f4", "|O8", "<M8[ns]", "<U4":
        refused(ConversionError, "'typestr'", typestr=typestr)
    for data in start, None, (start,), (start, False, 0), [start, False], ("0x10", False), (2**64, False), (-1, 0):
        refused(ConversionError, "'data'", data=data)
    refused(ConversionError, "data", "has no memory for 4 elements", data=(0, False))
    refused(DeviceError, "is no memory that the driver knows", data=(1, False))
    assert counts() == before


@in_child
def test_an_interface_that_raises_or_is_no_dictionary():
    from fake_driver.producers import counts

    import dlbridge
    from dlbridge.errors import ConversionError, UnsupportedError

    before = counts()

    class Raises:
        @property
        def __cuda_array_interface__(self):
            raise error

    for error in RuntimeError("mine"), KeyboardInterrupt():
        try:
            dlbridge.asdlpack(Raises())
        except BaseException as raised:
            assert raised is error
        else:
            raise AssertionError
    error = AttributeError("not for this array")        # then nothing is offered
    try:
        dlbridge.asdlpack(Raises())
    except UnsupportedError:
        pass

    class NoDict:
        __cuda_array_interface__ = [("shape", (4,))]

    try:
        dlbridge.asdlpack(NoDict())
    except ConversionError as raised:
        assert "'__cuda_array_interface__' 'list': is not a dict" in str(raised), raised
    assert counts() == before


@in_child
def test_an_interface_that_claims_more_than_its_allocation_has_is_refused():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    for kind in "device", "host", "managed":
        start = driver.allocate(0, 64, kind)
        for offset, entries in (
            (0, {"shape": (16,)}), (60, {"shape": (1,)}), (0, {"shape": (4, 4)}), (60, {"shape": (0,)}),
            (60, {"shape": (16,), "strides": (-4,)}), (0, {"shape": (1 << 30, 16), "strides": (0, 4)}),
        ):
            assert dlbridge.asdlpack(Interface(start + offset, **entries)).data_ptr == start + offset
        for offset, entries in (
            (0, {"shape": (17,)}), (4, {"shape": (16,)}), (0, {"shape": (1 << 40,)}),
            (0, {"shape": (2,), "strides": (64,)}), (56, {"shape": (16,), "strides": (-4,)}),
            (60, {"shape": (1,), "typestr": "<f8"}),
        ):
            for function in dlbridge.asdlpack, lambda source: dlbridge.convert(source, "numpy", device="cpu"):
                try:
                    function(Interface(start + offset, **entries))
                except dlbridge.ConversionError as error:
                    assert error.field == "shape" and "64 bytes" in error.wrong, error
                else:
                    raise AssertionError((kind, offset, entries))
    try:
        dlbridge.asdlpack(Interface(start, shape=(1 << 40,)))
    except dlbridge.ConversionError as error:
        assert str(error).startswith(
            f"cuda_array_interface: shape (1099511627776,): is 4398046511104 bytes from {start:#x} on, and the "
            f"allocation there is 64 bytes from {start:#x} on"), error


@in_child
def test_a_truth_value_is_no_stream():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    try:
        dlbridge.asdlpack(Interface(driver.allocate(0, 64), stream=True))
    except dlbridge.errors.ConversionError as error:
        assert "'stream'" in str(error)
    else:
        raise AssertionError


@pytest.mark.needs("jax")
@pytest.mark.needs("torch for CPUs")
@in_child
def test_what_only_another_protocol_can_say_is_taken_from_that():
    from fake_driver.producers import BFLOAT, Interface, Producer, driver

    import dlbridge

    driver.make_current(0)
    start = driver.allocate(0, 64)

    class Both(Producer):
        __cuda_array_interface__ = Interface(start, (4,), "<V2").entries

    driver.write(start, b"\x80\x3f\x00\x40\x40\x40\x80\x40")
    both = Both(start, code=BFLOAT, bits=16)
    for to in "numpy", "torch", "jax":
        found = dlbridge.convert(both, to, device="cpu")
        assert "bfloat16" in str(found.dtype) and [float(each) for each in found] == [1, 2, 3, 4], to
    tensor = dlbridge.asdlpack(both)
    assert (tensor.dtype, tensor.device, hasattr(tensor, "__cuda_array_interface__")) == (
        "bfloat16", "cuda:0", False)


@both
@in_child
def test_a_device_that_the_driver_does_not_have_is_refused(platform):
    from fake_driver.producers import CUDA, ROCM, Producer, counts, driver

    import dlbridge

    driver.make_current(0)
    kind, start, then = ROCM if driver.hip else CUDA, driver.allocate(0, 64), driver.stream()
    for index in 2, 63, 64, 65, 1000, -1, -5, 10**8, -(2**31), 2**31 - 1:
        source = Producer(start, (kind, index))
        tensor = dlbridge.asdlpack(source.capsule())
        before = counts()
        for function in (
            lambda: dlbridge.asdlpack(source.capsule(), stream=then),
            lambda: tensor.__dlpack__(stream=then),
            lambda: dlbridge.convert(source.capsule(), "numpy", device="cpu"),
            lambda: dlbridge.asdlpack(tensor, copy=True),
        ):
            try:
                function()
            except dlbridge.errors.DeviceError:
                pass
            else:
                raise AssertionError(index)
        assert counts() == before


@pytest.mark.needs("numba")
@in_child
def test_numbas_arrays_are_sources_on_both_devices():
    import numpy as np
    from fake_driver.producers import Stream, driver, ordered
    from numba import cuda

    import dlbridge

    data = np.arange(24, dtype="float32").reshape(4, 6)
    for device in 0, 1:
        with cuda.gpus[device]:
            array = cuda.to_device(data)
            for source, view in [
                (array, data), (array[1:3], data[1:3]), (array[:, ::2], data[:, ::2]),
                (array[::-1], data[::-1]), (array[2:2], data[2:2]), (array[4:], data[4:]),
                (cuda.to_device(np.array(3.0)), np.array(3.0)),
                (cuda.to_device(np.zeros((0, 3))), np.zeros((0, 3))),
                (cuda.to_device(np.asfortranarray(data)), np.asfortranarray(data)),
            ]:
                tensor = dlbridge.asdlpack(source)
                face = source.__cuda_array_interface__
                assert (tensor.shape, tensor.dtype, tensor.owner) == (view.shape, str(view.dtype), source)
                if view.size:
                    assert tensor.device == f"cuda:{device}"
                    assert tensor.data_ptr == face["data"][0]
                    assert tensor.strides == tuple(step // view.itemsize for step in view.strides)
                found = dlbridge.convert(source, "numpy", device="cpu")
                assert found.dtype == view.dtype and np.array_equal(found, view), view
        cuda.gpus[0].get_primary_context().push()
        assert np.array_equal(dlbridge.convert(array, "numpy", device="cpu"), data)
        cuda.gpus[0].get_primary_context().pop()

    stream, then = cuda.stream(), Stream(driver.stream())
    array = cuda.to_device(data, stream=stream)
    assert ordered(lambda: dlbridge.asdlpack(array, stream=then)) == [(int(stream), then.handle)]


@both
@in_child
def test_event_of_an_arrow_array_is_waited_for_on_the_device(platform):
    import gc

    from fake_driver.producers import driver
    from support.arrow_producers import OfDeviceArray

    import dlbridge

    driver.make_current(0)
    kind = 10 if driver.hip else 2
    start = driver.allocate(0, 64)
    stream, consumer = driver.stream(), driver.stream()
    event = driver.value("EventCreate", 2)
    driver.call("EventRecord", event, stream)
    driver.clear()

    # Without an event it is ready now: nobody waits for anything.
    source = OfDeviceArray(device_type=kind, device_id=0, data=start)
    tensor = dlbridge.asdlpack(source)
    assert (tensor.protocol, tensor.data_ptr, tensor.readonly) == ("arrow", start, True)
    tensor.__dlpack__(stream=consumer, max_version=(1, 3))
    assert driver.log("StreamWaitEvent", "EventSynchronize", "StreamSynchronize") == []

    source = OfDeviceArray(device_type=kind, device_id=0, data=start, event=event)
    assert dlbridge.explain(source, "dlbridge").action == "share"
    assert driver.log("StreamWaitEvent") == []
    tensor = dlbridge.asdlpack(source)
    waits = driver.log("StreamWaitEvent")
    assert len(waits) == 1 and f"{event:#x}" in waits[0], waits
    capsule = tensor.__dlpack__(stream=consumer, max_version=(1, 3))
    waits = driver.log("StreamWaitEvent")
    assert len(waits) == 2 and f"{consumer:#x}" in waits[1], waits      # for the default one, which waits for it
    assert driver.log("EventSynchronize", "StreamSynchronize") == []    # and the host for none
    assert source.released["array"] == 0                                # also of what was explained
    del tensor, capsule
    gc.collect()
    assert source.released["array"] == 1

    driver.fail("StreamWaitEvent", 700)
    source = OfDeviceArray(device_type=kind, device_id=0, data=start, event=event)
    try:
        dlbridge.asdlpack(source)
    except dlbridge.DeviceError as error:
        assert "StreamWaitEvent" in str(error), error
    assert source.released["array"] == 1

    driver.fail("StreamWaitEvent", 0)
    pinned = OfDeviceArray(device_type=kind + 1, device_id=0, data=driver.allocate(0, 64, "host"), event=event)
    driver.clear()
    assert dlbridge.convert(pinned, "numpy").tolist() == [0] * 6
    assert [line.split()[0] for line in driver.log("StreamWaitEvent", "StreamSynchronize")] == [
        "StreamWaitEvent", "StreamSynchronize"]             # the CPU is about to read it

    # Nulls that nobody counted cannot be counted where the CPU cannot look.
    try:
        dlbridge.asdlpack(OfDeviceArray(device_type=kind, device_id=0, data=start, null_count=-1, bits=[1] * 6))
    except dlbridge.ConversionError as error:
        assert "null_count -1: is unknown" in str(error), error


@pytest.mark.needs("numba")
@in_child
def test_what_has_the_interface_alone_in_numbas_package():
    from fake_driver.producers import Interface, driver
    from numba import cuda

    import dlbridge

    foreign = type("ForeignArray", (Interface,), {"__module__": "numba.cuda.testing"})
    start = driver.allocate(0, 64)
    assert dlbridge.asdlpack(foreign(start)).data_ptr == start
    # Of an empty array nobody is told strides, from which CuPy would take that there is an address.
    for shape in (0,), (0, 3), (2, 0):
        tensor = dlbridge.asdlpack(foreign(0, shape))
        assert tensor.__cuda_array_interface__["strides"] is None and tensor.shape == shape
        assert cuda.as_cuda_array(tensor).shape == shape


@in_child
def test_bytes_of_a_device_are_int8_too():
    """As those of cuda.core's Buffer; and no hint leads by way of NumPy."""
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start = driver.allocate(0, 64)
    for typestr in "|u1", "|i1":
        source = Interface(start, (64,), typestr)
        tensor = dlbridge.convert(source, "dlbridge", dtype="float32", shape=(4, 4))
        assert (tensor.data_ptr, tensor.dtype, tensor.shape, tensor.device) == (start, "float32", (4, 4), "cuda:0")
    for source, keywords in (
        (Interface(start, (16,)), {"dtype": "float64"}), (Interface(start, (16,)), {"shape": (4, 4)}),
        (Interface(start, (4, 4), "|u1", strides=(1, 4)), {"dtype": "float32"}),
        (Interface(start, (64,), "|u1"), {"dtype": "float32", "shape": (2,)}),
        (Interface(start, (1 << 40,)), {}), (Interface(start, (4,), strides=(6,)), {"copy": False}),
    ):
        try:
            dlbridge.convert(source, "dlbridge", **keywords)
        except dlbridge.ConversionError as error:
            assert "numpy" not in str(error), error
        else:
            assert keywords == {"copy": False}


@pytest.mark.needs("numba")
@pytest.mark.parametrize(("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "stream"), [("0", 1), ("1", 2)])
@in_child
def test_numbas_stream_0_is_a_default_stream(NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM, stream):
    import warnings

    import numpy as np
    from fake_driver.producers import driver, ordered
    from numba import cuda

    import dlbridge

    warnings.simplefilter("ignore", DeprecationWarning)     # Numba's handle is a subclass of int
    source = cuda.to_device(np.arange(4, dtype="f4"), stream=cuda.default_stream())
    assert source.__cuda_array_interface__["stream"] == 0
    then = driver.stream()
    assert ordered(lambda: dlbridge.asdlpack(source, stream=then)) == [(stream, then)]
