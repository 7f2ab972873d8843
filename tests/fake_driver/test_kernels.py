"""What a target lacks is made on the device, by the kernels of a library and on its current stream."""

import pytest
from fake_driver.harness import in_child


@in_child
def test_strides_that_a_target_lacks_are_made_compact_by_the_arrays_own_library():
    import numpy as np
    from fake_driver.kernels import Array, current, values_of
    from fake_driver.producers import driver, order
    from fake_driver.scenes.rearranging import check_order, refused, then

    import dlbridge
    from dlbridge.testing import unordered_releases

    numbers = np.arange(24, dtype="f4").reshape(4, 6)
    for view in numbers[::-1], numbers[:, ::-2], numbers[::-1, ::-1], numbers.T[::-1]:
        source = Array(view)
        plan = dlbridge.explain(source, "plain")
        assert plan.action == "copy" and "go backwards" in plan.reason, plan
        assert plan.steps == ("compact copy (kernels)",)
        error = refused(lambda: dlbridge.convert(source, "plain", copy=False), dlbridge.CopyRequiredError)
        assert error.field == "strides"
        for keywords in {}, {"copy": True}, {"stream": then}, {"stream": -1}, {"readonly": "share"}:
            driver.clear()
            tensor = dlbridge.convert(source, "plain", **keywords)
            made = values_of(tensor)
            assert np.array_equal(made, view) and made.flags.c_contiguous
            assert driver.log("StreamSynchronize", "EventSynchronize") == []
            if "stream" in keywords and keywords["stream"] is then:
                assert order() == [(current.handle, then.handle)]       # the copy is ready before it is used
            driver.use(tensor.data_ptr, then.handle if "stream" in keywords and keywords["stream"] is then
                       else current.handle, "read")
            del tensor, made
            check_order()
    assert unordered_releases() == 0


@in_child
def test_c_order_is_made_by_the_arrays_own_library():
    import numpy as np
    from fake_driver.kernels import Array, values_of
    from fake_driver.scenes.rearranging import check_order, refused

    import dlbridge

    numbers = np.arange(24, dtype="f4").reshape(4, 6)
    for view in numbers.T, numbers[:, ::2], numbers[:, :3]:
        source = Array(view)
        assert dlbridge.convert(source, "plain").data_ptr == source.start       # these strides are supported
        plan = dlbridge.explain(source, "plain", order="C")
        assert plan.steps == ("compact copy (kernels)",) and 'order="C"' in plan.reason, plan
        tensor = dlbridge.convert(source, "plain", order="C")
        made = values_of(tensor)
        assert np.array_equal(made, view) and made.flags.c_contiguous
        assert 'order="C"' in str(refused(
            lambda source=source: dlbridge.convert(source, "plain", order="C", copy=False), dlbridge.CopyRequiredError))
        del tensor, made
    source = Array(numbers)
    assert dlbridge.convert(source, "plain", order="C").data_ptr == source.start
    check_order()


