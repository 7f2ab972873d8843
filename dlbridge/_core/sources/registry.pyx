"""The order in which sources are asked, and the sources that users add."""

import sys

from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources cimport (
    array_interface,
    array_struct,
    arrow,
    buffer,
    cuda_array_interface,
    dlpack,
    exchange,
    numpy,
)
from dlbridge._core.sources.offer cimport Offer, new_offer, top_module

from dlbridge.errors import UnsupportedError, refusal

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except -1
    void Py_LeaveRecursiveCall()

ctypedef Offer (*Offers)(object kind)

cdef enum:
    SOURCES = 8
    INSTANCE_SOURCES = 5

# The cheapest that says the most comes first.
cdef Offers[SOURCES] sources
sources[0] = numpy.offers
sources[1] = exchange.offers
sources[2] = dlpack.offers
sources[3] = cuda_array_interface.offers
sources[4] = array_struct.offers
sources[5] = array_interface.offers
sources[6] = arrow.offers
sources[7] = buffer.offers

# Protocols that one instance may have and its type not: a proxy with __getattr__, an attribute set by hand. Asked each
# time. Not of a class, which has the attributes of its instances, and not their memory.
cdef Offers[INSTANCE_SOURCES] instance_sources
instance_sources[0] = dlpack.offers_instance
instance_sources[1] = cuda_array_interface.offers_instance
instance_sources[2] = array_struct.offers_instance
instance_sources[3] = array_interface.offers_instance
instance_sources[4] = arrow.offers_instance

# Types that one protocol serves better than the order above has it, by the first part of the module and the name.
PREFERRED = {
    # Its __dlpack__ refuses nulls and bools as well, but has no way out to tell.
    ("pyarrow", "*"): "arrow",
    # On the CPU a tenth of the cost of __dlpack__, and it flags read-only memory; declines elsewhere, and for bfloat16.
    ("jaxlib", "ArrayImpl"): "buffer",
    # It names the stream that the array was written on, where __dlpack__ is told the consumer's and waits by itself: so
    # the way back can be ordered too. Declines for types that it has no word for.
    ("cupy", "ndarray"): "cuda_array_interface",
}

# Of libraries whose arrays have no protocol: the function that gives a capsule of one, by the same.
FUNCTIONS = {("mindspore", "Tensor"): "mindspore.utils.to_dlpack"}

# What to do with things that are no arrays, by the first part of the module and the name; bases are looked up too.
WAYS_OUT = {
    ("builtins", "list"): "pass numpy.asarray(x)",
    ("builtins", "tuple"): "pass numpy.asarray(x)",
    ("builtins", "range"): "pass numpy.asarray(x)",
    ("builtins", "int"): "pass numpy.asarray(x)",
    ("builtins", "float"): "pass numpy.asarray(x)",
    ("builtins", "complex"): "pass numpy.asarray(x)",
    ("builtins", "str"): "pass x.encode()",
    ("builtins", "dict"): "pass its values one by one",
    ("builtins", "NoneType"): "there is nothing to convert: is a return statement missing?",
    ("builtins", "type"): "pass an instance, not the class",
    ("scipy", "*"): "pass x.toarray(), or its parts x.data, x.indices, x.indptr",
    ("pandas", "*"): "pass x.to_numpy()",
    ("polars", "*"): "pass x.to_numpy()",
    # What is not in memory, or not yet, is not brought there unasked.
    ("h5py", "*"): "pass x[...]",
    ("zarr", "*"): "pass x[...]",
    ("dask", "*"): "pass x.compute()",
    ("xarray", "*"): "pass x.data",
    ("cv2", "UMat"): "pass x.get()",
    ("warp", "indexedarray"): "pass x.contiguous()",
    ("tensorflow", "RaggedTensor"): "pass x.to_tensor()",
    ("tensorflow", "SparseTensor"): "pass tf.sparse.to_dense(x)",
    ("tensorflow", "*"): "pass tf.convert_to_tensor(x), where x has a value yet",
}

registered = []         # of (type or predicate, Offer), the newest first


