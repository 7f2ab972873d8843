"""OpenVINO: tensors without a protocol, whose ``data`` is an ndarray over the same memory."""

from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import NO_LABELS, NO_SUBBYTE, PLAIN, compact

SEEN = "seen in 2026.4.1"

# OpenVINO's name of each type that it has in whole bytes.
ELEMENT_TYPES = {
    "bool": "boolean", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "float8_e8m0fnu": "f8e8m0",
}
NAMES = {name: dtype for dtype, name in ELEMENT_TYPES.items()}


def element_type(tensor: Any) -> str:
    """The dtype by the tensor's own word; OpenVINO's name where it has no whole bytes (i4, string)."""
    name: str = tensor.get_element_type().get_type_name()
    return NAMES.get(name, name)


def make(openvino: Any, array: Any, dtype: str) -> Any:
    """A tensor over an ndarray's memory, which it keeps alive; it does not know ml_dtypes' types, so they are named."""
    words = array.view(f"u{array.itemsize}")
    return openvino.Tensor(words, list(array.shape), getattr(openvino.Type, ELEMENT_TYPES[dtype]))


RAW = {"element type": "pass x.data, which OpenVINO gives for it"}
DATA = Fact(lambda tensor: tensor.data, SEEN, "has no protocol; its data is a view")
TYPE = Fact(element_type, SEEN, "says float16 of bfloat16 in its data, and uint8 of float8")

LIBRARY = Library(
    name="openvino",
    arrays=(
        Arrays("Tensor", RAW, gives=DATA, element_type=TYPE),
        Arrays("Constant", RAW, gives=DATA, element_type=TYPE),
    ),
    delivery="importer:prepare_for_ndarrays",
    importer=make,
    array_types=("Tensor",),
    lacks=(
        *compact(SEEN),
        *PLAIN,
        Fact("READ_ONLY", SEEN, "takes it where a type is named, and writes"),
        Fact("OTHER_DEVICES", SEEN, "has other types for a device's memory"),
        *NO_LABELS,
        *NO_SUBBYTE,
    ),
    dtypes=(Fact(tuple(ELEMENT_TYPES), SEEN),),
)
