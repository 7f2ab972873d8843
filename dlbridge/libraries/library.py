"""How all that is known of a library is written down, and how it is looked up.

Each library has a file beside this one, named as in ``convert(x, name)``, with a :class:`Library`. The file is loaded
when a type or a target of the library is first met. What is known of a library holds for the arrays that it makes and
takes; nothing here is imported from a library.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from dlbridge._core.locks import importing

# Files of this folder that have no library of that name.
HELPERS = ("arrow_parts", "hints", "library", "names", "numba_arrays", "others", "pandas_blocks", "profiles", "records",
           "registered", "scipy_flags", "tensor_types")


class Fact(NamedTuple):
    """Something that is known of a library, with its evidence and the versions that it applies to."""

    value: Any
    evidence: str           # an issue ("pytorch#188023"), a standard ("dlpack 1.3"), or "seen in 2.13.0"
    text: str = ""          # what the library does, or why this matters; read after the library's name
    since: str = ""         # the first version that it applies to; "" where that is not known
    below: str = ""         # the first version that it no longer applies to; "" while there is none


class Copied(NamedTuple):
    """What a ``gives`` function returns in place of an array where it had to copy the elements."""

    array: Any


def keep_as_dict(container: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """What becomes of a container that cannot have other libraries' arrays in it."""
    return parts


class TooWide(Exception):
    """What a ``rearranged`` function raises where a value does not fit into the narrower dtype."""


# The parts of each form, as ``take_apart`` gives them and ``put_together`` takes them; the first has the elements.
PARTS = {"coo": ("data", "coords"), **dict.fromkeys(("csr", "csc", "bsr", "bsc"), ("data", "indices", "indptr")),
         "ragged": ("values", "offsets"), "masked": ("values", "mask")}


class Sparse(NamedTuple):
    """How a library keeps the indices of its sparse arrays, and what it believes of them."""

    coordinates: str = "each"               # of COO: an array for "each" axis, or one for all, with their "rows" or
    #                                         "columns"
    says: Callable[[Any], tuple[bool, bool]] | None = None      # of an array: what it states of sorted, and of unique
    looks: bool = False                     # whether ``put_together`` looks at each index
    canonical: bool = False                 # whether the library believes that they are sorted, each there once
    ordered: str = ""                       # the code that makes them so, of an array x of the library
    beyond: str = "the array is damaged: make it again"     # what to do where an index is outside of the shape
    made: str = ""                          # the code that makes such an array of another matrix x of the library
    makes: bool = True                      # whether ``made`` of other forms takes it


class Ragged(NamedTuple):
    """How a library keeps the offsets of its ragged arrays."""

    axes: int = 0                           # how many axes may be ragged; 0 for any number
    any_start: bool = False                 # whether offsets need not begin with 0, nor end with the data
    slices_copy: bool = False               # whether a slice of a part is a copy
    compact: bool = False                   # whether it copies offsets that leave gaps


class Masked(NamedTuple):
    """How a library keeps the mask of an array, which is True elsewhere where a value is missing."""

    opposite: bool = False                  # whether it says what is there
    why_unpacked: Callable[[Any], str] | None = None    # of an array: why taking it apart makes a mask anew, or ""
    why_packed: str = ""                    # why putting it together does
    library: str = ""                       # that ``put_together`` takes masks of, if not that of the parts
    also_dense: bool = False                # whether the types are those of one array, too


class Form(NamedTuple):
    """Arrays of a library that are several arrays: how they are taken apart and put together, both without copying."""

    types: tuple[str, ...]                  # the names of their types, or of what else ``to`` is for them
    # Of an array: its shape, and its parts. The coordinates of each axis, and the offsets of each ragged one from the
    # outermost on, are a tuple. The shape of ragged ones is in their parts.
    take_apart: Callable[[Any], tuple[tuple[int, ...], list[Any]]]
    # Of the type that ``to`` names, or None; of a shape, and of the parts, in the library's arrays; of whether the
    # indices are sorted, and of whether each is there once, as the source says. None where none can be made.
    put_together: Callable[[Any, tuple[int, ...], list[Any], bool, bool], Any] | None = None
    # Of the type that ``to`` names, of a shape, of a dtype's name, and of the first part as it was taken out: raises
    # where none can be made of that, before anything is copied.
    check: Callable[[Any, tuple[int, ...], str, Any], None] | None = None
    dense: str | Callable[[Any], str] = ""      # the code that makes a dense array of it, or gives all its elements
    of_dense: str = ""                      # the code that makes such an array of any dense array x
    # Of an array: the part whose device is its own. None where all are on the host, and no element is a block.
    elements: Callable[[Any], Any] | None = None
    detached: Callable[[Any], Any] | None = None        # of an array: the same without its gradient
    duplicate: Callable[[Any, bool], Any] | None = None     # of an array, and of whether to detach: a copy of it all
    copied: Callable[[Any], str] | None = None      # of an array: why it is copied to take it apart; "" where it is not
    copies: str = ""                        # why putting it together copies all parts
    # The dtypes of its index arrays, which are all of one; () for any. Or a function of the type that ``to`` names, or
    # None: what they can be now.
    index_types: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
    widens: str = ""                        # the code that lets a function give wider ones
    dense_axes: bool = False                # whether an element may be an array itself, along the last axes
    sparse: Sparse = Sparse()
    ragged: Ragged = Ragged()
    masked: Masked = Masked()

    def part_on_device(self, array: Any) -> Any:
        """The part of an array whose device is its own; None of one on the host."""
        return None if self.elements is None else self.elements(array)


