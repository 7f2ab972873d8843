"""Libraries that take arrays through a function of their own: a row for each."""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from dlbridge._core.abi cimport DLDevice, kDLOneAPI
from dlbridge._core.devices.table cimport ANY_DEVICE_ID
from dlbridge._core.managed cimport Managed
from dlbridge._core.targets cimport namespace, numpy
from dlbridge._core.targets.consumer cimport call_consumer, waited_capsule
from dlbridge._core.targets.target cimport Target


class Library(NamedTuple):
    """How a library is called, and what it makes."""

    name: str               # as in convert(x, name)
    module: str             # what is imported
    install: str            # the pip line's last word
    importer: str           # its function, from the module on
    array_type: str
    capsules: bool = False  # it takes legacy capsules, and no objects
    start: Callable[[Any], None] | None = None      # what has to be done to the module before
    gpus: Callable[[Any], int] | None = None        # how many it sees, where memory of another ends the process
    upload_type: int = 0                            # the DLPack type of the devices that it copies host memory to


def _start_warp(warp):
    """Its importer wants this done, and does not do it (seen in 1.19); the greeting is nothing that was asked for."""
    field, silent = ("log_level", 30) if hasattr(warp.config, "log_level") else ("quiet", True)     # of older ones
    before = getattr(warp.config, field)
    setattr(warp.config, field, silent)
    try:
        warp.init()
    finally:
        setattr(warp.config, field, before)


def _count_gpus(tensorflow):
    """Memory of a device that it does not know is let go twice (seen in 2.21)."""
    return len(tensorflow.config.list_logical_devices("GPU"))


LIBRARIES = (
    Library("array_api_strict", "array_api_strict", "array-api-strict", "from_dlpack", "_array_object.Array"),
    Library("dpnp", "dpnp", "dpnp", "from_dlpack", "ndarray", upload_type=kDLOneAPI),
    Library("mindspore", "mindspore", "mindspore", "utils.from_dlpack", "Tensor", capsules=True),
    Library("mlx", "mlx.core", "mlx", "from_dlpack", "array"),
    Library("tensorflow", "tensorflow", "tensorflow", "experimental.dlpack.from_dlpack", "Tensor", capsules=True,
            gpus=_count_gpus),
    Library("tvm_ffi", "tvm_ffi", "apache-tvm-ffi", "from_dlpack", "Tensor"),
    Library("warp", "warp", "warp-lang", "from_dlpack", "array", start=_start_warp),
)


cdef list new_targets():
    targets = []
    for row in LIBRARIES:
        targets.append(new_target(row))
    return targets


cdef Target new_target(object row):
    cdef Target target = Target.__new__(Target)
    target.name, target.library, target.install = row.name, row.module, row.install
    target.deliver = deliver_capsule if row.capsules else namespace.deliver
    if row.upload_type:
        target.upload = upload
    target._load = functools.partial(_load, row)
    return target


def _load(row, Target target):
    if row.start is not None:
        row.start(target.namespace)
    target.upload_type = row.upload_type
    if row.gpus is not None:
        target.gpus = row.gpus(target.namespace)
    target.function = operator.attrgetter(row.importer)(target.namespace)
    target.array_types = (operator.attrgetter(row.array_type)(target.namespace),)


cdef object upload(Managed* managed, Target target, const DLDevice* device):
    """By the array API's own function; devices are numbered as dpctl lists them."""
    array = numpy.deliver(managed, target)
    if device.device_id == ANY_DEVICE_ID:
        return target.namespace.asarray(array)
    import dpctl
    return target.namespace.asarray(array, device=dpctl.get_devices()[device.device_id])


cdef object deliver_capsule(Managed* managed, Target target):
    return call_consumer(target.function, target, waited_capsule(managed))