cdef tuple find_offers(object kind):
    """Who may serve a type, in the order to ask."""
    module = top_module(kind)
    preferred = PREFERRED.get((module, kind.__name__)) or PREFERRED.get((module, "*"))
    offers = []
    for index in range(SOURCES):
        offer = sources[index](kind)
        if offer is not None:
            offers.insert(0 if offer.protocol == preferred else len(offers), offer)
            if offer.protocol == "numpy":
                break           # says all there is to say; a mask must not slip past by another protocol
    for offer in offers[:len(offers) - 1]:
        (<Offer> offer).optional = True
    return tuple([offer for accepts, offer in list(registered) if accepts(kind)] + (offers or by_function(kind)))


cdef list by_function(object kind):
    """The offer of a library that has one of FUNCTIONS."""
    for base in kind.__mro__:
        module, _, name = FUNCTIONS.get((top_module(base), base.__name__), "").rpartition(".")
        function = getattr(sys.modules.get(module), name, None)     # a type may say anything of its module
        if function is not None:
            offer = new_offer("registered", acquire_registered)
            offer.function = function
            return [offer]
    return []


cdef bint has_instance_offer(object obj) except -1:
    """Whether an object has a protocol that its type has not."""
    cdef Py_ssize_t index
    if not isinstance(obj, type):
        for index in range(INSTANCE_SOURCES):
            if instance_sources[index](obj) is not None:
                return True
    return False


cdef Managed* acquire_by_others(tuple offers, object src, const Request* request) except NULL:
    cdef Managed* managed
    cdef Offer offer
    cdef Py_ssize_t index
    for index in range(1, PyTuple_GET_SIZE(offers)):
        offer = <Offer> PyTuple_GET_ITEM(offers, index)
        managed = offer.acquire(src, offer, request)
        if managed != NULL:
            return managed
    for index in range(INSTANCE_SOURCES if not isinstance(src, type) else 0):
        offer = instance_sources[index](src)
        if offer is not None:
            managed = offer.acquire(src, offer, request)
            if managed != NULL:
                return managed
    if _load_plugins(type(src)):
        return acquire_by(find_offers(type(src)), src, request)
    raise _unsupported(type(src))


def _load_plugins(kind):
    """Whether a package has said that it knows the types of this module, and is heard now."""
    from dlbridge._core.plugins import SOURCES as group
    from dlbridge._core.plugins import load       # reads the metadata of all packages

    return any([load(group, name) for name in {top_module(base): None for base in kind.__mro__}])


def _unsupported(kind):
    way_out = "pass something with __dlpack__, __array_interface__, __cuda_array_interface__ or the buffer protocol"
    for base in kind.__mro__:
        module, name = top_module(base), base.__name__
        found = WAYS_OUT.get((module, name)) or WAYS_OUT.get((module, "*"))
        if found is not None:
            way_out = found
            break
    module = getattr(kind, "__module__", "builtins")
    shown = kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    return refusal(UnsupportedError, "source", "type", shown, "offers no array protocol", way_out)


# ---- registered sources --------------------------------------------------------------------------------------------

def add_source(accepts, function):
    """Put a source before all others: ``accepts(type)`` says whom it serves, ``function(obj)`` gives a producer."""
    offer = new_offer("registered", acquire_registered)
    offer.function = function
    registered.insert(0, (accepts, offer))


cdef Managed* acquire_registered(object obj, Offer offer, const Request* request) except? NULL:
    made = offer.function(obj)
    if made is obj:
        raise refusal(UnsupportedError, "source", "acquire", f"of {type(obj).__qualname__}", "returned its argument",
                      "return an object with __dlpack__ or a DLPack capsule")
    # What it made may be registered too, and so on for ever.
    Py_EnterRecursiveCall(" while asking registered sources")
    try:
        return acquire_by(find_offers(type(made)), made, request)
    except BaseException:
        made = None                 # while the error is held: a capsule's destructor would lose a pending one
        raise
    finally:
        Py_LeaveRecursiveCall()
