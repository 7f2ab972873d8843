"""Any namespace with ``from_dlpack``, and targets that users register."""

import sys

from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport READONLY_SHARE
from dlbridge._core.targets.consumer cimport call_consumer
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport new_tensor

UNKNOWN = "*"                   # the rows for a library that nobody has looked at


cdef Target new_target(object namespace):
    cdef Target target = Target.__new__(Target)
    target.name = str(getattr(namespace, "__name__", type(namespace).__qualname__)).partition(".")[0]
    # Whatever it calls itself, only the imported module is the library that the table speaks of.
    target.quirks = target.name if sys.modules.get(target.name) is namespace else UNKNOWN
    target.namespace = namespace
    target.function = namespace.from_dlpack
    target.deliver = deliver
    target.array_types = ()
    return target


cdef Target new_registered(str name, object function, object settings):
    """settings(target) is called once the target has every quirk of an unknown library, and may lift some."""
    cdef Target target = Target.__new__(Target)
    target.name = name
    target.quirks = UNKNOWN
    target.function = function
    target.deliver = deliver
    target.array_types = ()
    target._load = settings
    return target


cdef object deliver(Managed* managed, Target target):
    # The plan has settled what read-only memory may do, so an importer that asks for a legacy capsule may share.
    return call_consumer(target.function, target, new_tensor(managed, READONLY_SHARE))
