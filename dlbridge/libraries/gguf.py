"""gguf: files of weights."""

from typing import Any

from dlbridge._core.late import load_module
from dlbridge.libraries.library import Arrays, Fact, Library, keep_as_dict
from dlbridge.libraries.profiles import IN_TREE


def parts_of_reader(reader: Any) -> dict[str, Any]:
    """The tensors by their names, in the memory that the file is mapped into. Quantised ones stay bytes."""
    return {tensor.name: weights(tensor) for tensor in reader.tensors}


def weights(tensor: Any) -> Any:
    if tensor.tensor_type.name != "BF16":
        return tensor.data
    *axes, row_bytes = tensor.data.shape
    convert = load_module("dlbridge.convert").convert
    return convert(tensor.data, "dlbridge", dtype="bfloat16", shape=(*axes, row_bytes // 2))


LIBRARY = Library(
    name="gguf",
    arrays=(
        Arrays("GGUFReader", {"": IN_TREE}, container=Fact(
            (parts_of_reader, keep_as_dict), "seen in 0.19.0", "has bfloat16 as bytes")),
    ),
)
