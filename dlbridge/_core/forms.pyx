"""Arrays that are several arrays, such as sparse ones: taken apart, their parts converted, and put together."""

cimport cython

from libc.stdint cimport uint64_t

from dlbridge._core.conversion cimport convert_by_route, convert_to
from dlbridge._core.copies cimport is_watched, note_copy
from dlbridge._core.dtypes cimport find_name, row_name, rows_named
from dlbridge._core.indices cimport Apart, Seen, in_part, is_on_host, taken_apart
from dlbridge._core.request cimport COPY_ALWAYS, COPY_IF_NEEDED, COPY_NEVER, NOTHING_ASKED, READONLY_SHARE, Request
from dlbridge._core.route cimport Route
from dlbridge._core.target cimport Target
from dlbridge._core.targets.importer cimport wrap_error

import numpy as np

from dlbridge._core.targets.importer import UNTOUCHED
from dlbridge.errors import ConversionError, CopyRequiredError, DLBridgeError, full_name, refusal
from dlbridge.libraries.library import libraries

# The rows of the integers that int32 holds all values of.
cdef frozenset NARROW = frozenset([find_name(name) for name in ("int8", "uint8", "int16", "uint16", "int32")])
cdef str UNSORTED = "elements are not in order, each there once"
cdef str ONE_ARRAY = "one array for all axes"
cdef Request SHARING = NOTHING_ASKED    # of what was made here
SHARING.readonly = READONLY_SHARE


@cython.final
@cython.auto_pickle(False)
cdef class Way:
    """How arrays of one form get to a target: what is known of both, once for a route."""

    cdef str form               # its name
    cdef object take_apart
    cdef str before             # how coordinates lie
    cdef object says            # a function of an array, or None where the target states nothing
    cdef object put_together
    cdef object kind            # the type that is asked for, or None
    cdef bint is_there          # whether an array has the layout of its own library that is asked for
    cdef str to                 # the library of the parts
    cdef str then
    cdef uint64_t rows          # the dtypes that indices can have; 0 for any
    cdef tuple index_types
    cdef bint dense_axes, canonical
    cdef str dense              # code
    cdef str beyond             # a hint, where an index is
    cdef bint checks            # whether the target looks at indices itself


cdef object convert_form(object src, Route route, const Request* request):
    cdef Apart apart
    cdef Way way = way_of(src, route, request)
    if way is None:
        return convert_by_route(src, route, request)
    if way.is_there and not is_anew(request):
        return src
    apart = taken(src, way, route.target, None if way.checks else way.beyond)
    is_sorted, is_unique = (False, False) if way.says is None else way.says(src)
    made = convert_each(apart, way, request)
    if way.canonical and not (is_sorted and is_unique):
        is_sorted = is_unique = is_canonical(made[1], apart.shape)
        if not is_sorted:
            note_change(apart.data, UNSORTED, way.to, request)
    try:
        return way.put_together(way.kind, apart.shape, made, is_sorted, is_unique)
    except UNTOUCHED:
        raise
    except Exception as error:
        raise wrap_error(route.target, error) from error


cdef inline bint is_anew(const Request* request) noexcept:
    """Whether an array of the target's own is not simply returned."""
    return request.copy == COPY_ALWAYS or request.has_device


cdef Way way_of(object src, Route route, const Request* request):
    """How an array gets to the target by its parts; None where it is one array, or is not taken apart."""
    cdef Way way
    if route.already and not is_anew(request):
        return None
    name = route.form_name(src)
    way = <Way> route.ways.get(name)
    if way is None and (name is not None or route.forms.wanted is not None):
        way = route.ways[name] = new_way(src, name, route.forms)
    return way


