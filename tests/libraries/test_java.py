"""Arrays of Java, whose buffers are copies that JPype gives again as long as anybody has one; and memory for Java."""

import pytest
from support.children import in_child


@pytest.mark.needs("Java")
@in_child(warnings="ignore")
def test_each_conversion_sees_what_java_has_now_and_java_has_ours():
    import jpype
    import numpy as np
    import pytest

    import dlbridge

    jpype.startJVM(convertStrings=False)
    for dtype, shape in (("int32", (4,)), ("float64", (4,)), ("int8", (4,)), ("int16", (2, 3))):
        array = jpype.JArray.of(np.ones(shape, dtype))
        results = []
        for number in range(3):
            (array[0] if len(shape) > 1 else array)[0] = number
            for to, keywords in (("numpy", {}), ("torch", {}), ("jax", {"narrow": True}), ("numpy", {"copy": True})):
                results.append((number, dlbridge.convert(array, to, **keywords)))
            results.append((number, dlbridge.convert_tree([array], "torch")[0]))
            results.append((number, np.asarray(dlbridge.asdlpack(array))))
        assert [float(np.asarray(made).flat[0]) for _, made in results] == [number for number, _ in results]
        plan = dlbridge.explain(array, "numpy")
        assert (plan.action, plan.dtype, plan.shape, plan.hint) == (
            "copy", dtype, shape, "nothing to do: it is copied")
        with pytest.raises(dlbridge.CopyRequiredError, match="gives its elements by a copy alone"):
            dlbridge.convert(array, "numpy", copy=False)

    memory = np.arange(3, dtype="float32")
    order = jpype.JClass("java.nio.ByteOrder").nativeOrder()
    buffer = jpype.nio.convertToDirectBuffer(dlbridge.asdlpack(memory)).order(order).asFloatBuffer()
    buffer.put(1, 9.0)
    assert memory.tolist() == [0, 9, 2]
