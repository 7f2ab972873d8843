"""What the targets lack, as rows: each fact of a library's file with the name of the library."""

from typing import NamedTuple

from dlbridge.libraries import dlpack, profiles
from dlbridge.libraries.library import Fact, Library, applies, libraries

UNKNOWN = Library(name="*", lacks=profiles.UNKNOWN)
TARGETS = [library for library in (*libraries().values(), dlpack.VERSIONED._replace(name="dlpack_versioned"), UNKNOWN)
           if library.delivery not in ("", "forms") or library is UNKNOWN]
LIMITS = ("alignment", "fewest_axes", "most_axes")


class Lack(NamedTuple):
    library: str
    lacks: str          # a name of Supports, or one of LIMITS
    fact: Fact


def lacks_of(library, version=None):
    """The rows of a library, at a version or at all of them."""
    rows = [Lack(library.name, fact.value, fact) for fact in library.lacks]
    rows += [Lack(library.name, limit, getattr(library, limit)) for limit in LIMITS if getattr(library, limit)]
    return [row for row in rows if version is None or applies(row.fact, version)]


LACKS = [row for library in TARGETS for row in lacks_of(library)]


def dtypes_of(library, version):
    """The names of the types that a library takes at a version."""
    return {name for fact in library.dtypes if applies(fact, version) for name in fact.value}