cdef object parts_to_explain(dict facts, object src, Route route, const Request* request):
    cdef Apart apart
    cdef Seen part
    cdef Way way = way_of(src, route, request)
    if way is None:
        return None
    if way.is_there and not is_anew(request):
        return way.to, []
    apart = taken(src, way, route.target, way.beyond)
    facts |= {"shape": apart.shape, "dtype": row_name(apart.data.managed.row)}
    wanted = None if way.rows == 0 else index_type(apart.indices, way)
    in_one = way.before == "each" and way.then != "each"
    unsorted = UNSORTED if is_changed(src, apart, way) else ""
    found = [("data", apart.data.array, unsorted)]
    for place, part in enumerate(apart.indices):
        named = f"{part.name}[{place}]" if way.before == "each" and way.form == "coo" else part.name
        cast = wanted is not None and row_name(part.managed.row) != wanted
        becomes = unsorted or (indices_become(part, wanted if cast else ONE_ARRAY) if cast or in_one else "")
        found.append((named, part.array.T if way.before == "rows" and way.then == "columns" else part.array, becomes))
        if becomes and request.copy == COPY_NEVER:
            note_change(part, becomes, way.to, request)
    return way.to, found


cdef bint is_changed(object src, Apart apart, Way way) except -1:
    """Whether the target sorts the elements, and adds those up that are there more than once."""
    cdef Seen part
    if not way.canonical or way.says is not None and all(way.says(src)):
        return False
    axes = [as_numpy(part.array) for part in apart.indices]
    coords = axes if way.before == "each" else axes[0].T if way.before == "columns" else axes[0]
    return not is_canonical(coords, apart.shape)


cdef Way new_way(object src, object name, object between):
    cdef Way way = Way.__new__(Way)
    form = find_form(src, name, between)
    source = between.source.forms[name]
    way.kind = between.kind
    way.is_there = way.kind is not None and not isinstance(way.kind, type) and between.source is between.target
    way.form, way.take_apart, way.before, way.dense = name, source.take_apart, source.coordinates, source.dense
    way.says = source.says if form.says is not None or form.canonical else None
    way.put_together, way.then = form.put_together, form.coordinates
    way.to = between.target.parts_of or between.target.name
    way.index_types, way.rows = form.index_types, rows_named(form.index_types)
    way.dense_axes, way.canonical = form.dense_axes, form.canonical
    way.beyond, way.checks = source.beyond, form.checks_indices
    return way


cdef Apart taken(object src, Way way, Target target, str beyond):
    """The parts of an array, looked at."""
    cdef Apart apart
    cdef list parts
    shape, parts = way.take_apart(src)
    apart = taken_apart(way.form, way.before, shape, parts, beyond)
    if apart.indexed != len(apart.shape) and not way.dense_axes:
        raise refusal(ConversionError, target.name, "shape", apart.shape,
                      f"has {len(apart.shape) - apart.indexed} axes without indices", f"pass {way.dense}")
    if 0 <= apart.count < apart.data.managed.abi.dl_tensor.shape[0]:        # SciPy's may have room for more
        parts[0], parts[1] = parts[0][:apart.count], parts[1][:apart.count]
        apart = taken_apart(way.form, way.before, shape, parts, beyond)
    return apart


cdef list convert_each(Apart apart, Way way, const Request* request):
    """The parts, in arrays of the target."""
    cdef Request of_indices = request[0]
    cdef Seen part
    cdef list made = [convert_part(apart.data, apart.data.array, way, request)]
    wanted = None if way.rows == 0 else index_type(apart.indices, way)
    of_indices.narrow = True
    if apart.form == "coo":
        made.append(convert_coordinates(apart, wanted, way, &of_indices))
        return made
    for part in apart.indices:
        made.append(convert_indices(part, part.array, wanted, way, &of_indices))
    return made


cdef object convert_part(Seen part, object array, Way way, const Request* request):
    cdef Request asked = request[0]
    try:
        return convert_to(array, way.to, &asked)
    except DLBridgeError as error:
        raise in_part(error, part.form, part.name) from error


# ---- indices ---------------------------------------------------------------------------------------------------------

cdef str index_type(list indices, Way way):
    """The dtype that index arrays get; None where they keep theirs. What a device has is left to its library."""
    cdef Seen part
    cdef uint64_t rows = 0
    cdef bint is_wide = False
    for part in indices:
        if not is_on_host(part):
            return None
        rows |= <uint64_t> 1 << part.managed.row
        is_wide |= part.managed.row not in NARROW
    if rows & (rows - 1) == 0 and rows & ~way.rows == 0:
        return None
    return way.index_types[0] if len(way.index_types) == 1 or not is_wide else "int64"