class Layout(NamedTuple):
    """Where the parts of an array are that is on several devices, or in several processes."""

    library: str                            # that makes it
    shape: tuple[int, ...] | None           # of the whole, if it is known
    # Of a shape: the device of each part of this process, as ``device=`` takes it, and its slices, in the order in
    # which ``put_together`` takes the parts of that shape.
    places: Callable[[tuple[int, ...]], list[tuple[Any, tuple[slice, ...]]]]
    put_together: Callable[[tuple[int, ...], list[Any]], Any]


class Arrays(NamedTuple):
    """What is known of a type whose instances hold arrays; it holds for subclasses as well.

    A field is None where nothing is known. A field of a subclass' own record has precedence.
    """

    name: str                               # of the type, without its module; "*" for every type of the library
    # What to do instead, by the field of the error; "" for every other field. Tests run the code in it, with the array
    # as x. A function of the array gives one. hints.ARROW has the fields of Arrow's errors, with {x} for the array.
    hints: Mapping[str, str | Callable[[Any], str | None]] = MappingProxyType({})
    # ---- which protocol, and what to call
    preferred: Fact | None = None           # the protocol that serves this type best, by the name of its source
    exchange: Fact | None = None            # the type's full name: its exchange table may be used as it is
    gives: Fact | None = None               # a function of the array that gives a capsule, a buffer or another array;
    #                                         None where the array's own protocols serve it
    # ---- what the export does not say
    unflagged: Fact | None = None           # True: the memory is read-only, which the export cannot say
    constant: Fact | None = None            # True: nobody writes to memory that it exports as read-only. A function of
    #                                         the array, and of an address in its memory, says whether that is so
    forgets: Fact | None = None             # True: the export does not keep the memory alive, the array does
    element_type: Fact | None = None        # a function of the array: its dtype's name, None where the export says it
    gradient_free: Fact | None = None       # the attribute that is False where a gradient would be lost
    copies: Fact | None = None              # True: each export is a copy
    arrow_form: Fact | None = None          # a function of the array: the dtype, shape, strides and read-only flag of
    #                                         the memory that Arrow's interface gives flat; None where it has none
    rearranged: Fact | None = None          # a function of the array, and of a dtype's name or None: a compact copy, in
    #                                         C order, of that dtype, by the library's kernels on its current stream
    masked: Fact | None = None              # of ndarrays: a function that gives a function of one: its mask, True where
    #                                         it hides a value, or numpy.ma.nomask
    no_memory: Fact | None = None           # True: it has a shape alone
    shells: Fact | None = None              # the names of dtypes that are exported as if they were whole bytes
    owned_on: Fact | None = None            # the device where only the managed export of its exchange table is right
    replicas: Fact | None = None            # a function of the array: itself on each of several devices; or nothing
    host_number: Fact | None = None         # a function of the array: which of the host's devices it is on
    about_values: Fact | None = None        # a function of the array: what explain() says of values that are not what
    #                                         they seem, with what to pass for what they stand for; or ""
    pinned_memory: Fact | None = None       # a function that gives a function of the array: whether it is in pinned
    #                                         memory, which its buffer does not say, and __dlpack__ does; or None here
    made_like: Fact | None = None           # of what is a source only: a function of one, and of an ndarray with one
    #                                         axis: another one over that, for accepts(returns="like")
    bytes_in_buffer: Fact | None = None     # a function of the array: whether dtype= and shape= are for its buffer
    ambiguous: Fact | None = None           # the names of dtypes that its buffer says of others too: the next protocol
    #                                         is asked for those
    columns: Fact | None = None             # of tables: a function of one, and of whether to unpack bools, by a copy
    without_rows: Fact | None = None        # of tables that can be read once: a function of one: its columns, unread
    container: Fact | None = None           # of what has arrays by name: flatten and unflatten, as register_container()
    #                                         takes them; or a function of the type that gives them, or None
    refused: tuple[Fact, ...] = ()          # attributes, methods or functions, True of what has no memory of an array
    form_name: Fact | None = None           # of what may be several arrays: its form, by which it is in the library's
    #                                         ``forms``, or not; or a function of one, which gives None of one array
    has_mask: Fact | None = None            # a function of one: whether values are hidden or missing in it, so that it
    #                                         is of the form "masked" where ``to`` names a type of that
    shards: Fact | None = None              # a function of one: its parts, each after its slices of the whole
    unasked: Fact | None = None             # what is wrong with all of its protocols, so that none is asked
    partial: Fact | None = None             # what part of it they offer, so that none is asked, and in a batch it is no
    #                                         array and no table
    # ---- streams
    names_stream: Fact | None = None        # True: its exchange table names the stream that the memory is ready on
    none_is_unordered: Fact | None = None   # True: __dlpack__ takes None where the standard has -1
    stream_object: Fact | None = None       # a function of the array, and of its device's number: the object of the
    #                                         stream that it is ready on
    declines: Fact | None = None            # True: what its __dlpack__ refuses is left to the next protocol
    unordered_export: Fact | None = None    # True: all of its arrays are on devices, and __dlpack__ is told -1, so that
    #                                         dlbridge orders that stream. Where strides, in bytes, are no whole
    #                                         elements or go backwards, or it refuses, the interface is asked
    interface: Fact | None = None           # a function of the array: its __cuda_array_interface__ as it is meant, in a
    #                                         new dictionary, whose "keeper" may be the object of its stream


