"""Fake producers: real DLPack structs. Each field can be set, right or wrong, and calls of the deleters are counted.

>>> from dlbridge.testing.producers import Producer
>>> import dlbridge
>>> producer = Producer()
>>> array = dlbridge.convert(producer, "numpy")
>>> producer.calls, producer.deleted
([{'max_version': (1, 3)}], 0)
>>> del array
>>> producer.deleted
1
>>> dlbridge.convert(Producer(ndim=-1), "numpy")
Traceback (most recent call last):
dlbridge.errors.ConversionError: dlpack: ndim -1: is outside 0..64 (reshape it)

Only ctypes is used, so nothing is compiled. Deleters and capsule destructors are therefore Python functions. If an
exception is pending when they are called, they lose it unless the caller saved it. So a producer holds on to the
capsules that ``__dlpack__`` returned until :meth:`Producer.forget`, and the error of a consumer that refuses a capsule
is not lost.
"""

import ctypes
import itertools
import weakref
from typing import Any

import numpy as np

import dlbridge.testing.abi as abi

DTYPE_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
FIELDS = (
    "data", "device_type", "device_id", "ndim", "code", "bits", "lanes", "shape", "strides", "byte_offset", "flags",
    "version", "name", "deleter",
)


class _NotGiven:
    def __repr__(self) -> str:
        return "NOT_GIVEN"


NOT_GIVEN = _NotGiven()


# ---- capsules --------------------------------------------------------------------------------------------------------

def _function(name: str, result: Any, *arguments: Any) -> Any:
    # This makes a new prototype, since setting restype on ctypes.pythonapi would change it for the whole process.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
new_capsule = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
capsule_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
capsule_name = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
rename_capsule = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_set_context = _function("PyCapsule_SetContext", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_hold_forever = _function("Py_IncRef", None, ctypes.py_object)
# A dying capsule is passed by its address. As an object its count would rise from 0 again, and it would die twice.
_dying_context = _function("PyCapsule_GetContext", ctypes.c_void_p, ctypes.c_void_p)
_dying_name = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.c_void_p)


# ---- exports ---------------------------------------------------------------------------------------------------------

class _Export:
    """A struct that was given out, which keeps its extents, with the array that it points to."""

    def __init__(self, owner: Any, struct: ctypes.Structure, name: bytes | None, kept: np.ndarray) -> None:
        self.owner = owner
        self.struct = struct
        self.name = name
        self.kept = kept
        self.key = next(_keys)
        _exports[self.key] = self
        _alive[self.key] = self

    def let_go(self) -> None:
        self.owner.deleted += 1
        _alive.pop(self.key, None)


# C code holds the key of an export, as manager_ctx or as a capsule's context. An export that was not released lives on
# without its producer. An export that was released lives as long as its producer, so that a second call of the deleter
# finds it and is counted.
_keys = itertools.count(1)
_exports: weakref.WeakValueDictionary[int, _Export] = weakref.WeakValueDictionary()
_alive: dict[int, _Export] = {}


@abi.Deleter  # type: ignore[untyped-decorator]
def _delete_versioned(address: int) -> None:
    if _exports is not None:    # it is None while the interpreter shuts down
        _exports[abi.DLManagedTensorVersioned.from_address(address).manager_ctx].let_go()


@abi.Deleter  # type: ignore[untyped-decorator]
def _delete_legacy(address: int) -> None:
    if _exports is not None:
        _exports[abi.DLManagedTensor.from_address(address).manager_ctx].let_go()


@Destructor  # type: ignore[untyped-decorator]
def _drop_capsule(address: int) -> None:
    # A consumer renames the capsule that it takes, and calls the deleter itself.
    if _exports is None:
        return                  # the interpreter is shutting down
    export = _exports.get(_dying_context(address))
    if export is not None and _dying_name(address) == export.name:
        export.let_go()


# C code may call these until the process ends, when the module is gone already.
for _callback in (_delete_versioned, _delete_legacy, _drop_capsule):
    _hold_forever(_callback)


def _or_default(array: np.ndarray | None) -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3) if array is None else array


