"""Pinned and managed memory: the host's for libraries of the host, the device's for those of devices."""

import pytest
from fake_driver.harness import in_child

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@pytest.mark.needs("torch", "jax")
@both
@in_child
def test_pinned_memory_is_the_hosts_once_its_stream_is_done(platform):
    import numpy as np
    from fake_driver.producers import CUDA_HOST, Interface, Producer, driver, fields, order

    import dlbridge

    ROCM_HOST = 11
    driver.make_current(0)
    for device in 0, 1:
        start, first = driver.allocate(device, 256, "host"), driver.stream(device)
        start += 64
        expected = np.arange(4, dtype="f4")
        driver.write(start, expected.tobytes())
        legacy = 0 if driver.hip else 1
        kind = ROCM_HOST if driver.hip else CUDA_HOST
        producer = Producer(start, (kind, 0))
        for source, on in [
            (Interface(start, stream=first), first), (Interface(start, stream=2), 2),
            (Interface(start, version=2), legacy), (producer, legacy),
        ]:
            for to in ("numpy",) if driver.hip else ("numpy", "torch", "jax"):
                for device_given in None, "cpu":
                    driver.clear()
                    found = dlbridge.convert(source, to, device=device_given)
                    assert [fields(line) for line in driver.log("StreamSynchronize")] == [
                        {"stream": on, "device": device}], (to, source)
                    assert order() == [] and not driver.log("MemcpyDtoHAsync")
                    assert np.array_equal(np.asarray(found), expected)
                    if to != "jax":
                        np.asarray(found)[0] = 7
                        assert driver.read(start, 4) == np.float32(7).tobytes()         # the memory itself
                        np.asarray(found)[0] = 0
                driver.clear()
                found = dlbridge.convert(source, to, stream=-1)
                assert driver.log("StreamSynchronize", "EventRecord") == []
        for source in Interface(start, stream=None), Interface(start):      # nobody need wait
            driver.clear()
            dlbridge.convert(source, "numpy")
            assert driver.log("StreamSynchronize") == []
        driver.capture(first)
        try:
            dlbridge.convert(Interface(start, stream=first), "numpy")
        except dlbridge.errors.DeviceError:
            driver.capture(first, 0)
        else:
            raise AssertionError


@both
@in_child
def test_a_tensor_of_pinned_memory_is_exported_to_the_host_once_its_stream_is_done(platform):
    from fake_driver.producers import CUDA_HOST, Interface, driver, fields, order

    import dlbridge

    ROCM_HOST = 11
    driver.make_current(0)
    legacy, kind = (0, ROCM_HOST) if driver.hip else (1, CUDA_HOST)
    for device in 0, 1:
        start, first = driver.allocate(device, 256, "host"), driver.stream(device)
        tensor = dlbridge.asdlpack(Interface(start, stream=first))
        assert tensor.__dlpack_device__() == (kind, 0)
        driver.clear()
        capsule = tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
        assert [fields(line)["stream"] for line in driver.log("StreamSynchronize")] == [first] and order() == []
        found = dlbridge.asdlpack(capsule)
        assert (found.device, found.data_ptr) == ("cpu", start)
        driver.clear()
        dlbridge.convert(tensor, "numpy")           # by way of the default stream
        assert order() == [(first, legacy)]
        assert fields(driver.log("StreamSynchronize")[0])["stream"] == legacy
        driver.clear()
        tensor.__dlpack__(dl_device=(1, 0), stream=-1)
        assert driver.log() == []


@pytest.mark.needs("numba")
@in_child
def test_pinned_and_managed_memory_is_the_devices_for_numba():
    from fake_driver.producers import Interface, Stream, driver, fields, order

    import dlbridge

    for device in 0, 1:
        driver.make_current(device)
        for kind in "host", "managed":
            start, first = driver.allocate(device, 64, kind), Stream(driver.stream(device))
            source = Interface(start, stream=first.handle)
            then = Stream(driver.stream(device))
            for stream, expected in (None, [(first.handle, 1)]), (then, [(first.handle, then.handle)]), (-1, []):
                driver.clear()
                array = dlbridge.convert(source, "numba", stream=stream)
                assert order() == expected and not driver.log("StreamSynchronize")
                assert array.__cuda_array_interface__["data"] == (start, False)
                assert array.gpu_data.context.device.id == device
                assert all(fields(line)["device"] == device for line in driver.log("EventRecord"))