class Library(NamedTuple):
    """A library: its arrays as sources, and what it takes as a target."""

    name: str                               # as in convert(x, name)
    module: str = ""                        # what is imported, the name by default
    versions: str = ""                      # the module whose version counts, what is imported by default
    install: str = ""                       # the pip line's last word, the name by default
    roots: tuple[str, ...] = ()             # the first parts of its types' modules, that of ``module`` by default
    arrays: tuple[Arrays, ...] = ()
    constant_exports: Fact | None = None    # True: nobody writes to anything that it exports by DLPack
    private: Fact | None = None             # the file of dlbridge that uses internals of it; in other versions
    #                                         than the fact's, it calls public functions
    # ---- as a target; without a delivery it is none
    delivery: str = ""                      # the file of targets/ that makes its arrays, or "file:function"
    importer: str | Callable[..., Any] = ""     # its function, from the module on; or one of the module and an ndarray
    array_types: tuple[str, ...] = ()       # from the module on; an instance of one is an array of the library already
    exact: bool = False                     # … but not an instance of a subclass
    lacks: tuple[Fact, ...] = ()            # what its arrays do not support: names of Supports, in _core/target.pxd
    alignment: Fact | None = None           # of the first element, in bytes
    device_alignment: Fact | None = None    # … on a device
    fewest_axes: Fact | None = None
    most_axes: Fact | None = None
    dtypes: tuple[Fact, ...] = ()           # each a tuple of the names of types that it takes; () for all
    copied_dtypes: Fact | None = None       # … those of them that it takes only by a copy of its own
    takes: Fact | None = None               # a function of a dtype's name and a shape: True if it shares such memory,
    #                                         False if it copies it itself; if it takes none, what to do instead
    aligned_dtypes: Fact | None = None      # … those of them whose address must be a multiple of their size, too
    wide_dtypes: Fact | None = None         # … those of them that it narrows, and to what
    dtype_namespace: str | None = None      # where its types are attributes, from the module on: old versions lack some
    import_after: tuple[Fact, ...] = ()     # modules after which importing it ends the process
    start: Fact | None = None               # a function of the module that has to be called before its importer
    gpus: Fact | None = None                # a function of the module: how many GPUs it sees
    pinned: Fact | None = None              # a function of the module: whether it takes pinned memory here
    hosts: Fact | None = None               # a function of the module: how many devices of the host it numbers
    default_host: Fact | None = None        # … on which of them it makes arrays
    devices: Fact | None = None             # by the names of its device objects' types: how device= writes one, or None
    layouts: Fact | None = None             # by the names of types of shardings, or of sharded arrays: a function that
    #                                         gives the Layout of one
    streams: Fact | None = None             # by the names of its streams' types: does one keep its handle alive
    copier: Fact | None = None              # where its streams are unknown: a function of its array, and of the stream
    #                                         that has to wait for the copy, or None; it gives the copy
    keeps_imports: Fact | None = None       # True: … but it keeps what it imports until its last use is done
    written: Fact | None = None             # a function of an array of its own, called when dlbridge has written to it
    values: Fact | None = None              # True: its arrays are values, which others may be made of later
    duplicate: Fact | None = None           # a function of an array of its own, and of whether to leave its gradient
    #                                         behind: a copy, with what memory does not say
    clone: Fact | None = None               # … of an array on the host, also where it is no plain memory
    forms: Mapping[str, Form] = MappingProxyType({})    # its arrays that are several arrays, by name: PARTS has all
    parts_of: str = ""                      # the library whose arrays they are made of, itself by default
    # How its arrays get to number {} of a device, by the device's name, where dlbridge does not move them.
    moves: Mapping[str, str] = MappingProxyType({})
    uploads: tuple[str, ...] = ()           # the devices that it copies host memory to, as in device=
    uploader: Callable[[Any, Any, int | None], Any] | None = None   # … by this, of the module, an ndarray and an index

    @property
    def top(self) -> str:
        """What is imported."""
        return self.module or self.name

    @property
    def is_imported(self) -> bool:
        """Whether it is imported now; a type may say that it is of a library that is not."""
        return any(root in sys.modules for root in roots_of(self))

    @property
    def mixes_forms(self) -> bool:
        """Whether a type of its arrays has both what is one array and what is several, as torch.Tensor."""
        several = {record.name for record in self.arrays if record.form_name}
        return self.delivery != "forms" and not several.isdisjoint(self.array_types)

    @property
    def version(self) -> str:
        """Of the library as it is imported now; "" where it is not, or does not say."""
        for name in (self.versions,) if self.versions else (self.top, self.top.partition(".")[0]):
            version = getattr(sys.modules.get(name), "__version__", None)
            if version is not None:
                return str(version)
        return ""