class Producer:
    """An object with ``__dlpack__`` over a struct whose fields a test can set.

    Parameters
    ----------
    array : numpy.ndarray, optional
        The array that gives the fields which are not given; six float32 in a shape of (2, 3) by default.
    versioned : bool
        Whether capsules are "dltensor_versioned" or "dltensor".
    error : BaseException, optional
        What ``__dlpack__`` raises instead of returning a capsule.
    keeps : bool
        Whether the producer holds the capsules that ``__dlpack__`` returned until `forget`.
    **fields
        Any of `FIELDS`, each put into the struct as it is: ``data`` (an address, or None for NULL), ``device_type``,
        ``device_id``, ``ndim``, ``code``, ``bits``, ``lanes``, ``shape`` and ``strides`` (integers, or None for NULL),
        ``byte_offset``, ``flags`` and ``version`` (in versioned structs only), ``name`` of the capsule, and ``deleter``
        (None for NULL; then no calls are counted).

    Attributes
    ----------
    deleted : int
        How often deleters of this producer were called, by consumers or by capsules that were not consumed.
    calls : list of dict
        The keywords of each call of ``__dlpack__``.
    array : numpy.ndarray
        The memory.
    """

    def __init__(
        self, array: np.ndarray | None = None, *, versioned: bool = True, error: BaseException | None = None,
        keeps: bool = True, **fields: Any,
    ) -> None:
        unknown = set(fields) - set(FIELDS)
        if unknown:
            raise TypeError(f"Producer: fields {sorted(unknown)}: are none of the struct's (use {', '.join(FIELDS)})")
        self.array = _or_default(array)
        self.versioned = versioned
        self.error = error
        self.keeps = keeps
        self.fields = self._describe() | fields
        self.calls: list[dict[str, Any]] = []
        self.deleted = 0
        self._exports: list[_Export] = []
        self._capsules: list[Any] = []

    def _describe(self) -> dict[str, Any]:
        array = self.array
        return {
            "data": array.ctypes.data,
            "device_type": abi.CPU,
            "device_id": 0,
            "ndim": array.ndim,
            "code": DTYPE_CODES[array.dtype.kind],
            "bits": array.dtype.itemsize * 8,
            "lanes": 1,
            "shape": array.shape,
            "strides": tuple(stride // array.dtype.itemsize for stride in array.strides),
            "byte_offset": 0,
            "flags": 0 if array.flags.writeable else abi.READ_ONLY,
            "version": (1, 3),
            "name": abi.VERSIONED_NAME if self.versioned else abi.LEGACY_NAME,
        }

    @property
    def exported(self) -> int:
        """How many structs were made, which is how many calls of a deleter are due in the end."""
        return len(self._exports)

    def struct(self) -> ctypes.Structure:
        """Make a DLManagedTensorVersioned or DLManagedTensor, whose deleter the caller calls once."""
        fields = self.fields
        made = abi.DLManagedTensorVersioned() if self.versioned else abi.DLManagedTensor()
        tensor = made.dl_tensor
        tensor.data = fields["data"]
        tensor.device = abi.DLDevice(fields["device_type"], fields["device_id"])
        tensor.ndim = fields["ndim"]
        tensor.dtype = abi.DLDataType(fields["code"], fields["bits"], fields["lanes"])
        for name in ("shape", "strides"):       # ctypes keeps the arrays that its pointers point to
            extents = fields[name]
            setattr(tensor, name, None if extents is None else (ctypes.c_int64 * max(len(extents), 1))(*extents))
        tensor.byte_offset = fields["byte_offset"]
        if self.versioned:
            made.version = abi.DLPackVersion(*fields["version"])
            made.flags = fields["flags"]
        if "deleter" not in fields:
            made.deleter = _delete_versioned if self.versioned else _delete_legacy
        export = _Export(self, made, fields["name"], self.array)
        made.manager_ctx = export.key
        self._exports.append(export)
        return made

    def capsule(self) -> Any:
        """Make a capsule over a new struct. If it is dropped without being renamed, it calls the deleter."""
        made = self.struct()
        export = self._exports[-1]
        destructor = None if "deleter" in self.fields else ctypes.cast(_drop_capsule, ctypes.c_void_p)
        capsule = new_capsule(ctypes.addressof(made), export.name, destructor)
        _set_context(capsule, export.key)
        return capsule

    def _answer(self, keywords: dict[str, Any]) -> Any:
        self.calls.append(keywords)
        if self.error is not None:
            raise self.error
        capsule = self.capsule()
        if self.keeps:
            self._capsules.append(capsule)
        return capsule

    def forget(self) -> None:
        """Drop the capsules that ``__dlpack__`` returned; those that were not consumed call their deleters."""
        self._capsules.clear()

    def __dlpack__(
        self, *, stream: Any = NOT_GIVEN, max_version: Any = NOT_GIVEN, dl_device: Any = NOT_GIVEN,
        copy: Any = NOT_GIVEN,
    ) -> Any:
        keywords = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self._answer({name: value for name, value in keywords.items() if value is not NOT_GIVEN})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.fields["device_type"], self.fields["device_id"]


class OldProducer(Producer):
    """A producer from before DLPack 1.0, with legacy capsules, and no keyword but ``stream``."""

    def __init__(self, array: np.ndarray | None = None, **settings: Any) -> None:
        super().__init__(array, **{"versioned": False, **settings})

    def __dlpack__(self, stream: Any = NOT_GIVEN) -> Any:  # type: ignore[override]
        return self._answer({} if stream is NOT_GIVEN else {"stream": stream})


class OpaqueProducer(Producer):
    """A producer whose signature tells nothing about its keywords."""

    def __dlpack__(self, *positional: Any, **keywords: Any) -> Any:
        return self._answer(keywords)


# ---- the other protocols ---------------------------------------------------------------------------------------------

def _entries(array: np.ndarray, replaced: dict[str, Any]) -> dict[str, Any]:
    entries = {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.ctypes.data, not array.flags.writeable),
        "strides": array.strides,
        "version": 3,
        **replaced,
    }
    return {name: value for name, value in entries.items() if value is not NOT_GIVEN}


