"""Arrays that are several arrays, such as sparse ones: taken apart, their parts converted, and put together."""

cimport cython

from libc.stdint cimport uint64_t

from dlbridge._core.atomic cimport add
from dlbridge._core.block cimport managed_release
from dlbridge._core.conversion cimport convert_by_route, convert_to
from dlbridge._core.copies cimport is_watched, note_clone, note_copy
from dlbridge._core.decision cimport is_immutable
from dlbridge._core.devices.table cimport is_host
from dlbridge._core.dtypes cimport row_name, rows_named
from dlbridge._core.indices cimport Apart, Seen, in_part, indices_seen, is_on_host, taken_apart
from dlbridge._core.place cimport copies_made
from dlbridge._core.request cimport (
    COPY_ALWAYS, COPY_IF_NEEDED, COPY_NEVER, COPY_UNLESS_CONSTANT, NOTHING_ASKED, READONLY_SHARE, Request,
)
from dlbridge._core.route cimport Route, is_on
from dlbridge._core.sources.offer cimport Offer
from dlbridge._core.sources.registry cimport acquire_by, has_offer, offers_for_type
from dlbridge._core.target cimport SWAPPED_BYTES, Target
from dlbridge._core.targets.importer cimport wrap_error

import numpy as np

from dlbridge._core.described import new_tensor_of
from dlbridge._core.targets.importer import UNTOUCHED
from dlbridge.errors import ConversionError, CopyRequiredError, DLBridgeError, full_name, refusal, shown
from dlbridge.libraries.library import PARTS, Form, libraries

cdef str UNSORTED = "elements are out of order, or there more than once"
cdef str SWAPPED = "byte order is not this machine's"
cdef str OPPOSITE = "its mask says the opposite"
# How an array without a mask is taken apart for a type that has one: it is the values, and there is no other part.
cdef object WITHOUT_MASK = Form((), lambda array: ((), [array, None]))
cdef str ONE_ARRAY = "one array for all axes"
cdef dict ROWS = {}             # the bits of index types, by the tuples of them that functions give
cdef Request LOOKING = NOTHING_ASKED
LOOKING.detach = LOOKING.peek = True
cdef Request SHARING = NOTHING_ASKED    # of what was made here
SHARING.readonly = READONLY_SHARE


@cython.final
@cython.auto_pickle(False)
cdef class Way:
    """How arrays of one form get to a target: what is known of both, once for a route."""

    cdef str form               # its name
    cdef str to                 # the library of the parts
    cdef object kind            # the type that is asked for, or None
    cdef object source, target  # their Forms; what each conversion needs of them is here, too
    cdef object index_types     # a function that gives the types that indices can have now; None where they are always
    cdef tuple types            # … these, …
    cdef uint64_t rows          # … each a bit
    cdef bint dense_axes, canonical, looks, any_start, compact      # of the target
    cdef str mask_changes       # why the target makes a mask anew, or ""
    cdef str masks_of           # the library that masks become arrays of
    cdef str copies             # why the target copies all parts, or ""
    cdef bint native            # whether the target would misread bytes in the other order
    cdef bint aligned           # whether it needs memory that is aligned
    cdef str source_coordinates, target_coordinates     # how they lie there
    cdef str beyond
    # Functions of the two libraries; None where there is none.
    cdef object take_apart, copied, detached, says, check, put_together


cdef object convert_form(object src, Route route, const Request* request):
    cdef Request asked = request[0]
    cdef Apart apart
    cdef Way way
    name = form_name(src, route)
    if name is None and not route.wants_form:
        return convert_by_route(src, route, request)
    if (route.already or route.wants_form) and is_own(name, route):
        kept = kept_or_copied(src, name, route, request)
        if kept is not None:
            return kept
    way = way_of(src, name, route)
    if request.detach and way.detached is not None:
        src = way.detached(src)
    apart = taken(src, way, route.target, None if way.looks else way.beyond, request)
    is_sorted, is_unique = (False, False) if way.says is None else way.says(src)
    if way.canonical and not is_in_order(apart, way, route.target):
        note_change(apart.data, UNSORTED, way.to, request)      # the library sorts them
        is_sorted = is_unique = False
    if apart.copied or way.copies:
        note_copies(apart, way, request)
    if apart.copied or way.copies or apart.is_fetched:        # into memory that nobody else has
        asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
    made = convert_each(apart, way, &asked)
    try:
        return way.put_together(way.kind, apart.shape, made, is_sorted, is_unique)
    except UNTOUCHED:
        raise
    except Exception as error:
        raise wrap_error(route.target, error) from error