def library_with(file: str) -> Library | None:
    """The library that a file belongs to: one that is in the folder of its package."""
    path = os.path.realpath(file)
    for root, library in roots().items():
        for folder in folders_of(root):
            if path.startswith(os.path.join(os.path.realpath(folder), "")):
                return library
    return None


def folders_of(package: str) -> list[str]:
    """Where a package is that is imported. A module that loads itself when it is used is not asked."""
    module = sys.modules.get(package)
    try:
        return [str(folder) for folder in object.__getattribute__(module, "__dict__").get("__path__", ())]
    except (AttributeError, TypeError):
        return []               # it is not imported, or a substitute for it is


def uses_internals(name: str) -> bool:
    """Whether internals of a library may be used: it is imported, in a version that they were tested with."""
    library = library_named(name)
    return bool(library and library.private and applies(library.private, library.version))


def rearrangers() -> Iterator[tuple[str, Callable[[Any, str | None], Any]]]:
    """The libraries that are imported and can make a compact copy of any array of theirs; and by which function."""
    for name in sorted(files()):
        for library in in_file(name) if name in sys.modules else ():
            for record in library.arrays:
                if record.rearranged is not None and applies(record.rearranged, library.version):
                    yield library.name, record.rearranged.value


class Between(NamedTuple):
    """How arrays that are several arrays get from one library to another."""

    form_name: str | Callable[[Any], str | None]    # the name of an array's form, or of an array: None of one array
    source: Library | None
    target: Library
    kind: Any                   # the type that ``to`` is, or what else it is for a form; None if it names the library
    wanted: str | None          # the form that ``to`` is for


def between(facts: Facts, target: Library, to: Any) -> Between | None:
    """How arrays of a type are taken apart for a target; None where they are not, or the target has no such arrays."""
    wanted = form_meant(target, to)
    if wanted == "masked":
        return Between(form_of_masked(facts.has_mask), facts.library_of_masks(), target, to, wanted)
    if not target.forms.keys() - {"masked"} or (facts.form_name is None and wanted is None):
        return None
    return Between(facts.form_name or is_one_array, facts.library_of_forms(), target, to if wanted else None, wanted)


