"""``__dlpack__``, and DLPack capsules themselves.

A producer is called once. The keywords that it takes are learnt once for each type, so that a TypeError of its own code
reaches the user and is not mistaken for an old signature (torch calls such a producer four times).
"""

import inspect
import re

cimport cython

from cpython.buffer cimport PyBUF_FULL_RO, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer, Py_buffer
from cpython.object cimport PyObject
from cpython.pycapsule cimport (
    PyCapsule_CheckExact, PyCapsule_GetName, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName,
)
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION,
    LEGACY_NAME, STREAM_LEGACY_DEFAULT, STREAM_UNORDERED, USED_LEGACY_NAME, USED_VERSIONED_NAME, VERSIONED_NAME,
    DLDevice, DLManagedTensor, DLManagedTensorVersioned, kDLCPU, kDLROCM,
)
from dlbridge._core.arrow_abi cimport STREAM_NAME
from dlbridge._core.atomic cimport load_bits, load_size, store_bits, store_size
from dlbridge._core.block cimport (
    OWNS_LEGACY, OWNS_VERSIONED, PROTOCOL_DLPACK, PROTOCOL_DLPACK_LEGACY, Managed, managed_data, managed_from_tensor,
    managed_keep, managed_own, managed_own_object, managed_release,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, is_host, same_device, type_number
from dlbridge._core.late cimport c_function
from dlbridge._core.pending cimport take_error
from dlbridge._core.request cimport COPY_NEVER, Request, consumer_stream, stream_and_keeper
from dlbridge._core.sources.offer cimport (
    Acquire, Offer, element_row, library, new_offer, refusal_by_facts, replicas_of, top_module, with_row,
)
from dlbridge._core.system cimport file_of

from dlbridge.errors import REPORT, ConversionError, CopyRequiredError, UnsupportedError, refusal, shown


cdef enum ProducerKeyword:
    TAKES_STREAM = 1
    TAKES_MAX_VERSION = 2
    TAKES_DL_DEVICE = 4
    TAKES_COPY = 8
    UNKNOWN = 16                # the signature says nothing: what the standard has is tried
    REFUSES = 5                 # a keyword's bit, shifted by so many: it was tried, and is not taken

cdef dict KEYWORDS = {
    "stream": TAKES_STREAM,
    "max_version": TAKES_MAX_VERSION,
    "dl_device": TAKES_DL_DEVICE,
    "copy": TAKES_COPY,
}
cdef tuple MAX_VERSION = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)
CPU = (kDLCPU, 0)
cdef tuple OF_VERSION = ("max_version",)
# Stands for the keywords for memory of the host that may be copied: the version, if the producer takes it.
cdef dict VERSION_ALONE = {}
cdef dict UNORDERED = {"stream": STREAM_UNORDERED, "max_version": MAX_VERSION}


cdef extern from "Python.h":
    PyObject* PyObject_CallOneArg(object function, object argument)
    object PyObject_Vectorcall(object function, PyObject** arguments, size_t count, object names)
    void Py_DECREF(PyObject* obj)


cdef Offer offers(object holder, object facts, str attribute):
    if attribute is None:           # of the type of capsules alone
        return new_offer("dlpack", acquire_capsule, facts)
    method = getattr(holder, "__dlpack__", None)
    if method is None:
        return None
    offer = offer_method(method, facts)
    if isinstance(holder, type):
        note_access(offer, holder)
        if facts.unordered_export and has_methods_of_library(holder):
            offer.acquire, offer.unordered = acquire_unordered, True
    return offer


cdef object class_with(str name, object kind):
    """The class that defines an attribute of a type, or None."""
    for base in kind.__mro__:
        if name in vars(base):
            return base
    return None


cdef bint has_methods_of_library(object kind) except -1:
    """Whether both protocols of a device's array are those of its library, and not of a class that somebody derived."""
    definer = class_with("__dlpack__", kind)
    return definer is not None and definer is class_with("__cuda_array_interface__", kind) and (
        library().library_of(top_module(definer)) is not None)


cdef int note_access(Offer offer, object kind) except -1:
    """Note what the library of the class that defines ``__dlpack__`` says of its memory; nothing if it is not known."""
    definer = class_with("__dlpack__", kind)
    found = None if definer is None else library().library_of(top_module(definer))
    # dlbridge.testing has producers of any kind.
    if found is not None and found.delivery and top_module(definer) != "dlbridge":
        offer.legacy_read_only = library().makes_immutable(found)
        offer.legacy_writable = not offer.legacy_read_only