cdef str form_name(object src, Route route):
    name = route.form_name if type(route.form_name) is str else route.form_name(src)
    return name if name is None or type(name) is str else shown(name, str)


cdef bint is_own(str name, Route route) except -1:
    """Whether several arrays are what is asked for: of the type, or of the layout."""
    between = route.forms
    if between.wanted == "masked" or between.wanted is not None and route.already:
        return route.already                # of the type that is asked for, whatever is in it: a ListArray of strings
    return name is not None and (route.already or name == between.wanted and between.source is between.target
                                 and not isinstance(between.kind, type))


cdef object kept_or_copied(object src, str name, Route route, const Request* request):
    """What is asked for, itself or as its own library copies it; None where it is taken apart for that."""
    if request.has_device and not is_there(src, name, route, request):
        return None
    if request.copy != COPY_ALWAYS and (request.copy != COPY_UNLESS_CONSTANT or is_immutable(route.target)):
        return src
    duplicate = duplicate_of(route)
    if duplicate is None:
        return None
    if is_watched():
        note_clone(src, NULL, route.target.called, request.copy == COPY_UNLESS_CONSTANT)
    return duplicate(src, request.detach)


cdef object duplicate_of(Route route):
    """How a library copies what is asked for. Its clone is for one array, and would leave a mask behind."""
    facts = route.target.facts
    if route.forms.wanted == "masked":
        return facts.forms["masked"].duplicate
    fact = facts.duplicate or facts.clone
    return None if fact is None else fact.value


cdef bint is_there(object src, str name, Route route, const Request* request) except -1:
    """Whether several arrays are on the device that is asked for; what is not taken apart is on the host."""
    form = route.forms.target.forms[route.forms.wanted] if name is None else route.forms.source.forms.get(name)
    return is_on(None if form is None else form.part_on_device(src), route.target.hosts, &request.device)


cdef Way way_of(object src, str name, Route route):
    cdef Way way = <Way> route.ways.get(name)
    if way is None:
        way = route.ways[name] = new_way(src, name, route)
    return way


cdef object parts_to_explain(dict facts, object src, Route route, const Request* request):
    cdef Apart apart
    cdef Seen part
    cdef Way way
    name = form_name(src, route)
    if name is None and not route.wants_form:
        return None
    if is_own(name, route) and (not request.has_device or is_there(src, name, route, request)):
        if request.copy != COPY_ALWAYS:
            return "", []
        if duplicate_of(route) is not None:
            return "", None
    way = way_of(src, name, route)
    if request.detach and way.detached is not None:
        src = way.detached(src)
    apart = taken(src, way, route.target, way.beyond, NULL,
                  request.has_device and is_host(request.device.device_type))
    facts |= {"shape": apart.shape, "dtype": row_name(apart.data.managed.row)}
    wanted = None if way.form == "masked" else index_type(apart, way)
    unsorted = UNSORTED if way.canonical and not is_in_order(apart, way, route.target) else ""
    in_one = way.source_coordinates == "each" and way.target_coordinates != "each"
    found = [(apart.data.name, apart.data.array,
              unsorted or apart.copied or way.copies or (SWAPPED if apart.data.swapped and way.native else ""))]
    for place, part in enumerate(apart.indices):
        named = f"{part.name}[{place}]" if way.source_coordinates == "each" and way.form == "coo" else part.name
        becomes = changes(part, wanted, way) or (indices_become(part, ONE_ARRAY) if in_one else "")
        array = part.array.T if (way.source_coordinates, way.target_coordinates) == ("rows", "columns") else part.array
        if in_one and not (request.has_device and is_host(request.device.device_type)):
            check_on_host(part, way)
        found.append((named, array, unsorted or apart.copied or way.copies or becomes))
    for part, (_, _, becomes) in zip([apart.data, *apart.indices], found):
        if becomes and request.copy == COPY_NEVER:
            note_change(part, becomes, way.to, request)
    return way.to, found


