"""Uses that the checkers must refuse, each with the code of mypy's error; read by them, never run."""

import numpy

import dlbridge

array = numpy.zeros(3)
tensor = dlbridge.asdlpack(array)
plan = dlbridge.explain(array, "numpy")

dlbridge.convert(array)  # E: call-overload
dlbridge.convert(array, 3)  # E: call-overload
dlbridge.convert(array, None)  # E: call-overload
dlbridge.convert(array, "numpy", "cpu")  # E: call-overload
dlbridge.convert(array, "numpy", device=3.5)  # E: call-overload
dlbridge.convert(array, "numpy", device=("cuda", 0))  # E: arg-type
dlbridge.convert(array, "numpy", copy="never")  # E: call-overload
dlbridge.convert(array, "numpy", stream="default")  # E: call-overload
dlbridge.convert(array, "numpy", readonly="deny")  # E: call-overload
dlbridge.convert(array, "numpy", readonly=False)  # E: call-overload
dlbridge.convert(array, "numpy", detach=None)  # E: call-overload
dlbridge.convert(array, "numpy", dtype=3)  # E: call-overload
dlbridge.convert(array, "numpy", shape=3)  # E: call-overload
dlbridge.convert_tree([array], "numpy", dtype="float32")  # E: call-overload
dlbridge.convert(array, "numpy", order="F")  # E: call-overload
dlbridge.prefetch([array], "numpy", order="F")  # E: arg-type
dlbridge.prefetch([array], "numpy", others="keep")  # E: arg-type
dlbridge.accepts("numpy", columns="keep")  # E: call-overload
view: memoryview = dlbridge.convert(array, "numpy")  # E: assignment

dlbridge.asdlpack(array, "cpu")  # E: call-arg
dlbridge.asdlpack(array, readonly="deny")  # E: arg-type
dlbridge.asdlpack(array, stream=1.0)  # E: arg-type
dlbridge.from_dlpack(x=array)  # E: call-arg
dlbridge.from_dlpack(array, stream=1)  # E: call-arg
dlbridge.to_dlpack(array, max_version=1)  # E: arg-type
dlbridge.to_dlpack(array, max_version=(1, 0, 0))  # E: arg-type
dlbridge.to_dlpack(array, copy=True)  # E: call-arg

dlbridge.explain(array)  # E: call-arg
dlbridge.explain(array, "numpy", order="F")  # E: arg-type
dlbridge.explain(array, "numpy", readonly="deny")  # E: arg-type
plan.action = "copy"  # E: misc
print(plan.action == "move")  # E: comparison-overlap (mypy alone)
print(plan.cost)  # E: attr-defined

dlbridge.Tensor()  # E: call-arg
tensor.shape = (3,)  # E: misc
tensor.readonly = False  # E: misc
tensor.numpy()  # E: attr-defined
tensor + 1  # E: operator
[][tensor]  # E: call-overload
tensor.__dlpack__(None)  # E: call-arg
tensor.__dlpack__(stream=1.0)  # E: arg-type
tensor.__dlpack__(max_version="1.0")  # E: arg-type
tensor.__dlpack__(dl_device="cpu")  # E: arg-type



@dlbridge.accepts("numpy")
def scaled(x: numpy.ndarray, scale: float = 1.0) -> numpy.ndarray:
    return x * scale


@dlbridge.accepts("numpy", returns="like")
def like_scaled(x: numpy.ndarray, scale: float = 1.0) -> numpy.ndarray:
    return x * scale


class Model:
    @dlbridge.accepts("numpy", returns="like")
    def forward(self, x: numpy.ndarray, scale: float = 1.0) -> numpy.ndarray:
        return x * scale


scaled(array, scal=2.0)  # E: call-overload
scaled(tensor, scale="2")  # E: call-overload
like_scaled(array, scal=2.0)  # E: call-overload
like_scaled(tensor, scale="2")  # E: call-overload
Model().forward(array, scal=2.0)  # E: call-overload

dlbridge.register_source(bytes, lambda source: source.pixels)  # E: attr-defined
dlbridge.register_source(bytes, str.encode)  # E: arg-type
dlbridge.register_source(bytes)  # E: call-overload
dlbridge.register_source("bytes", bytearray)  # E: call-overload
dlbridge.register_target("rows")  # E: call-arg
dlbridge.register_target("rows", "from_dlpack")  # E: arg-type
dlbridge.register_target("rows", lambda tensor: tensor.rows)  # E: attr-defined
dlbridge.register_target("rows", repr, supports="PACKED")  # E: arg-type
dlbridge.register_target("rows", repr, order="F")  # E: arg-type
dlbridge.register_target("rows", repr, supports=["BIG_ENDIAN"])  # E: list-item
dlbridge.targets("numpy")  # E: call-arg
dlbridge.DLPACK_VERSION = (2, 0)  # E: misc (mypy alone)
print(dlbridge.nothing)  # E: attr-defined