def form_of_masked(has_mask: Callable[[Any], bool] | None) -> Callable[[Any], str | None]:
    return is_one_array if has_mask is None else lambda array: "masked" if has_mask(array) else None


def is_one_array(array: Any) -> None:
    """The name of the form of what its library does not take apart."""


def form_meant(library: Library, to: Any) -> str | None:
    """The form that ``to`` is for: a type of the library, or a base of that; or another object, as torch.sparse_csr."""
    kinds: Any = to.__mro__ if isinstance(to, type) else (type(to),)
    for kind in kinds if library.forms else ():
        of = library_of_type(kind)
        if of is not None and of.name == library.name:
            name = kind.__name__ if isinstance(to, type) else str(to).rpartition(".")[2]
            for form, known in library.forms.items():
                if name in known.types:
                    return form
    return None


def makes_immutable(library: Library) -> bool:
    """Whether nothing may write to the arrays of a library."""
    return any(fact.value == "WRITABLE" and applies(fact, library.version) for fact in library.lacks)


# ---- versions --------------------------------------------------------------------------------------------------------

def applies(fact: Fact, version: str) -> bool:
    """Whether a fact applies to a version; one that has no numbers counts as the oldest."""
    numbers = release(version)
    return (not fact.since or numbers >= release(fact.since)) and (not fact.below or numbers < release(fact.below))


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.13.0+cpu`` is (2, 13, 0)."""
    numbers = []
    for part in version.split("+")[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


# ---- files -----------------------------------------------------------------------------------------------------------

@cache
def files() -> frozenset[str]:
    """The names of the files that have a library each."""
    names = {file.partition(".")[0] for folder in sys.modules[__package__].__path__ for file in os.listdir(folder)}
    return frozenset(name for name in names if not name.startswith("_") and name not in HELPERS)


@cache
def in_file(name: str) -> tuple[Library, ...]:
    """The libraries of a file of this folder."""
    with importing.lock:
        module = importlib.import_module(f"{__package__}.{name}")
    return module.LIBRARIES if hasattr(module, "LIBRARIES") else (module.LIBRARY,)


@cache
def libraries() -> dict[str, Library]:
    """Every library, by name."""
    return {library.name: library for file in sorted(files() | {"others"}) for library in in_file(file)}


def library_named(name: str) -> Library | None:
    """The library that ``convert(x, name)`` means, or None."""
    if name in files():
        return next((library for library in in_file(name) if library.name == name), None)
    return None


@cache
def roots() -> dict[str, Library]:
    """Every library, by the first part of its types' modules."""
    return {root: library for library in libraries().values() for root in roots_of(library)}


def root_of(module: str) -> str:
    """The first part of a module's name, or of the one that it wraps.

    array_api_compat.torch is torch's namespace, wherever a copy of it is (sklearn.externals, scipy._lib).
    """
    _, found, wrapped = f".{module}".partition(".array_api_compat.")
    return (wrapped if found else module).partition(".")[0]


def roots_of(library: Library) -> tuple[str, ...]:
    """The first parts of the modules of its types."""
    return library.roots or (library.top.partition(".")[0],)


@lru_cache(maxsize=256)
def library_of(root: str) -> Library | None:
    """The library that a type belongs to whose module begins so, or None."""
    for file in (root, "others"):
        if file == "others" or file in files():
            for library in in_file(file):
                if root in roots_of(library):
                    return library
    # Few libraries have types in a module of another name, so the rest of the files is asked last. Python's own modules
    # are in none of them.
    return None if root in sys.stdlib_module_names or root == "__main__" else roots().get(root)


def attribute(namespace: Any, path: str) -> Any:
    """What a path of names leads to; modules that are not loaded yet are imported."""
    for name in path.split(".") if path else ():
        if not hasattr(namespace, name):
            importlib.import_module(f"{namespace.__name__}.{name}")
        namespace = getattr(namespace, name)
    return namespace


# ---- types -----------------------------------------------------------------------------------------------------------

# What users registered of types whose arrays are several arrays, by type.
REGISTERED: dict[Any, Library] = {}


def library_of_type(kind: Any) -> Library | None:
    """The library that a type is of, bases aside; or None."""
    return REGISTERED.get(kind) or library_of(top_module(kind))


def top_module(kind: Any) -> str:
    """The first part of a type's module; a type may say anything there, or nothing."""
    module = getattr(kind, "__module__", None)
    return str.partition(module, ".")[0] if isinstance(module, str) else ""