@pytest.mark.needs("jax")
@in_child
def test_managed_memory_is_the_hosts_where_the_device_lets_it_read():
    import numpy as np
    from fake_driver.producers import CUDA_MANAGED, Interface, driver, fields

    import dlbridge
    from dlbridge.errors import CopyRequiredError

    driver.make_current(0)
    for device in 0, 1:
        expected = np.arange(4, dtype="f4")
        start, first = driver.filled(device, expected.tobytes(), "managed"), driver.stream(device)
        source = Interface(start, stream=first)
        assert dlbridge.asdlpack(source).__dlpack_device__() == (CUDA_MANAGED, 0)
        for concurrent in True, False:
            driver.concurrent_managed_access(concurrent)
            for to in "numpy", "jax":
                for keywords in {}, {"device": "cpu"}:
                    driver.clear()
                    found = dlbridge.convert(source, to, **keywords)
                    assert np.array_equal(np.asarray(found), expected)
                    [waited] = driver.log("StreamSynchronize")
                    assert fields(waited) == {"stream": first, "device": device}
                    if to == "numpy":
                        assert (found.ctypes.data == start) == concurrent == (not driver.log("MemcpyDtoHAsync"))
                    try:
                        dlbridge.convert(source, to, copy=False, **keywords)
                        assert concurrent or to == "jax"
                    except CopyRequiredError:
                        assert not concurrent or to == "jax"


@in_child
def test_what_a_tensor_exports_of_managed_memory_is_labelled_too():
    import pickle

    from fake_driver.producers import Interface, driver, fields

    import dlbridge

    driver.make_current(0)
    start, first = driver.allocate(0, 16, "managed"), driver.stream()
    tensor = dlbridge.asdlpack(Interface(start, stream=first))

    def sent():
        buffers = []
        pickle.dumps(tensor, 5, buffer_callback=buffers.append)
        return dlbridge.asdlpack(buffers[0])

    for concurrent in True, False:
        driver.concurrent_managed_access(concurrent)
        for export in (
            lambda: dlbridge.asdlpack(tensor.__dlpack__(dl_device=(1, 0))),
            lambda: dlbridge.asdlpack(tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 3))), sent,
        ):
            driver.clear()
            assert (export().data_ptr == start) == concurrent == (not driver.log("MemcpyDtoHAsync"))
            assert {fields(line)["stream"] for line in driver.log("StreamSynchronize")} == {first}


@in_child
def test_a_copy_of_managed_memory_on_the_host_is_ordered_by_nobody():
    import numpy as np
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    expected = np.arange(4, dtype="f4")
    start = driver.filled(0, expected.tobytes(), "managed")
    for readonly in False, True:
        source = Interface(start, stream=None, readonly=readonly)
        for stream in None, 1, -1:
            driver.clear()
            plan = dlbridge.explain(source, "dlpack", device="cpu", copy=True, stream=stream)
            assert plan.steps[-1].endswith("(dlbridge)") and not driver.log("StreamWaitEvent"), plan
            capsule = dlbridge.convert(source, "dlpack", device="cpu", copy=True, stream=stream)
            assert np.array_equal(dlbridge.convert(capsule, "numpy"), expected)
            assert not driver.log("EventRecord", "StreamWaitEvent")


@in_child
def test_a_legacy_copy_of_read_only_memory_is_no_matter_of_policy():
    from fake_driver.scenes.labels import Interface, memory

    import dlbridge

    start = memory()
    tensor = dlbridge.asdlpack(Interface(start, readonly=True), readonly="error")
    assert dlbridge.asdlpack(tensor.__dlpack__(copy=True)).data_ptr != start