cdef Way new_way(object src, str name, Route route):
    cdef Way way = Way.__new__(Way)
    between = route.forms
    if name is None and between.wanted == "masked":
        form, source = between.target.forms["masked"], WITHOUT_MASK
        name = "masked"
        if form.detached is not None and route.target.owns(src):
            source = source._replace(detached=form.detached)
    else:
        form = find_form(src, name, between)
        source = between.source.forms[name]
    way.form, way.source, way.target = name, source, form
    way.take_apart, way.copied, way.detached = source.take_apart, source.copied, source.detached
    way.check, way.put_together, way.copies = form.check, form.put_together, form.copies
    way.says = source.sparse.says if form.sparse.says is not None else None
    way.to = between.target.parts_of or between.target.name
    way.native = way.to != between.target.name and not route.target.supports & SWAPPED_BYTES
    way.aligned = route.target.alignment > 1
    way.source_coordinates, way.target_coordinates = source.sparse.coordinates, form.sparse.coordinates
    way.looks, way.canonical, way.beyond = form.sparse.looks, form.sparse.canonical, source.sparse.beyond
    way.index_types = form.index_types if callable(form.index_types) else None
    way.types = () if callable(form.index_types) else form.index_types
    way.rows, way.dense_axes = rows_named(way.types), form.dense_axes
    way.any_start, way.compact = form.ragged.any_start, form.ragged.compact
    way.masks_of = form.masked.library or way.to
    way.mask_changes = form.copies or form.masked.why_packed or (
        OPPOSITE if source.masked.opposite != form.masked.opposite else "")
    way.kind = between.kind
    if isinstance(route.key, type) and between.wanted is None:
        way.kind = kind_below(route.key, src, way, route.target)
    return way


cdef object kind_below(object base, object src, Way way, Target target):
    """The type of a form that is below another type, for which it is asked; None where that is the type of all."""
    kinds = [getattr(target.namespace, each, None) for each in way.target.types]
    below = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, base)]
    if below:
        return below[0] if len(below) == 1 else None
    # An array that is an example has a type below those that name its library, as jaxlib's ArrayImpl is.
    if target.facts.mixes_forms or target.facts.delivery != "forms" and base not in target.array_types:
        return None
    raise refusal(ConversionError, target.name, "to", full_name(base), f"is no type of {way.form}",
                  f"pass {made_dense(way.source, src)}")


cdef Apart taken(object src, Way way, Target target, str beyond, const Request* request, bint will_fetch=False):
    """The parts of an array, looked at. By a request they are on the host before, if they are to be there.

    ``will_fetch``: whether a conversion would bring them there.
    """
    cdef Apart apart
    cdef list parts
    cdef bint is_fetched = False
    copied = way.copied(src) if way.copied is not None else ""
    if copied and request != NULL and request.copy == COPY_NEVER:
        raise refusal(CopyRequiredError, way.form, "type", full_name(type(src)), f"{copied}, which is a copy",
                      "pass copy=None")
    shape, parts = way.take_apart(src)
    if request != NULL and request.has_device and is_host(request.device.device_type) and not is_on(
            parts[0], target.hosts, &request.device):
        parts = [fetched(part, way.form, name, request) for name, part in zip(PARTS[way.form], parts)]
        is_fetched = True
    apart = taken_apart(way.form, way.source_coordinates, shape, parts, beyond)
    apart.is_fetched, apart.copied = is_fetched, copied
    if way.form == "ragged":
        check_offsets(apart, src, way, target, will_fetch)
    elif way.form == "masked":
        if apart.indices and way.source.masked.why_unpacked is not None:
            (<Seen> apart.indices[0]).changed = way.source.masked.why_unpacked(src)
    elif not apart.indexed or apart.indexed != len(apart.shape) and not way.dense_axes:
        raise refusal(ConversionError, target.name, "shape", apart.shape,
                      f"has {len(apart.shape) - apart.indexed} axes without indices",
                      f"pass {made_dense(way.source, src)}")
    if not target.rows >> apart.data.managed.row & 1 and way.to != target.name:
        raise refusal(ConversionError, target.name, "dtype", row_name(apart.data.managed.row),
                      f"is none that {target.name} has", "convert it to float32 first")
    if way.check is not None:
        way.check(way.kind, apart.shape, row_name(apart.data.managed.row), parts[0])
    if 0 <= apart.count < apart.data.managed.abi.dl_tensor.shape[0]:        # SciPy's and JAX's may have room for more
        parts[0], parts[1] = as_numpy(parts[0])[:apart.count], as_numpy(parts[1])[:apart.count]
        apart = taken_apart(way.form, way.source_coordinates, shape, parts, beyond)
        apart.is_fetched, apart.copied = is_fetched, copied
    return apart


