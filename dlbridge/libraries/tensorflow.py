"""TensorFlow: immutable tensors, through legacy capsules."""

import sys
from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Form, Library, Ragged
from dlbridge.libraries.profiles import COMPLEX, FLOATS, INTEGERS, NO_LABELS, NO_SUBBYTE, PLAIN, compact


def copied(tensor: Any, stream: int | None) -> Any:
    """A copy on the tensor's device, also while tf.function traces.

    No stream has to wait for it: its export makes the host wait until it is done.
    """
    tensorflow = sys.modules["tensorflow"]
    with tensorflow.init_scope():
        copy = tensorflow.raw_ops.DeepCopy(x=tensor)
        if stream is not None:
            tensorflow.experimental.dlpack.to_dlpack(copy)
        return copy


def parts_of_ragged(tensor: Any) -> tuple[tuple[int, ...], list[Any]]:
    return (), [tensor.flat_values, tuple(tensor.nested_row_splits)]


def new_ragged(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    """Without its own look at the offsets, which takes a hundred times as long as that of dlbridge."""
    data, offsets = parts
    return sys.modules["tensorflow"].RaggedTensor.from_nested_row_splits(data, offsets, validate=False)


def hint_for_type(tensor: Any) -> str:
    if tensor.dtype.is_integer:
        return "pass tensorflow.cast(x, tensorflow.int8)"
    return "it has strings, variants or resources, which no other library has"


LIBRARY = Library(
    name="tensorflow",
    arrays=(
        Arrays(
            "EagerTensor",
            {"element type": hint_for_type},
            unflagged=Fact(True, "seen in 2.21", "gives a legacy capsule, which has no flags"),
            constant=Fact(True, "seen in 2.21", "never writes to a tensor"),
            element_type=Fact(lambda tensor: tensor.dtype.name, "seen in 2.21",
                              "ends the process where strings or resources are exported"),
        ),
        Arrays("RaggedTensor", {"": "pass x.to_tensor()"}, form_name=Fact("ragged", "seen in 2.21")),
        Arrays("SparseTensor", {"": "pass tensorflow.sparse.to_dense(x)"}),
        *(Arrays(name, {"": "pass tensorflow.convert_to_tensor(x)"}) for name in ("Variable", "IndexedSlices")),
        Arrays("TensorArray", {"": "pass x.stack()"}),
        *(Arrays(name, {"": "it has a value only when its graph runs: call what needs one by numpy_function"})
          for name in ("SymbolicTensor", "KerasTensor")),
    ),
    constant_exports=Fact(True, "seen in 2.21", "exports its tensors alone"),
    delivery="importer:prepare_for_capsules",
    importer="experimental.dlpack.from_dlpack",
    array_types=("Tensor",),
    forms={
        "ragged": Form(("RaggedTensor",), parts_of_ragged, new_ragged, dense="x.to_tensor()",
                       of_dense='tensorflow.RaggedTensor.from_tensor(dlbridge.convert(x, "tensorflow"))',
                       elements=lambda tensor: tensor.flat_values, index_types=("int32", "int64"), dense_axes=True,
                       ragged=Ragged(slices_copy=True)),
    },
    lacks=(
        *compact("seen in 2.21"),
        *PLAIN,
        *NO_LABELS,
        *NO_SUBBYTE,
        Fact("WRITABLE", "seen in 2.21", "has immutable tensors"),
    ),
    alignment=Fact(64, "seen in 2.21", "takes what is not aligned, and ends the process later"),
    dtypes=(Fact(("bool", *INTEGERS, *FLOATS, *COMPLEX, "bfloat16"), "seen in 2.21"),),
    copier=Fact(copied, "seen in 2.21", "does not tell which streams it uses, and frees memory once the last work on "
                "it is queued"),
    gpus=Fact(lambda tensorflow: len(tensorflow.config.list_logical_devices("GPU")), "seen in 2.21",
              "lets memory of a device that it does not see go twice"),
)