@pytest.mark.parametrize("keywords", [{}, {"readonly": "share"}, {"copy": True}])
@in_child
def test_a_library_that_copies_shared_memory_itself_gets_a_compact_copy(keywords):
    """As JAX: not even a view of it may be misaligned."""
    import numpy as np
    from fake_driver.kernels import Array, current
    from fake_driver.producers import driver
    from fake_driver.scenes.rearranging import check_order

    import dlbridge
    from dlbridge.testing import unordered_releases

    numbers = np.arange(8, dtype="f4")
    source = Array(numbers)
    shared = dlbridge.convert(source, "xla", **keywords)
    assert (shared.start == source.start) is ("readonly" in keywords)
    repeated = np.ndarray((4,), "f4", numbers, 0, (0,))
    for view in numbers[3::-1], numbers[::2], repeated, numbers[1:5], numbers[2:6], numbers[3:7]:
        source = Array(view)
        driver.use(source.start // 4096 * 4096, current.handle, "write")
        received = dlbridge.convert(source, "xla", **keywords)
        plan = dlbridge.explain(source, "xla", **keywords)
        assert plan.action == "copy" and received.start % 16 == 0 and received.start != source.start, plan
        received.read()
        found = np.frombuffer(driver.read(received.start, 4 * view.size), "f4")
        assert found.tolist() == view.tolist()
        driver.use(source.start // 4096 * 4096, current.handle, "write")        # at once
        del received, source
        check_order()
    assert unordered_releases() == 0


@in_child
def test_memory_of_others_is_copied_by_a_library_that_takes_it_as_it_is():
    import numpy as np
    from fake_driver.kernels import Array, values_of
    from fake_driver.producers import Interface, Stream, driver
    from fake_driver.scenes.rearranging import check_order, refused, then

    import dlbridge

    first = Stream(driver.value("StreamCreate", 1))
    for wrap in lambda source: source, dlbridge.asdlpack:
        start = driver.filled(0, np.arange(16, dtype="f4").tobytes())
        source = wrap(Interface(start + 60, (4,), strides=(-4,), stream=first.handle))
        driver.use(start, first.handle, "write")
        assert dlbridge.explain(source, "plain").steps[0] == "compact copy (kernels)"
        tensor = dlbridge.convert(source, "plain", stream=then)
        assert values_of(tensor).tolist() == [15, 14, 13, 12] and tensor.strides == (1,)
        driver.use(tensor.data_ptr, then.handle, "read")
        del tensor
        check_order()
    # Bytes that are seen as something else are not what the array is.
    source = Array(np.arange(64, dtype="u1"))
    refused(lambda: dlbridge.convert(source, "plain", dtype=">f4"), dlbridge.DeviceError, "byte order")


@in_child
def test_a_type_that_a_target_lacks_is_narrowed_on_the_device():
    import numpy as np
    from fake_driver.kernels import Array, current, values_of
    from fake_driver.producers import driver
    from fake_driver.scenes.rearranging import check_order, refused

    import dlbridge

    dlbridge.register_target("narrow", lambda tensor: tensor, dtypes=["float32", "int32", "complex64"])
    for wide, near in ("f8", "float32"), ("i8", "int32"), ("c16", "complex64"):
        values = np.arange(6, dtype=wide).reshape(2, 3)
        for view in values, values[::-1], values.T:
            source = Array(view)
            refused(lambda: dlbridge.convert(source, "narrow"), dlbridge.ConversionError, "pass narrow=True")
            refused(lambda: dlbridge.convert(source, "narrow", narrow=True, copy=False), dlbridge.CopyRequiredError)
            plan = dlbridge.explain(source, "narrow", narrow=True)
            assert plan.action == "copy" and f"becomes {near}" in plan.reason
            tensor = dlbridge.convert(source, "narrow", narrow=True)
            assert tensor.dtype == near and values_of(tensor).tolist() == view.tolist()
            assert tensor.device == "cuda:0"
    # Nobody keeps the narrower copy until xla has read it, so xla makes a copy of its own.
    source = Array(np.arange(4.0))
    for keywords in {}, {"copy": True}, {"readonly": "share"}:
        received = dlbridge.convert(source, "xla", narrow=True, **keywords)
        received.read()
        assert np.frombuffer(driver.read(received.start, 16), "f4").tolist() == [0, 1, 2, 3]
        del received
    driver.use(source.start, current.handle, "write")
    check_order()
    source = Array(np.array([1, 2**31]))
    refused(lambda: dlbridge.convert(source, "narrow", narrow=True), dlbridge.ConversionError,
            "narrow: value of memory on cuda:0: does not fit into int32")


@in_child
def test_a_copy_of_bools_has_only_the_bytes_0_and_1():
    import fake_driver.scenes.rearranging  # noqa: F401
    import numpy as np
    from fake_driver.kernels import Array
    from fake_driver.producers import driver

    import dlbridge

    source = Array(np.array([0, 1, 2, 255] * 4, "u1"), typestr="|b1")
    shared = dlbridge.convert(source, "plain")
    assert driver.read(shared.data_ptr, 4) == bytes([0, 1, 2, 255])
    copied = dlbridge.convert(source, "plain", copy=True)
    assert driver.read(copied.data_ptr, 4) == bytes([0, 1, 1, 1])
    for keywords in {}, {"copy": True}:
        received = dlbridge.convert(source, "xla", **keywords)
        assert driver.read(received.start, 4) == bytes([0, 1, 1, 1])


@in_child
def test_a_copy_that_is_made_on_the_way_is_ordered_although_stream_is_minus_1():
    import numpy as np
    from fake_driver.kernels import Array, current
    from fake_driver.producers import driver
    from fake_driver.scenes.rearranging import check_order, then

    import dlbridge

    dlbridge.register_target("narrow", lambda tensor: tensor, dtypes=["float32"])
    source = Array(np.arange(4.0))
    for made in (
        dlbridge.convert(source, "narrow", narrow=True, stream=-1),
        dlbridge.convert(Array(np.arange(4, dtype="f4")[::-1]), "plain", stream=-1),
    ):
        capsule = made.__dlpack__(stream=then)
        driver.use(made.data_ptr, then.handle, "read")
        del capsule, made
        check_order()
    numbers = np.arange(8, dtype="f4")
    source = Array(numbers[1:5])                        # misaligned: by way of a copy
    driver.call("StreamSynchronize", current.handle)    # as stream=-1 promises
    received = dlbridge.convert(source, "xla", stream=-1)
    assert np.frombuffer(driver.read(received.start, 16), "f4").tolist() == [1, 2, 3, 4]
    check_order()


@in_child
def test_managed_memory_that_the_cpu_reads_is_the_hosts_in_every_question():
    import fake_driver.scenes.rearranging  # noqa: F401
    from fake_driver.producers import Interface, driver

    import dlbridge

    start = driver.filled(0, bytes([0, 1, 2, 255]) * 16, "managed")
    bools = Interface(start, (16,), "|b1")
    assert dlbridge.convert(bools, "numpy", copy=True).view("u1").tolist() == [0, 1, 1, 1] * 4
    assert dlbridge.explain(bools, "numpy", copy=True).reason == "copy was asked for"
    dlbridge.register_target("aligned", lambda tensor: tensor, alignment=64)
    plan = dlbridge.explain(Interface(start + 16, (4,)), "aligned")
    assert plan.action == "copy" and "is not aligned to 64 bytes" in plan.reason, plan
    assert dlbridge.convert(Interface(start + 16, (4,)), "aligned").device == "cpu"


@pytest.mark.parametrize(("answer", "error", "text"), [
    (RuntimeError("CUDA out of memory. Tried to allocate"), "DeviceMemoryError",
     "kernels: device cuda:0: 16 bytes were wanted, and 17179869184 are free"),
    (ValueError("no kernel"), "DeviceError", "kernels: copy ValueError: no kernel: was raised by the library"),
])
@in_child
def test_an_error_of_a_kernel_is_put_into_words(answer, error, text):
    import numpy as np
    from fake_driver.kernels import Array, spoil
    from fake_driver.scenes.rearranging import refused

    import dlbridge

    spoil(answer)
    raised = refused(
        lambda: dlbridge.convert(Array(np.arange(4, dtype="f4")[::-1]), "plain"), getattr(dlbridge, error), text)
    assert raised.__cause__ is answer


@in_child
def test_few_bytes_of_a_large_span_are_gathered_before_they_are_fetched():
    import numpy as np
    from fake_driver.kernels import Array
    from fake_driver.producers import driver, fields
    from fake_driver.scenes.rearranging import check_order, refused

    import dlbridge

    numbers = np.arange(1 << 23, dtype="f4").reshape(1 << 13, 1 << 10)
    for view in numbers[:, 7], numbers[::1 << 12, ::-4]:
        source = Array(view)
        for keywords in {}, {"copy": True}, {"stream": -1}:
            plan = dlbridge.explain(source, "numpy", device="cpu", **keywords)
            assert plan.action == "copy" and plan.steps == ("compact copy (kernels)", "fetch (driver)"), plan
            driver.clear()
            made = dlbridge.convert(source, "numpy", device="cpu", **keywords)
            assert np.array_equal(made, view) and made.base is not None
            fetched, = driver.log("MemcpyDtoHAsync")
            assert fields(fetched)["bytes"] == view.nbytes, fetched
        out = np.zeros_like(view)
        dlbridge.convert(source, "numpy", device="cpu", out=out)
        assert np.array_equal(out, view)
        refused(lambda: dlbridge.convert(source, "numpy", device="cpu", copy=False), dlbridge.CopyRequiredError)
        check_order()
    # Nothing is gained where the whole span is not much more, or is small.
    for view in numbers[:, ::4], numbers[:64, ::16]:
        assert dlbridge.explain(Array(view), "numpy", device="cpu").steps == ("fetch (driver)",)


@in_child
def test_few_bytes_of_a_large_span_without_kernels():
    from fake_driver.producers import Interface, driver

    import dlbridge

    start = driver.allocate(0, 1 << 26)
    source = Interface(start, (1 << 6,), strides=(1 << 20,))
    plan = dlbridge.explain(source, "numpy", device="cpu")
    assert plan.action == "refuse" and "spread few bytes over many" in plan.reason, plan
    error = None
    for function in (lambda: dlbridge.convert(source, "numpy", device="cpu"),
                     lambda: dlbridge.asdlpack(source).__dlpack__(dl_device=(1, 0)),
                     lambda: dlbridge.asdlpack(source).__reduce_ex__(4)):
        try:
            function()
        except dlbridge.DeviceError as raised:
            error = raised
        assert error is not None and "copy" in error.hint, error
        error = None
    assert plan.hint.startswith("copy it with the library that made it, or import cupy")


@in_child
def test_padded_elements_on_a_device_are_no_legacy_capsule():
    from fake_driver.producers import driver

    import dlbridge
    from dlbridge.testing.abi import SUBBYTE_PADDED
    from dlbridge.testing.producers import Producer

    source = dlbridge.asdlpack(
        Producer(data=driver.allocate(0, 8), device_type=2, code=17, bits=4, flags=SUBBYTE_PADDED))
    assert source.dtype == "float4_e2m1fn"
    source.__dlpack__(max_version=(1, 0))
    try:
        source.__dlpack__()
    except dlbridge.DeviceError as error:
        assert error.hint == "pass max_version=(1, 0)", error
    else:
        raise AssertionError
