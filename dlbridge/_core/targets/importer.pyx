"""The library's own importer, a Python function: it takes a Tensor, a legacy capsule or an ndarray.

Any namespace with ``from_dlpack`` is delivered to in this way, and so are targets that users register.
"""

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.devices.table cimport ANY_DEVICE_ID
from dlbridge._core.dtypes cimport row_name
from dlbridge._core.request cimport Request
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.consumer cimport call_consumer, tensor_to_share, waited_capsule
from dlbridge._core.target cimport Target


def prepare(Target target):
    target.deliver = deliver
    if target.facts.uploader is not None:
        target.upload = upload


def prepare_for_capsules(Target target):
    target.deliver = deliver_capsule


def prepare_for_ndarrays(Target target):
    target.deliver = deliver_ndarray


cdef object deliver(Managed* managed, Target target):
    return call_consumer(target.function, target, tensor_to_share(managed, target))


cdef object deliver_capsule(Managed* managed, Target target):
    return call_consumer(target.function, target, waited_capsule(managed))


cdef object deliver_ndarray(Managed* managed, Target target):
    """Call the library's importer with its module, an ndarray, and the dtype's name.

    Not every library can tell the dtype from the ndarray.
    """
    name = row_name(managed.row)
    importer, namespace = target.facts.importer, target.namespace
    array = numpy.deliver(managed, target)
    return call_consumer(lambda given: importer(namespace, given, name), target, array)


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    index = None if device.device_id == ANY_DEVICE_ID else device.device_id
    return target.facts.uploader(target.namespace, numpy.deliver(managed, target), index)
