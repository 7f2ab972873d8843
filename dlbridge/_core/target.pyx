"""The Target: what a library supports, as data, and how its arrays are made."""

import importlib
import sys
from abc import ABCMeta

cimport cython

from libc.stdint cimport uint64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.atomic cimport load_flag, store_flag
from dlbridge._core.block cimport managed_shape
from dlbridge._core.devices.table cimport parse_device
from dlbridge._core.dtypes cimport MAX_ROWS, get_row, row_name, rows_named
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.sources.offer cimport library

from dlbridge._core.dtypes import NAMES
from dlbridge._core.locks import ForkableLock
from dlbridge.errors import ConversionError, MissingLibraryError, refusal

cdef uint64_t subbyte_rows = rows_named(name for row, name in enumerate(NAMES) if get_row(row).subbyte)

# While the facts are being read, a target supports more than its library does, so no other thread may use it then.
cdef object reading = ForkableLock()


cdef Target new_target(object facts):
    cdef Target target = Target.__new__(Target)
    target.name = target.called = facts.name
    target.facts = facts
    target.array_types = ()
    return target


@cython.auto_pickle(False)
cdef class Target:
    """A library that arrays can be delivered to."""

    def __repr__(self):
        return f"<target {self.name}>"

    cdef int load(self) except -1:
        """Import the library and read what it supports. The first conversion does so, not the import of dlbridge."""
        if load_flag(&self.loaded):
            return 0
        cdef object namespace = self.imported()
        # The lock is not used in a `with` statement: if there is no memory for a traceback, Cython passes NULL in its
        # place to __exit__().
        lock = reading.lock
        lock.acquire()
        try:
            if not self.loaded:
                self.namespace = namespace
                self.read_facts()
        finally:
            lock.release()

    cdef object imported(self):
        """The library's module, or the namespace that the user gave."""
        facts = self.facts
        if self.namespace is not None or not facts.importer and not facts.array_types:
            return self.namespace
        for fact in facts.import_after if facts.top not in sys.modules else ():
            if fact.value in sys.modules:
                raise refusal(MissingLibraryError, self.name, "import", f"after {fact.value}", fact.text,
                              f"import {facts.top} before {fact.value}")
        try:
            return importlib.import_module(facts.top)
        except ImportError as error:
            # A library that is installed but broken has an error of its own.
            if error.name is not None and not f"{facts.top}.".startswith(f"{error.name}."):
                raise
            raise refusal(MissingLibraryError, self.name, "module", facts.top, "is not installed",
                          f"pip install {facts.install or facts.name}") from error

    cdef int read_facts(self) except -1:
        """Read what the library supports: everything, less what its facts say that it lacks. adjust() corrects that."""
        cdef object flags = Supports
        applies = library().applies
        facts = self.facts
        version = str(getattr(self.namespace, "__version__", facts.version))
        self.supports = 0
        for flag in flags:
            self.supports |= <unsigned int> flag
        for fact in facts.lacks:
            if applies(fact, version):
                self.supports &= ~<unsigned int> flags[fact.value]
        self.alignment = facts.alignment.value if facts.alignment else 1
        self.fewest_axes = facts.fewest_axes.value if facts.fewest_axes else 0
        self.most_axes = facts.most_axes.value if facts.most_axes else MAX_NDIM
        self.read_types(version)
        self.read_named(version)
        if self.adjust is not None:
            self.adjust(self)
        self.read_alignments()
        if not self.gpus:
            self.supports &= ~<unsigned int> OTHER_DEVICES
        self.read_plain_rows()
        store_flag(&self.loaded, True)      # last: once it is set, other threads read the rest without the lock

    cdef int read_plain_rows(self) except -1:
        """Find the types of memory that fits() and fits_there() take without a look at the number of axes, at which
        of the host's devices it is on, and at whether this build of the library can use GPUs.
        """
        cdef uint64_t rows = self.rows & ~(self.copied_rows | self.asked_rows | subbyte_rows)
        if not self.supports & SHARING or not self.supports & GAPS or self.fewest_axes or self.most_axes < MAX_NDIM:
            rows = 0
        self.plain_rows = rows if self.supports & HOST and self.hosts < 2 else 0
        without_gpu = self.upload != NULL and not self.upload_types
        self.device_rows = rows if self.supports & OTHER_DEVICES and not (self.copies_own or without_gpu) else 0

    cdef int read_named(self, str version) except -1:
        """Read what the facts name in the imported module."""
        cdef DLDevice device
        facts, applies, attribute = self.facts, library().applies, library().attribute
        if facts.start:
            facts.start.value(self.namespace)
        self.keeps_imports = facts.keeps_imports is not None and applies(facts.keeps_imports, version)
        self.copies_own = facts.copier is not None and not self.keeps_imports
        self.gpus = facts.gpus.value(self.namespace) if facts.gpus else -1
        self.hosts = facts.hosts.value(self.namespace) if facts.hosts else 0
        if facts.pinned and not facts.pinned.value(self.namespace):
            self.supports &= ~<unsigned int> PINNED
        for name in facts.uploads:
            parse_device(name, &device)
            self.upload_types |= <uint32_t> 1 << device.device_type
        if isinstance(facts.importer, str) and facts.importer:
            self.function = attribute(self.namespace, facts.importer)
        if facts.array_types:
            self.array_types = tuple([attribute(self.namespace, path) for path in facts.array_types])

    cdef int read_types(self, str version) except -1:
        """Read which types the library takes. Older versions of some libraries lack the newest types."""
        facts, applies = self.facts, library().applies
        self.rows = 0 if facts.dtypes else rows_named(NAMES)
        for fact in facts.dtypes:
            if applies(fact, version):
                self.rows |= rows_named(fact.value)
        if facts.dtype_namespace is not None:
            space = library().attribute(self.namespace, facts.dtype_namespace)
            self.rows &= rows_named([name for name in NAMES if hasattr(space, name)])
        self.copied_rows = rows_named(facts.copied_dtypes.value) if facts.copied_dtypes else 0
        self.takes = facts.takes.value if facts.takes else None
        self.asked_rows = self.rows if facts.takes else 0

    cdef int read_alignments(self) except -1:
        """Read which bits of an address must be 0, for every type."""
        cdef int row
        facts = self.facts
        on_device = facts.device_alignment.value if facts.device_alignment else self.alignment
        aligned_rows = rows_named(facts.aligned_dtypes.value) if facts.aligned_dtypes else 0
        for row in range(MAX_ROWS):
            item = get_row(row).item_bytes if aligned_rows >> row & 1 else 1
            self.low_bits[row] = max(self.alignment, item) - 1
            self.device_low_bits[row] = max(on_device, item) - 1

    cdef bint owns(self, object src):
        """Whether src is an array of this library already."""
        if self.facts.exact:
            return any([type(src) is kind for kind in self.array_types])
        return isinstance(src, self.array_types)

    cdef bint owns_by_type(self, object kind) except -1:
        """Whether the answer of owns() holds for every instance of a type.

        The metaclass of a type that a user registers may look at the instance (torch.FloatTensor, torch.nn.Buffer).
        """
        if self.facts.delivery:         # it is not one that a user registered
            return True
        return all([
            type(each).__instancecheck__ in (type.__instancecheck__, ABCMeta.__instancecheck__)
            or issubclass(kind, each) for each in self.array_types])

    cdef Target with_uploads_of(self, Target other):
        """A target that takes the same elements and layouts, and copies host memory as the other target does."""
        cdef Target made = new_target(self.facts)
        made.namespace = self.namespace
        made.supports = self.supports | HOST | SHARING
        made.rows, made.asked_rows, made.accepts, made.takes = self.rows, self.asked_rows, self.accepts, self.takes
        made.fewest_axes, made.most_axes, made.gpus = self.fewest_axes, self.most_axes, -1
        made.upload, made.await_upload, made.upload_types = other.upload, other.await_upload, other.upload_types
        made.deliver = other.deliver
        return made

    cdef object why_not(self, const Managed* managed):
        """The exception that accepts() gives, or None. Only for asked_rows it has to be asked."""
        if not self.asked_rows >> managed.row & 1:
            return None
        answer = None if self.takes is None else self.takes(row_name(managed.row), managed_shape(managed))
        if isinstance(answer, str):
            return refusal(ConversionError, self.name, "shape", managed_shape(managed),
                           f"of {row_name(managed.row)} is none that {self.name} has", answer)
        return None if self.accepts == NULL else self.accepts(managed, self)