class ArrayInterface:
    """An object with only ``__array_interface__``. Entries replace those of ``array``; `NOT_GIVEN` leaves one out."""

    def __init__(self, array: np.ndarray | None = None, **entries: Any) -> None:
        self.array = _or_default(array)
        self.__array_interface__ = _entries(self.array, entries)


class CudaArrayInterface:
    """An object with only ``__cuda_array_interface__``. Its address is the host's, so its memory cannot be used."""

    def __init__(self, array: np.ndarray | None = None, **entries: Any) -> None:
        self.array = _or_default(array)
        self.__cuda_array_interface__ = _entries(self.array, entries)


class ArrayStruct:
    """An object with only ``__array_struct__``. Fields replace those of ``array``'s own struct."""

    def __init__(self, array: np.ndarray | None = None, *, name: bytes | None = None, **fields: Any) -> None:
        self.array = _or_default(array)
        self.name = name
        self.deleted = 0
        self._capsules: list[Any] = []
        capsule = self.array.__array_struct__
        self.struct = abi.PyArrayInterface.from_buffer_copy(
            abi.PyArrayInterface.from_address(capsule_pointer(capsule, None)))
        # The extents of NumPy's own struct are freed with its capsule.
        for field in ("shape", "strides"):
            fields.setdefault(field, getattr(self.array, field))
        for field, value in fields.items():
            if field in ("shape", "strides") and value is not None:
                value = (ctypes.c_ssize_t * max(len(value), 1))(*value)
            setattr(self.struct, field, value)

    @property
    def __array_struct__(self) -> Any:
        export = _Export(self, self.struct, self.name, self.array)
        capsule = new_capsule(ctypes.addressof(self.struct), self.name, ctypes.cast(_drop_capsule, ctypes.c_void_p))
        _set_context(capsule, export.key)
        self._capsules.append(capsule)
        return capsule

    def forget(self) -> None:
        """Drop the capsules that were given out."""
        self._capsules.clear()