cdef object convert_indices(Seen part, object array, str wanted, Way way, const Request* request):
    cdef Request asked
    if wanted is None or row_name(part.managed.row) == wanted:
        return convert_part(part, array, way, request)
    note_change(part, indices_become(part, wanted), way.to, request)
    asked = request[0]
    asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
    return convert_part(part, as_numpy(array).astype(wanted), way, &asked)      # each value is within the shape


cdef str indices_become(Seen part, str what):
    return f"indices of {row_name(part.managed.row)} become {what}"


cdef int note_change(Seen part, str reason, str to, const Request* request) except -1:
    """Tell who watches of a copy of a part that is made for another reason than that of memory, or refuse one."""
    if request.copy == COPY_NEVER:
        raise refusal(CopyRequiredError, part.form, "part", part.name, f"{reason}, which is a copy", "pass copy=None")
    if is_watched():
        note_copy(part.array, part.managed, to, reason, "nothing to do: its library has them otherwise")
    return 0


cdef object as_numpy(object array):
    cdef Request asked = SHARING
    return convert_to(array, "numpy", &asked)


cdef object convert_coordinates(Apart apart, str wanted, Way way, const Request* request):
    """Coordinates as the target keeps them: an array for each axis, or one with their rows, or with their columns."""
    cdef Seen part
    if way.before == "each" and way.then == "each":
        return tuple([convert_indices(part, part.array, wanted, way, request) for part in apart.indices])
    if way.before == "each":
        return stacked(apart, wanted, way, request)
    part = apart.indices[0]
    array = part.array.T if way.then == "columns" and way.before == "rows" else part.array
    made = convert_indices(part, array, wanted, way, request)
    if way.before == "columns" and way.then != "columns":
        made = made.T
    return tuple(made) if way.then == "each" else made


cdef object stacked(Apart apart, str wanted, Way way, const Request* request):
    """One array for the coordinates of all axes."""
    cdef Request asked = request[0]
    cdef Seen part
    cdef list axes = []
    for part in apart.indices:
        if not is_on_host(part):
            raise refusal(ConversionError, apart.form, "coords", "of a device", "are an array for each axis, and "
                          f"{way.to} has one for all", "pass x.tocsr()")
        note_change(part, indices_become(part, wanted or ONE_ARRAY), way.to, request)
        axes.append(as_numpy(part.array))
    asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
    return convert_part(apart.indices[0], np.stack(axes, axis=way.then == "columns", dtype=wanted), way, &asked)


cdef bint is_canonical(object coords, tuple shape) except -1:
    """Whether coordinates, by rows, are in the order of C, each there once."""
    try:
        places = np.ravel_multi_index(tuple(coords), shape)
    except ValueError:
        return False            # there are more places than numbers for them
    return bool((np.diff(places) > 0).all())


# ---- which form ------------------------------------------------------------------------------------------------------

cdef object find_form(object src, object name, object between):
    """How the target has such an array; an error where it has not."""
    target, wanted = between.target, between.wanted
    if name is None:
        form = target.forms[wanted] if wanted else next(iter(target.forms.values()))
        raise refusal(ConversionError, target.name, "type", full_name(type(src)), "is one array, and several are asked "
                      "for", f"pass {form.of_dense}")
    if name in between.source.forms and name in target.forms and wanted in (None, name):
        return target.forms[name]
    both = [each for each in ((wanted,) if wanted else target.forms)
            if each in between.source.forms and each != name and (each == "coo" or len(src.shape) == 2)]
    made = between.source.forms[both[0]].made if both else next(iter(between.source.forms.values())).dense
    having = [library.name for library in libraries().values() if name in library.forms]
    wrong = f"is not {wanted}" if wanted in target.forms and name in target.forms else (
        f"is none that {target.name} has" + (f"; {', '.join(having)} have it" if having else ""))
    raise refusal(ConversionError, target.name, "form", name, wrong, f"pass {made}")