cdef int check_offsets(Apart apart, object src, Way way, Target target, bint will_fetch) except -1:
    """Check that the target takes as many ragged axes, and offsets that begin so; if not, let them begin with 0."""
    axes = way.target.ragged.axes
    if axes and len(apart.indices) > axes:
        raise refusal(ConversionError, way.form, "shape", apart.shape,
                      f"has {len(apart.indices)} ragged axes, and {target.name} takes {axes}",
                      f"pass {made_dense(way.source, src)}")
    if way.any_start:
        return 0
    if way.source.ragged.any_start and not is_on_host(apart.indices[0]) and not will_fetch:
        raise refusal(ConversionError, way.form, "offsets", "of a device", "need not begin with 0, as they do in "
                      f"{target.name}", 'pass device="cpu"')
    return 0 if apart.is_compact else make_compact(apart, way)


cdef int make_compact(Apart apart, Way way) except -1:
    """Let offsets begin with 0, and end with the data. Of a slice they do not, and most libraries believe that."""
    cdef Seen part
    start, stop = 0, apart.shape[0]
    for axis, part in enumerate(apart.indices):
        array = sliced(part, start, stop + 1, way)
        values = as_numpy(array)
        start, stop = int(values[0]), int(values[len(values) - 1])
        made = indices_seen(part.form, part.name, values - values[0] if start else array)
        if start:
            made.changed = f"offsets begin with {start}"
        apart.indices[axis] = made
    apart.data.array = sliced(apart.data, start, stop, way)
    return 0


cdef object sliced(Seen part, object start, object stop, Way way):
    return (as_numpy(part.array) if way.source.ragged.slices_copy else part.array)[start:stop]


cdef object fetched(object part, str form, str name, const Request* request):
    """A part on the host: a device's indices cannot be looked at there."""
    cdef Request asked = request[0]
    if type(part) is tuple:
        return tuple([fetched(each, form, name, request) for each in part])
    asked.readonly = READONLY_SHARE
    try:
        return convert_to(part, "numpy", &asked)
    except DLBridgeError as error:
        raise in_part(error, form, name) from error


cdef list convert_each(Apart apart, Way way, const Request* request):
    """The parts, in arrays of the target."""
    cdef Seen part
    cdef list made = [convert_data(apart.data, way, request)]
    if apart.form == "masked":
        made.append(convert_mask(apart.indices[0], way, request) if apart.indices else None)
        return made
    wanted = index_type(apart, way)
    if apart.form == "coo":
        made.append(convert_coordinates(apart, wanted, way, request))
        return made
    indices = [convert_indices(part, part.array, wanted, way, request) for part in apart.indices]
    made += [tuple(indices)] if apart.form == "ragged" else indices
    return made


cdef object convert_mask(Seen part, Way way, const Request* request):
    cdef Request asked = request[0]
    array = part.array
    becomes = changes(part, None, way)
    if becomes:
        note_change(part, becomes, way.to, request)
        asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
    try:
        array = as_numpy(array) if becomes else array
        if way.source.masked.opposite != way.target.masked.opposite:
            array = np.logical_not(array)
        return convert_to(array, way.masks_of, &asked)
    except DLBridgeError as error:
        raise in_part(error, part.form, part.name) from error


cdef object convert_data(Seen part, Way way, const Request* request):
    if not (part.swapped and way.native):
        return convert_part(part, part.array, way, request)
    note_change(part, SWAPPED, way.to, request)
    cdef Request asked = request[0]
    asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
    return convert_part(part, native(part.array), way, &asked)


cdef object native(object array):
    array = as_numpy(array)
    return array.astype(array.dtype.newbyteorder("="))


cdef object convert_part(Seen part, object array, Way way, const Request* request):
    cdef Request asked = request[0]
    try:
        return convert_to(array, way.to, &asked)
    except DLBridgeError as error:
        raise in_part(error, part.form, part.name) from error


# ---- indices ---------------------------------------------------------------------------------------------------------