cdef Offer offer_method(object method, object facts):
    offer = new_offer("dlpack", acquire, facts)
    offer.keywords = _learn_keywords(method)
    # A capsule does not say whether somebody can write to the memory.
    offer.keeps_object = offer.forgets or facts.constant is not None
    offer.stream_object = facts.stream_object
    return offer


def _learn_keywords(method):
    text = getattr(method, "__text_signature__", None)
    if isinstance(text, str):
        # A builtin has its signature as text. inspect would parse that into a tree, in which threads of Python 3.11
        # disturb each other (cpython#106905: SystemError, AST constructor recursion depth mismatch).
        return _keywords_of_text(text)
    # Its exception is not caught by `except`. Without memory for a frame, CPython 3.11 loses the exception, and Cython
    # would look into the missing one in an `except` with two types.
    cdef PyObject* signature = PyObject_CallOneArg(inspect.signature, method)
    if signature == NULL:
        error = take_error()
        if isinstance(error, (TypeError, ValueError)):
            # Cython, pybind11 and nanobind write the signature into the first line of the documentation.
            line = str(getattr(method, "__doc__", "")).partition("\n")[0]
            return _keywords_of_text(line) if "__dlpack__(" in line else UNKNOWN
        raise error or MemoryError()
    found = <object> signature
    Py_DECREF(signature)            # found has a reference of its own
    parameters = found.parameters
    return _keywords_of(parameters, any([each.kind is each.VAR_KEYWORD for each in parameters.values()]))


def _keywords_of_text(text):
    return _keywords_of(re.findall(r"\w+", text), "**" in text)


def _keywords_of(names, takes_any):
    # Keywords that are named beside **keywords are known all the same, so that the stream is not lost.
    known = UNKNOWN if takes_any else 0
    for name in names:
        known |= KEYWORDS.get(name, 0)
    return known


cdef Managed* acquire_unordered(object obj, Offer offer, const Request* request) except? NULL:
    """Acquire an array of a device that its library does not order, and note the stream that it is ready on."""
    cdef Managed* managed
    cdef int64_t stream
    if not counts_in_elements(obj.strides, obj.itemsize):
        return NULL             # the capsule would have wrong strides; the interface, asked next, has bytes
    try:
        managed = ask(obj, obj.__dlpack__, offer, 0, UNORDERED)
    except BufferError:
        if hasattr(obj, "__cuda_array_interface__"):
            return NULL         # it is asked next, and can say what this export cannot
        raise
    if not request.peek:
        try:
            own = offer.stream_object(obj, managed.abi.dl_tensor.device.device_id)
            keeper = stream_and_keeper(own, &stream)
            device_operations().set_producer(managed, stream, keeper, False)
        except BaseException:
            managed_release(managed)
            raise
    return managed


cdef bint counts_in_elements(tuple strides_bytes, int64_t item_bytes) except -1:
    """Whether every stride is a multiple of the item size, and none is negative."""
    cdef int64_t step
    for each in strides_bytes:
        step = each
        if step < 0 or item_bytes <= 0 or step % item_bytes:
            return False
    return True


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    try:
        return acquire_exported(obj, offer, request)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        if offer.facts.declines and offer.optional:
            return NULL
        replica = _replica_of(obj, offer, request)
        if replica is not None:
            return acquire_exported(replica, offer, request)
        refused = refusal_by_facts(obj, offer.facts, "dlpack")
        if refused is None:
            raise
        raise refused from error


cdef object _replica_of(object obj, Offer offer, const Request* request):
    """The whole array on the device that is asked for, or on the first of those that have it; None of all others."""
    cdef object first = None
    cdef DLDevice device
    for replica in replicas_of(obj, offer):
        first = replica if first is None else first
        device = _device_of(replica)
        if request.has_device and same_device(&request.device, &device):
            return replica
    return first


