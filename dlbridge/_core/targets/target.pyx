"""Target: what a library can hold, as data, and how its array is made."""

import importlib
import sys

cimport cython

from libc.stdint cimport uint64_t

from dlbridge._core.atomic cimport load_flag, store_flag
from dlbridge._core.dtypes cimport get_row, rows_named
from dlbridge._core.managed cimport MAX_NDIM

from dlbridge._core.dtypes import NAMES
from dlbridge.errors import MissingLibraryError, refusal
from dlbridge._core.locks import ForkableLock

HOLDS = {
    "NEGATIVE_STRIDES": NEGATIVE_STRIDES,
    "ZERO_STRIDES": ZERO_STRIDES,
    "ANY_STRIDES": ANY_STRIDES,
    "ODD_STRIDES": ODD_STRIDES,
    "SWAPPED_BYTES": SWAPPED_BYTES,
    "READ_ONLY": READ_ONLY,
    "PACKED": PACKED,
    "PADDED": PADDED,
    "OTHER_DEVICES": OTHER_DEVICES,
    "HOST": HOST,
    "PINNED": PINNED,
    "UNIFIED": UNIFIED,
    "ANY_ORDER": ANY_ORDER,
    "SHARING": SHARING,
    "BOOLS": BOOLS,
}


cdef uint64_t subbyte_rows = rows_named(name for row, name in enumerate(NAMES) if get_row(row).subbyte)

# Read off by half, a target holds more than its library does: no other thread may use it meanwhile, nor begin anew.
cdef object reading = ForkableLock()


@cython.auto_pickle(False)
cdef class Target:
    """A library that arrays can be delivered to."""

    def __repr__(self):
        return f"<target {self.name}>"

    cdef int load(self) except -1:
        """Import the library and read off what it can hold; the first conversion to it does so, and no import."""
        cdef object namespace = self.namespace
        if load_flag(&self.loaded):
            return 0
        if self.library is not None:
            self.check_order()
            try:
                namespace = importlib.import_module(self.library)
            except ImportError as error:
                # A library that is there but broken says so itself.
                if error.name is not None and error.name != self.library:
                    raise
                raise refusal(MissingLibraryError, self.name, "module", self.library, "is not installed",
                              f"pip install {self.install}") from error
        # Not by `with`: where no memory is left for a traceback, Cython gives its end a NULL in place of one.
        lock = reading.lock
        lock.acquire()
        try:
            if not self.loaded:
                self.namespace = namespace
                self.read_off()
        finally:
            lock.release()
        return 0

    cdef int check_order(self) except -1:
        """Refuse an import that would end the process."""
        from dlbridge._core.targets.quirks import IMPORT_ORDER

        for row in IMPORT_ORDER if self.library not in sys.modules else ():
            if row.library == self.library and row.after in sys.modules:
                raise refusal(MissingLibraryError, self.name, "import", f"after {row.after}", row.words,
                              f"import {self.library} before {row.after}")
        return 0

    cdef int read_off(self) except -1:
        """Everything, less the library's quirks; then its file has the last word."""
        # Not at the top: a tenth of the time that importing dlbridge takes.
        from dlbridge._core.targets.quirks import COPIED_DTYPES, LIMITS, dtypes_of, quirks_of

        library = self.name if self.quirks is None else self.quirks
        version = str(getattr(self.namespace, "__version__", ""))
        self.rows = rows_named(dtypes_of(library, version))
        self.copied_rows = rows_named(COPIED_DTYPES.get(library, ()))
        self.asked_rows = 0
        self.gpus = -1
        self.holds = 0
        for flag in HOLDS.values():
            self.holds |= <unsigned int> flag
        limits = dict(LIMITS)
        for quirk in quirks_of(library, version):
            if quirk.lacks in limits:
                limits[quirk.lacks] = quirk.value
            else:
                self.holds &= ~<unsigned int> HOLDS[quirk.lacks]
        self.alignment, self.fewest_axes, self.most_axes = limits.values()
        if self._load is not None:
            self._load(self)
        if not self.gpus:
            self.holds &= ~<unsigned int> OTHER_DEVICES
        # What fits() may pass without a look at the device is the host's memory, with any number of axes.
        self.plain_rows = 0
        if self.holds & HOST and self.holds & SHARING and not self.fewest_axes and self.most_axes == MAX_NDIM:
            self.plain_rows = self.rows & ~(self.copied_rows | self.asked_rows | subbyte_rows)
        store_flag(&self.loaded, True)      # last: whoever reads it reads the rest without the lock
        return 0

    cdef bint owns(self, object src):
        """Whether src is an array of this library already."""
        if self.exact:
            return any([type(src) is kind for kind in self.array_types])
        return isinstance(src, self.array_types)

    cdef object why_not(self, const Managed* managed):
        """The exception that accepts() gives, or None."""
        return None if self.accepts == NULL else self.accepts(managed, self)