cdef str index_type(Apart apart, Way way):
    """The dtype that index arrays get; None where they keep theirs. What a device has is left to its library."""
    cdef Seen part
    cdef uint64_t rows = 0
    for part in apart.indices:
        if not is_on_host(part):
            return None
        rows |= <uint64_t> 1 << part.managed.row
    types = way.types if way.index_types is None else way.index_types(way.kind)
    if not types or rows & (rows - 1) == 0 and rows & ~(way.rows if way.index_types is None else rows_of(types)) == 0:
        return None
    # Indices are below the extents, and offsets go up to as many elements, or other offsets, as there are.
    lengths = [extent for extent in apart.shape if extent is not None]
    for part in [apart.data, *apart.indices]:
        lengths.append(part.managed.abi.dl_tensor.shape[0])
    if "int32" in types and max(lengths) < 1 << 31:
        return "int32"
    if "int64" in types:
        return "int64"
    raise refusal(ConversionError, apart.form, "shape", apart.shape, "is too large for indices of int32",
                  f"call {way.target.widens}" if way.target.widens else 'let index_types have "int64"')


cdef uint64_t rows_of(object types) except? 0:
    """The rows of index types, of which there are few tuples."""
    rows = ROWS.get(types)
    if rows is None:
        rows = ROWS[types] = rows_named(types)
    return rows


cdef object convert_indices(Seen part, object array, str wanted, Way way, const Request* request):
    cdef Request asked
    becomes = changes(part, wanted, way)
    if not becomes:
        return convert_part(part, array, way, request)
    note_change(part, becomes, way.to, request)
    asked = request[0]
    asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
    array = as_numpy(array)
    made = room_for(array.shape, wanted or row_name(part.managed.row), way)
    made[...] = array               # each value is within the shape
    return convert_part(part, made, way, &asked)


cdef str changes(Seen part, str wanted, Way way):
    """Why indices are copied before they are converted, or ""."""
    if way.form == "masked":
        return part.changed or way.mask_changes
    if is_cast(part, wanted, way):
        return indices_become(part, wanted)
    if way.compact and part.managed.abi.dl_tensor.strides[0] != 1 and not part.changed:
        return "they leave gaps"
    return part.changed or ""


cdef bint is_cast(Seen part, str wanted, Way way) except -1:
    """Whether indices get another dtype, or another byte order."""
    return wanted is not None and row_name(part.managed.row) != wanted or part.swapped and way.native


cdef str indices_become(Seen part, str what):
    if part.swapped:
        return SWAPPED
    return f"indices of {row_name(part.managed.row)} become {what}"


cdef int note_change(Seen part, str reason, str to, const Request* request) except -1:
    """Tell who watches of a copy of a part that is made for another reason than that of memory, or refuse one."""
    if request.copy == COPY_NEVER:
        raise refusal(CopyRequiredError, part.form, "part", part.name, f"{reason}, which is a copy", "pass copy=None")
    add(&copies_made, 1)
    if is_watched():
        note_copy(part.array, part.managed, to, reason, "nothing to do: it is copied")
    return 0


cdef int note_copies(Apart apart, Way way, const Request* request) except -1:
    """Tell of the copies of all parts, but of those that are told of where they are converted."""
    cdef Seen part
    reason = apart.copied or way.copies
    note_change(apart.data, reason, way.to, request)
    wanted = None if way.form == "masked" else index_type(apart, way)
    for part in apart.indices:
        if not changes(part, wanted, way):
            note_change(part, reason, way.to, request)
    return 0


cdef object as_numpy(object array):
    cdef Request asked = SHARING
    return convert_to(array, "numpy", &asked)


cdef object convert_coordinates(Apart apart, str wanted, Way way, const Request* request):
    """Coordinates as the target keeps them: an array for each axis, or one with their rows, or with their columns."""
    cdef Seen part
    if way.source_coordinates == way.target_coordinates == "each":
        return tuple([convert_indices(part, part.array, wanted, way, request) for part in apart.indices])
    if way.source_coordinates == "each":
        return stacked(apart, wanted, way, request)
    part = apart.indices[0]
    array = part.array.T if (way.source_coordinates, way.target_coordinates) == ("rows", "columns") else part.array
    made = convert_indices(part, array, wanted, way, request)
    if way.source_coordinates == "columns" and way.target_coordinates != "columns":
        made = made.T
    return tuple(made) if way.target_coordinates == "each" else made