cdef Managed* acquire_exported(object obj, Offer offer, const Request* request) except? NULL:
    cdef Managed* managed
    cdef DLDevice device = DLDevice(kDLCPU, 0)
    cdef object keeper = None, told = None
    cdef unsigned int known = load_bits(&offer.keywords)
    cdef int row
    try:
        method = obj.__dlpack__
    except AttributeError:
        return NULL
    if known & (UNKNOWN | TAKES_STREAM | TAKES_DL_DEVICE):
        device = _device_of(obj)            # it decides which keywords are passed
    keywords = VERSION_ALONE
    if known & UNKNOWN or request.copy == COPY_NEVER or not is_host(device.device_type):
        keywords = _keywords(device, known, request)
    if not is_host(device.device_type) and "dl_device" not in keywords and _may_take_stream(device, known):
        keeper = _tell_stream(keywords, &device, request)
        told = keywords.get("stream")
        if told == STREAM_UNORDERED and offer.facts.none_is_unordered:
            keywords["stream"] = None
    row = element_row(obj, offer)
    managed = with_row(ask(obj, method, offer, known, keywords), row, offer)
    if "stream" not in keywords:
        told = keeper = None        # it was told none, or refused it
    if has_streams(managed.abi.dl_tensor.device.device_type) and not request.peek:
        note_streams(managed, obj, offer, told, keeper)
    if request.copy == COPY_NEVER and managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED:
        managed_release(managed)
        raise refusal(CopyRequiredError, "dlpack", "copy", False, f"but {type(obj).__qualname__} made a copy",
                      "pass copy=None")
    return managed


cdef Managed* ask(object obj, object method, Offer offer, unsigned int known, dict keywords) except NULL:
    """Call a producer's method, and make a block of its capsule, with what the library's facts know beyond it."""
    cdef Managed* managed
    capsule = _call(method, offer, known, keywords)
    if not PyCapsule_CheckExact(capsule):
        raise refusal(ConversionError, "dlpack", "__dlpack__", f"of {type(obj).__qualname__}",
                      f"returned a {type(capsule).__qualname__}, not a capsule", REPORT)
    try:
        managed = take_capsule(capsule, False)
    except BaseException:
        # The capsule is released while the error is caught. Its destructor may be Python code, which would lose a
        # pending error.
        capsule = None
        raise
    if offer.keeps_object:
        managed_keep(managed, obj)
    if offer.unflagged:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    elif managed.protocol == PROTOCOL_DLPACK_LEGACY and not offer.legacy_writable:
        capsule = None          # its destructor would lose an error of set_access()
        set_access(managed, obj, offer)
    return managed


cdef int set_access(Managed* managed, object obj, Offer offer) except -1:
    """Note whether the memory of a legacy capsule is read-only. On failure the block is released."""
    try:
        if offer.legacy_read_only or is_read_only_elsewhere(obj, managed):
            managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    except BaseException:
        managed_release(managed)
        raise


cdef dict _keywords(DLDevice device, unsigned int known, const Request* request):
    """The keywords for the producer: dlbridge's version, whether it may copy, and where the memory shall be."""
    keywords = {}
    if known & TAKES_MAX_VERSION or known & UNKNOWN and not known & TAKES_MAX_VERSION << REFUSES:
        keywords["max_version"] = MAX_VERSION
    if request.copy == COPY_NEVER and known & TAKES_COPY:
        keywords["copy"] = False
    # dlbridge fetches memory of CUDA and ROCm itself, because some producers take dl_device and then refuse its value
    # (cuda.core).
    if not is_host(device.device_type) and not has_streams(device.device_type) and (
            request.has_device and is_host(request.device.device_type) and known & TAKES_DL_DEVICE):
        keywords["dl_device"] = CPU         # the producer then synchronises, and takes no stream
    return keywords


cdef bint _may_take_stream(DLDevice device, unsigned int known) noexcept:
    """Whether the producer is to be told a stream. One whose signature says nothing is told, as the standard has it."""
    return known & TAKES_STREAM or (
        known & UNKNOWN and not known & TAKES_STREAM << REFUSES and has_streams(device.device_type))


cdef object _tell_stream(dict keywords, const DLDevice* device, const Request* request):
    """Add the consumer's stream, on which the producer makes the memory ready, to the keywords.

    Returns the object that keeps its handle alive, or None. It is not called for memory of the CPU, for which the array
    API standard has only None.
    """
    cdef int64_t stream = STREAM_UNORDERED
    cdef object keeper = None
    if not (request.has_stream or has_streams(device.device_type)):
        return None             # other devices' streams may have no numbers: dpnp takes only queues of SYCL
    if not request.peek:
        keeper = consumer_stream(request, device, &stream)
    # The array API standard numbers the default stream 1 for CUDA, and 0 for ROCm.
    keywords["stream"] = 0 if device.device_type == kDLROCM and stream == STREAM_LEGACY_DEFAULT else stream
    return keeper


