"""Paddle: tensors, through the C exchange API on both sides."""

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import COMPLEX, DLPACK, FLOATS, NO_SUBBYTE, NO_UNIFIED, SIGNED

GRADIENT = Fact("stop_gradient", "seen in 3.3.1", "exports by its table what takes part in a gradient")
STREAM = Fact(True, "seen in 3.3.1", "gives the current stream of the device")

LIBRARY = Library(
    name="paddle",
    install="paddlepaddle",
    arrays=(
        Arrays("Tensor", {"contiguous": "pass x.contiguous()"}, exchange=Fact("paddle.Tensor", "seen in 3.3.1"),
               names_stream=STREAM, gradient_free=GRADIENT),
        Arrays("EagerParamBase", exchange=Fact("paddle.base.framework.EagerParamBase", "seen in 3.3.1"),
               names_stream=STREAM, gradient_free=GRADIENT),
    ),
    delivery="exchange",
    importer="utils.dlpack.from_dlpack",
    written=Fact(lambda tensor: tensor._bump_inplace_version(), "seen in 3.3.1",
                 "would not notice that a tensor was written which it needs for a gradient"),
    array_types=("Tensor",),
    clone=Fact(lambda tensor, detach: (tensor.detach() if detach else tensor).clone(), "seen in 3.3.1",
               "has gradients"),
    devices=Fact(
        dict.fromkeys(("Place", "CPUPlace", "CUDAPlace"), lambda place: str(place).removeprefix("Place(").rstrip(")")),
        "seen in 3.3.1"),
    lacks=(
        Fact("NEGATIVE_STRIDES", "seen in 3.3.1", "takes them, and then asks for 2^64 bytes"),
        *DLPACK,
        Fact("READ_ONLY", "seen in 3.3.1", "ignores the read-only flag"),
        NO_UNIFIED,
        *NO_SUBBYTE,
    ),
    most_axes=Fact(9, "seen in 3.3.1", "refuses more"),
    dtypes=(
        Fact(("bool", *SIGNED, "uint8", "uint32", "uint64", *FLOATS, *COMPLEX, "bfloat16", "float8_e4m3fn",
              "float8_e5m2"), "seen in 3.3.1", "takes uint16 for bfloat16"),
    ),
    aligned_dtypes=Fact(("complex128",), "seen in 3.3.1",
                        "ends the process in kernels over what is not aligned to 16 bytes"),
    import_after=(Fact("tensorflow", "seen in 3.3.1 with TensorFlow 2.21", "ends the process"),),
    gpus=Fact(lambda paddle: paddle.device.cuda.device_count(), "seen in 3.3.1",
              "ends the process when its table is asked for the stream of a device that it does not see"),
)