def records_of(kind: Any) -> Iterator[tuple[Library, Arrays]]:
    """The records of a type and of its bases, the nearest first, each with its library."""
    for base in kind.__mro__:
        if base in REGISTERED:
            yield from ((REGISTERED[base], record) for record in REGISTERED[base].arrays)
        library = library_of(top_module(base))
        if library is not None:
            for name in (base.__name__, "*"):
                for record in library.arrays:
                    if record.name == name:
                        yield library, record


def device_text(device: Any) -> str | None:
    """How ``device=`` writes a library's own device object, or None."""
    kind = getattr(device, "__class__", None)       # Numba's current device is a weak proxy, which says so
    write = function_for(kind if isinstance(kind, type) else type(device), "devices")
    return None if write is None else write(device)


def keeps_stream(stream: Any) -> bool:
    """Whether a stream lives as long as the object that names it; that of an unknown library is believed to."""
    kind: Any = type(stream)
    keeps = function_for(kind, "streams")
    return keeps is None or bool(keeps(stream))


@lru_cache(maxsize=64)
def function_for(kind: Any, field: str) -> Callable[[Any], Any] | None:
    """What a library's table has for a type, or for the nearest of its bases; or None."""
    for base in kind.__mro__:
        library = library_of(top_module(base))
        fact = getattr(library, field, None)
        function: Callable[[Any], Any] | None = fact.value.get(base.__name__) if fact is not None else None
        if function is not None:
            return function
    return None


class Facts:
    """What is known of a type, from its own record and those of its bases, for the versions that are imported."""

    def __init__(self, kind: Any) -> None:
        self.records = tuple(records_of(kind))

    def is_of_a_library(self) -> bool:
        """Whether a library's file has the type or a base of it before one of Python's own."""
        return bool(self.records) and self.records[0][0].name != "builtins"

    def __getattr__(self, field: str) -> Any:
        """The value of a field of :class:`Arrays` that has a Fact, or None.

        It is kept, unless a library that has one is not imported yet.
        """
        if field not in Arrays._fields or Arrays._field_defaults.get(field, "") is not None:
            raise AttributeError(f"Arrays has no fact {field}")
        facts = [(library, getattr(record, field)) for library, record in self.records if getattr(record, field)]
        found = next((fact.value for library, fact in facts
                      if library.is_imported and applies(fact, library.version)), None)
        if all(library.is_imported for library, _ in facts):
            setattr(self, field, found)
        return found

    def why_unasked(self) -> str | None:
        """What is wrong with all of its protocols, or which part of it they have; or None."""
        reason: str | None = self.unasked or self.partial
        return reason

    def refused_by(self, array: Any) -> tuple[str, Fact] | None:
        """The fact that says why an array has no memory of one, after the name of what says so; or None."""
        facts = [fact for library, record in self.records for fact in record.refused if applies(fact, library.version)]
        for fact in facts:
            name = fact.value if isinstance(fact.value, str) else fact.value.__name__
            answer = getattr(array, name, False) if name == fact.value else fact.value(array)
            if answer() if callable(answer) else answer:
                return name, fact
        return None

    def container_functions(self, kind: Any) -> Any:
        """The functions flatten and unflatten of the instances of a type, which have arrays by name; or None."""
        return self.container(kind) if callable(self.container) else self.container

    def library_of_forms(self) -> Library | None:
        """The library that takes the type apart into several arrays, or None."""
        return next((library for library, record in self.records if record.form_name), None)

    def library_of_masks(self) -> Library | None:
        """The library that takes the type apart into values and a mask, or None."""
        return next((library for library, record in self.records if record.has_mask), None)

    def own_hint(self, field: str) -> str | Callable[[Any], str | None] | None:
        """What the table has for exactly this field, or None."""
        return next((record.hints[field] for _, record in self.records if field in record.hints), None)

    def hint(self, field: str, array: Any = None) -> str | None:
        """What to do instead where an error is about this field, or None. Some hints need the array."""
        for wanted in (field, ""):
            for _, record in self.records:
                hint = record.hints.get(wanted)
                if callable(hint):
                    try:
                        hint = hint(array)
                    except Exception:
                        hint = None         # a file was closed, for example
                if hint is not None:
                    return hint
        return None


@lru_cache(maxsize=256)
def finder_of_form(kind: Any) -> Callable[[Any], str | None] | None:
    """A function of arrays of a type that gives their form; None of a type whose arrays are one array each."""
    found: str | Callable[[Any], str | None] | None = Facts(kind).form_name
    return (lambda array: found) if isinstance(found, str) else found