cdef int note_streams(Managed* managed, object obj, Offer offer, object told, object keeper) except -1:
    """Note that the producer made the memory ready on the stream that it was told, or on the default one; and the
    producer's own stream, which it does not say in its capsule. On failure the block is released.
    """
    cdef int64_t stream
    try:
        device_operations().set_named(managed, told or STREAM_LEGACY_DEFAULT, keeper)
        if told is not None and offer.stream_object is not None:
            own = offer.stream_object(obj, managed.abi.dl_tensor.device.device_id)
            if own is not None:
                keeper = stream_and_keeper(own, &stream)
                device_operations().set_own(managed, stream, keeper)
    except BaseException:
        managed_release(managed)
        raise


cdef DLDevice _device_of(object obj):
    cdef DLDevice device
    device.device_type = kDLCPU
    device.device_id = 0
    try:
        method = obj.__dlpack_device__
    except AttributeError:
        return device           # some old producers have only __dlpack__; all of them are on the CPU
    pair = method()
    try:
        device_type, index = pair
        device.device_type = type_number(device_type)
        device.device_id = 0 if index is None else index    # paddle returns (1, None)
    except Exception as error:
        raise refusal(ConversionError, "dlpack", "__dlpack_device__", shown(pair), "is not a pair (type, id)",
                      REPORT) from error
    return device


cdef object _call(object method, Offer offer, unsigned int known, dict keywords):
    """Call the producer. If its signature says nothing, refused keywords are left out, and what it takes is noted."""
    cdef PyObject* version = <PyObject*> MAX_VERSION
    if keywords is VERSION_ALONE:         # without a dictionary for the call
        return PyObject_Vectorcall(method, &version, 0, OF_VERSION) if known & TAKES_MAX_VERSION else method()
    if not known & UNKNOWN:
        return method(**keywords)
    while True:
        try:
            capsule = method(**keywords)
            break
        except TypeError as error:
            refused = _refused_keyword(keywords, known, str(error))
            if refused is None:
                raise
        known |= KEYWORDS[refused] << REFUSES
        del keywords[refused]
    for name in keywords:
        known |= KEYWORDS[name]
    store_bits(&offer.keywords, known)
    return capsule


cdef object _refused_keyword(dict keywords, unsigned int known, str text):
    """The keyword that a TypeError is about, if the producer is not known to take it; None for an error of its own."""
    for name in keywords:
        if not known & KEYWORDS[name] and (name in text or "no keyword arguments" in text):
            return name
    return None


# ---- capsules ------------------------------------------------------------------------------------------------------

cdef void* acquire_stream       # of arrow.pyx, which the first stream loads


cdef Managed* acquire_capsule(object obj, Offer offer, const Request* request) except? NULL:
    if PyCapsule_IsValid(obj, STREAM_NAME):
        return (<Acquire> c_function(&acquire_stream, "dlbridge._core.sources.arrow", "acquire_capsule"))(
            obj, offer, request)
    return take_capsule(obj, request.peek)


cdef Managed* take_capsule(object capsule, bint peek) except NULL:
    """Consume a capsule, which another thread may be consuming too."""
    with cython.critical_section(capsule):
        return take_named(capsule, peek)


