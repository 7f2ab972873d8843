"""The library's own importer, a Python function: it takes a Tensor, a legacy capsule or an ndarray.

Any namespace with ``from_dlpack`` is such a library, and so are targets that users register.
"""

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.devices.table cimport ANY_DEVICE_ID
from dlbridge._core.dtypes cimport row_name
from dlbridge._core.request cimport READONLY_SHARE
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.consumer cimport call_consumer, waited_capsule
from dlbridge._core.targets.target cimport Target, new_target
from dlbridge.tensor cimport new_tensor


cdef int prepare(Target target) except -1:
    target.deliver = deliver
    if target.facts.uploader is not None:
        target.upload = upload
    return 0


cdef int prepare_for_capsules(Target target) except -1:
    target.deliver = deliver_capsule
    return 0


cdef int prepare_for_ndarrays(Target target) except -1:
    target.deliver = deliver_ndarray
    return 0


cdef Target new_namespace(object namespace):
    """A namespace that has no library file is given only what every library can hold."""
    from dlbridge.libraries.library import Library
    from dlbridge.libraries.profiles import UNKNOWN

    name = str(getattr(namespace, "__name__", type(namespace).__qualname__)).partition(".")[0]
    target = new_target(Library(name=name, lacks=UNKNOWN))
    target.namespace = namespace
    target.function = namespace.from_dlpack
    target.deliver = deliver
    return target


cdef Target new_registered(str name, object function, object settings):
    """settings(target) is called once the target lacks all that an unknown library does, and may lift some of it."""
    from dlbridge.libraries.library import Library
    from dlbridge.libraries.profiles import UNKNOWN

    target = new_target(Library(name=name, lacks=UNKNOWN))
    target.function = function
    target.deliver = deliver
    target.settings = settings
    return target


cdef object deliver(Managed* managed, Target target):
    # The plan has settled what read-only memory may do, so an importer that asks for a legacy capsule may share.
    return call_consumer(target.function, target, new_tensor(managed, READONLY_SHARE))


cdef object deliver_capsule(Managed* managed, Target target):
    return call_consumer(target.function, target, waited_capsule(managed))


cdef object deliver_ndarray(Managed* managed, Target target):
    """By a function of the module, an ndarray and the name of the type, which the ndarray may not have."""
    name = row_name(managed.row)
    importer, namespace = target.facts.importer, target.namespace
    array = numpy.deliver(managed, target)
    return call_consumer(lambda given: importer(namespace, given, name), target, array)


cdef object upload(Managed* managed, Target target, const DLDevice* device):
    index = None if device.device_id == ANY_DEVICE_ID else device.device_id
    return target.facts.uploader(target.namespace, numpy.deliver(managed, target), index)