cdef object stacked(Apart apart, str wanted, Way way, const Request* request):
    """One array for the coordinates of all axes."""
    cdef Request asked = request[0]
    cdef Seen part
    cdef list axes = []
    for part in apart.indices:
        check_on_host(part, way)
        note_change(part, indices_become(part, wanted or ONE_ARRAY), way.to, request)
        axes.append(as_numpy(part.array))
    asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
    by_column = way.target_coordinates == "columns"
    shape = (len(axes), len(axes[0]))
    if wanted is None:
        rows = {(<Seen> part).managed.row for part in apart.indices}
        wanted = row_name(rows.pop()) if len(rows) == 1 else "int64"
    made = room_for(shape[::-1] if by_column else shape, wanted, way)
    for place, axis in enumerate(axes):
        (made.T if by_column else made)[place] = axis
    return convert_part(apart.indices[0], made, way, &asked)


cdef int check_on_host(Seen part, Way way) except -1:
    if not is_on_host(part):
        raise refusal(ConversionError, part.form, "coords", "of a device", "are an array for each axis, and "
                      f"{way.to} has one for all", 'pass x.tocsr(), or device="cpu"')
    return 0


cdef object room_for(tuple shape, str dtype, Way way):
    """An ndarray in memory that the target can share."""
    return as_numpy(new_tensor_of(shape, dtype)) if way.aligned else np.empty(shape, dtype)


cdef bint is_in_order(Apart apart, Way way, Target target) except -1:
    """Whether elements are in order, each there once. If not, compressed ones are refused: no library sorts those."""
    cdef Seen part
    cdef list arrays = []
    for part in apart.indices:
        if not is_on_host(part):
            return way.form != "coo"        # its library has to be believed
        arrays.append(native(part.array) if part.swapped else as_numpy(part.array))
    if way.form == "coo":
        coords = arrays[0].T if way.source_coordinates == "columns" else arrays[0] if (
            way.source_coordinates == "rows") else arrays
        try:
            places = np.ravel_multi_index(tuple(coords), apart.shape)
        except ValueError:
            return False            # there are more places than numbers for them
        return bool((np.diff(places) > 0).all())
    rises = arrays[0][1:] > arrays[0][:len(arrays[0]) - 1]
    starts = arrays[1][(arrays[1] > 0) & (arrays[1] < len(arrays[0]))].astype("int64")
    rises[starts - 1] = True
    if not rises.all():
        raise refusal(ConversionError, target.name, "indices", f"of {way.form}", "are out of order, or there more than "
                      f"once, which {target.name} does not notice", f"pass {way.source.sparse.ordered}")
    return True


cdef str made_dense(object form, object src):
    return form.dense(src) if callable(form.dense) else form.dense


cdef bint can_become(object src, str name, str wanted, object source) except -1:
    """Whether a library makes an array into one of another form, in one call."""
    form = source.forms.get(name)
    if "ragged" in (name, wanted):
        return False
    return (wanted == "coo" or len(src.shape) == 2) and (
        form is None or form.sparse.makes and getattr(form.part_on_device(src), "ndim", 1) == 1)


# ---- which form ------------------------------------------------------------------------------------------------------

cdef object find_form(object src, object name, object between):
    """How the target has such an array; an error where it has not."""
    target, wanted = between.target, between.wanted
    if name is None:
        offers = offers_for_type(type(src))
        if (<Offer> offers[0]).facts.form_name is not None or not has_offer(offers, src):
            managed_release(acquire_by(offers, src, &LOOKING))      # its own error says more
        raise refusal(ConversionError, target.name, "type", full_name(type(src)), "is one array, and several are asked "
                      "for", f"pass {target.forms[wanted].of_dense}")
    if name in between.source.forms and name in target.forms and wanted in (None, name):
        return target.forms[name]
    both = [each for each in ((wanted,) if wanted else target.forms)
            if each in between.source.forms and each != name and can_become(src, name, each, between.source)]
    same = between.source.forms.get(name) or next(iter(between.source.forms.values()))
    made = between.source.forms[both[0]].sparse.made if both else made_dense(same, src)
    having = [library.name for library in libraries().values()
              if name in library.forms and library.forms[name].put_together is not None]
    others = f"; {', '.join(having)} {'have' if len(having) > 1 else 'has'} it" if having else ""
    wrong = f"is not {wanted}" if wanted in target.forms and name in target.forms else (
        f"is none that {target.name} has{others}")
    raise refusal(ConversionError, target.name, "form", name, wrong, f"pass {made}")