@both
@in_child
def test_the_cpu_waits_before_it_reads_pinned_memory(platform):
    import pickle

    import numpy
    from fake_driver.producers import Interface, Producer, driver, fields

    import dlbridge
    from dlbridge.testing import abi, producers

    driver.make_current(0)
    start, first, then = driver.allocate(0, 16, "host"), driver.stream(), driver.stream()
    source = Interface(start, stream=first)
    tensor = dlbridge.asdlpack(source)
    kind = 11 if driver.hip else 3
    producer = Producer(start, (kind, 0))
    nibbles = dlbridge.asdlpack(
        producers.Producer(data=start, device_type=kind, code=1, bits=4, flags=abi.SUBBYTE_PADDED))
    legacy, out = 0 if driver.hip else 1, numpy.zeros(4, "float32")
    wide = Interface(driver.allocate(0, 32, "host"), typestr="<f8", stream=first)
    dlbridge.register_target("singles", numpy.from_dlpack, dtypes=["float32"], array_type=numpy.ndarray)
    assert dlbridge.explain(source, "dlbridge").steps == ()         # nobody waits until somebody consumes it
    for read, on in [
        (lambda: dlbridge.convert(source, "numpy", out=out), first),
        (lambda: dlbridge.convert(source, "numpy", out=out, stream=-1), None),
        (lambda: dlbridge.convert(wide, "singles", out=out, stream=-1, narrow=True), None),
        (lambda: dlbridge.convert(wide, "singles", out=out, narrow=True), first),
        (lambda: dlbridge.asdlpack(source, copy=True), first),
        (lambda: dlbridge.asdlpack(Interface(start, typestr=">f4", stream=first)), first),
        (lambda: dlbridge.asdlpack(Interface(start, (2,), strides=(5,), stream=first)), first),
        (lambda: dlbridge.asdlpack(source, copy=True, stream=then), then),
        (lambda: tensor.__dlpack__(copy=True), legacy),
        (lambda: tensor.__dlpack__(copy=True, stream=-1), None),
        (lambda: nibbles.__dlpack__(), legacy),         # which packs them
        (lambda: numpy.asarray(tensor), first),
        (lambda: memoryview(tensor), first),
        (lambda: tensor.__array_interface__, first),
        (lambda: tensor.__array_struct__, first),
        (lambda: pickle.dumps(tensor), first),
        (lambda: dlbridge.convert(producer.capsule(), "numpy"), legacy),
    ]:
        driver.clear()
        read()
        waited = [fields(line)["stream"] for line in driver.log("StreamSynchronize")]
        assert (waited and set(waited) == {on}) or (on is None and not waited), (read, waited)


@pytest.mark.needs("numba")
@in_child
def test_an_upload_waits_before_it_reads_pinned_memory():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start, first = driver.allocate(0, 16, "host"), driver.stream()
    for stream in None, driver.stream():
        for device in "cuda:1", "cuda:0":
            driver.clear()
            dlbridge.convert(Interface(start, stream=first), "numba", device=device, stream=stream)
            calls = driver.calls()
            if "MemcpyHtoD" in calls:
                assert "StreamSynchronize" in calls[:calls.index("MemcpyHtoD")]
            else:
                assert device == "cuda:0"               # where it is, seen as the device's


@in_child
def test_a_copy_of_managed_memory_is_the_devices():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    for index in 0, 1:
        copy = dlbridge.asdlpack(Interface(driver.allocate(index, 16, "managed"), stream=1), copy=True)
        assert copy.device == f"cuda:{index}"


@in_child
def test_a_host_wait_on_a_captured_stream_is_refused_before_it_harms():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    captured = driver.stream()
    driver.capture(captured)
    for kind in "device", "host", "managed":
        source = Interface(driver.allocate(0, 16, kind), stream=captured)
        driver.clear()
        try:
            dlbridge.convert(source, "numpy", device="cpu")
        except dlbridge.errors.DeviceError as error:
            assert "stream=-1" in str(error) or "captur" in str(error)
        else:
            raise AssertionError
        assert not driver.log("MemcpyDtoHAsync", "StreamSynchronize")


@both
@in_child
def test_bytes_of_a_device_are_seen_as_numbers_and_copied_into_an_array(platform):
    import numpy as np
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start, stream = driver.allocate(0, 256), driver.stream(0)
    expected = np.arange(6, dtype="f4").reshape(2, 3)
    driver.write(start, expected.tobytes())
    source = Interface(start, shape=(24,), typestr="|u1", stream=stream)
    tensor = dlbridge.convert(source, "dlbridge", dtype="float32", shape=(2, 3))
    assert (tensor.data_ptr, tensor.dtype, tensor.shape) == (start, "float32", (2, 3))
    driver.clear()
    out = np.zeros((3, 2), "f4").T
    assert dlbridge.convert(source, "numpy", dtype="float32", shape=(2, 3), device="cpu", out=out) is out
    assert out.tolist() == expected.tolist()
    assert len(driver.log("MemcpyDtoHAsync")) == 1
    try:
        dlbridge.convert(source, "numpy", dtype="float32", shape=(2, 3), out=out)
    except dlbridge.DeviceError as error:
        assert error.hint == 'pass device="cpu"', error
        plan = dlbridge.explain(source, "numpy", dtype="float32", shape=(2, 3), out=out)
        assert (plan.action, plan.reason, plan.hint) == ("refuse", error.reason, error.hint), plan
    else:
        raise AssertionError