cdef Managed* take_named(object capsule, bint peek) except NULL:
    """Make a block of a capsule. The capsule is renamed only after the validation, so that a failure loses nothing."""
    cdef DLManagedTensorVersioned* versioned
    cdef DLManagedTensor* legacy
    cdef Managed* managed
    if PyCapsule_IsValid(capsule, VERSIONED_NAME):
        versioned = <DLManagedTensorVersioned*> PyCapsule_GetPointer(capsule, VERSIONED_NAME)
        if versioned.version.major != DLPACK_MAJOR_VERSION:
            version = f"{versioned.version.major}.{versioned.version.minor}"
            raise refusal(ConversionError, "dlpack", "version", version,
                          "is of a major version that dlbridge does not read",
                          f"ask the producer for max_version={MAX_VERSION}")
        managed = managed_from_tensor(PROTOCOL_DLPACK, &versioned.dl_tensor, versioned.flags)
        if peek:
            managed_own_object(managed, capsule)
        else:
            PyCapsule_SetName(capsule, USED_VERSIONED_NAME)
            managed_own(managed, OWNS_VERSIONED, versioned)
        return managed
    if PyCapsule_IsValid(capsule, LEGACY_NAME):
        legacy = <DLManagedTensor*> PyCapsule_GetPointer(capsule, LEGACY_NAME)
        immutable = frees_immutable(<const void*> legacy.deleter)
        # The question may run Python code, and then another thread may have consumed the capsule.
        if not PyCapsule_IsValid(capsule, LEGACY_NAME):
            raise _refused_capsule(capsule)
        managed = managed_from_tensor(PROTOCOL_DLPACK_LEGACY, &legacy.dl_tensor, 0)
        if immutable:
            managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
        if peek:
            managed_own_object(managed, capsule)
        else:
            PyCapsule_SetName(capsule, USED_LEGACY_NAME)
            managed_own(managed, OWNS_LEGACY, legacy)
        return managed
    raise _refused_capsule(capsule)


def _refused_capsule(capsule):
    cdef const char* name = PyCapsule_GetName(capsule)
    if name == NULL:
        text = "NULL"
    else:
        text = name.decode("utf-8", "replace")
    if text == USED_LEGACY_NAME.decode() or text == USED_VERSIONED_NAME.decode():
        return refusal(ConversionError, "dlpack", "capsule", repr(text), "was consumed already",
                       "a capsule is good for one consumer: ask the producer for another")
    hint = 'the names are "dltensor" and "dltensor_versioned"'
    if text.startswith("arrow_"):
        hint = "call dlbridge.convert(x, to) with the pair that __arrow_c_array__() gives"
    return refusal(UnsupportedError, "dlpack", "capsule", repr(text), "is not a DLPack capsule", hint)


# ---- legacy memory that is read-only ---------------------------------------------------------------------------------

# DLPack before 1.0 has no flags, and libraries with immutable arrays use it all the same (jax#40789). A class that
# hands on the ``__dlpack__`` of such an array does not show whose memory it is. The capsule's deleter does: it is code
# of the library that made the capsule.

cdef dict known_deleters = {}       # said_by() by the deleter's address, for deleters that lie in a file


# Atomic: the deleter that was found last to free memory that is not immutable. It saves a look into the dictionary.
cdef size_t last_of_mutable


cdef bint frees_immutable(const void* deleter) except -1:
    if deleter != NULL and load_size(&last_of_mutable) == <size_t> deleter:
        return False
    immutable = said_by(deleter)[0]
    if not immutable and <size_t> deleter in known_deleters:
        store_size(&last_of_mutable, <size_t> deleter)
    return immutable


cdef bint frees_constant(const void* deleter) except -1:
    return said_by(deleter)[1]


cdef tuple said_by(const void* deleter):
    """Whether a deleter is code of a library whose arrays are immutable; and of one that exports nothing else."""
    found = known_deleters.get(<size_t> deleter)
    if found is not None:
        return found
    # A function that was made while the program runs, by ctypes for example, is in no file.
    file = file_of(deleter)
    if not file:
        return False, False
    owner = library().library_with(file)
    immutable = owner is not None and library().makes_immutable(owner)
    found = immutable, immutable and owner.constant_exports is not None
    known_deleters[<size_t> deleter] = found
    return found


cdef bint is_read_only_elsewhere(object obj, const Managed* managed) except -1:
    cdef size_t address = <size_t> managed_data(managed)
    for name in ("__array_interface__", "__cuda_array_interface__"):
        try:
            interface = getattr(obj, name, None)
            data = None if interface is None else interface["data"]
            if data is not None and data[0] == address and data[1]:
                return True
        except (MemoryError, RecursionError):
            raise
        except Exception:
            pass                # the other protocol serves another kind of memory, or none
    return is_read_only_buffer(obj, address)


cdef bint is_read_only_buffer(object obj, size_t address) except -1:
    cdef Py_buffer view
    if not PyObject_CheckBuffer(obj):
        return False
    try:
        PyObject_GetBuffer(obj, &view, PyBUF_FULL_RO)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return False
    read_only = view.readonly and <size_t> view.buf == address
    PyBuffer_Release(&view)
    return read_only
