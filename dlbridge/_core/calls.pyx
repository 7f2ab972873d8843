"""The calling convention of convert() and asdlpack(): a C function in front of Cython's wrapper of each.

For each call, Cython's wrapper of such a function fills in, counts and releases an object for each parameter. That is a
third of what convert(src, to) costs beside the target library's own constructor. So convert_plainly() serves calls with
keywords that it knows, and asdlpack_plainly() serves asdlpack(src). They hand on every other call to the wrapper.
"""

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.string cimport memset

from dlbridge._core.cache cimport ROUTES, cached, steal
from dlbridge._core.conversion cimport convert_by_block, convert_by_route
from dlbridge._core.late cimport c_function, load_module
from dlbridge._core.request cimport KEYWORDS, NOTHING_ASKED, Request, keyword_of, parse_keyword, parse_keywords
from dlbridge._core.route cimport Route, route_to
from dlbridge.tensor cimport Tensor

cdef extern from "Python.h":
    ctypedef struct PyMethodDef:
        const char* ml_name
        void* ml_meth
        int ml_flags
        const char* ml_doc
    int METH_FASTCALL
    int METH_KEYWORDS
    int PyModule_AddFunctions(object module, PyMethodDef* methods) except -1
    object PyObject_Vectorcall(object function, PyObject** arguments, size_t count, PyObject* names)

OF_TREES = ("device", "copy", "stream", "readonly", "detach", "narrow", "order")
OPTIONS = (*OF_TREES, "dtype", "shape", "out")

# A function of METH_FASTCALL | METH_KEYWORDS. names are the keywords of the last arguments, or NULL.
ctypedef object (*Quick)(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names)

ctypedef object (*ConvertSeen)(object src, object to, object dtype, object shape, Request* request)

ctypedef object (*ConvertForm)(object src, Route route, const Request* request)

cdef void* convert_form         # of forms.pyx, which the first array of several arrays loads
cdef void* convert_seen         # of described.pyx, which the first dtype= or shape= loads
cdef PyMethodDef[2] CONVERT      # the second ends the list
cdef PyMethodDef[2] ASDLPACK
cdef list texts = []            # kept for ever, since PyMethodDef has pointers into them
cdef object whole_convert
cdef object whole_asdlpack


cdef object convert_plainly(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names):
    """convert(): by a cached route, if nothing but src and to is passed and there is one; otherwise by keywords."""
    cdef PyObject* entry
    cdef Route route
    if names == NULL and count == 2 or count == 1 and is_to(names):
        entry = cached(ROUTES, arguments[0], arguments[1])
        if entry != NULL:
            route = <Route> steal(entry)
            if route.plain:
                return convert_by_block(<object> arguments[0], route, &route.request)
            if route.already or route.forms is None:
                return convert_by_route(<object> arguments[0], route, &route.request)
            return convert_with_forms(<object> arguments[0], route, &route.request)
    return convert_by_keywords(arguments, count, names)


cdef object convert_any(object src, object to, Request* request):
    """Convert src, which may be several arrays. The request gets the target's current stream, as in convert_to()."""
    cdef Route route = route_to(src, to, request)
    return convert_by_route(src, route, request) if route.forms is None else convert_with_forms(src, route, request)


cdef object convert_with_forms(object src, Route route, const Request* request):
    return (<ConvertForm> c_function(&convert_form, "dlbridge._core.forms", "convert_form"))(src, route, request)


cdef inline bint is_to(PyObject* names) noexcept:
    return names != NULL and PyTuple_GET_SIZE(<tuple> names) == 1 and (
        PyTuple_GET_ITEM(<tuple> names, 0) == <PyObject*> "to")


cdef object convert_by_keywords(PyObject** arguments, Py_ssize_t count, PyObject* names):
    """convert() with keywords, which are found by the addresses of their names. The wrapper serves all other names."""
    cdef Request request = NOTHING_ASKED
    cdef PyObject* to = arguments[1] if count == 2 else NULL
    cdef PyObject* values[KEYWORDS]
    cdef PyObject* dtype = <PyObject*> None
    cdef PyObject* shape = <PyObject*> None
    cdef PyObject* name
    cdef Py_ssize_t index
    cdef int keyword
    cdef bint wrapped = False
    memset(values, 0, sizeof(values))
    for index in range(0 if names == NULL else PyTuple_GET_SIZE(<tuple> names)):
        name = PyTuple_GET_ITEM(<tuple> names, index)
        keyword = keyword_of(name)
        if keyword >= 0:
            values[keyword] = arguments[count + index]
        elif name == <PyObject*> "to" and to == NULL:
            to = arguments[count + index]
        elif name == <PyObject*> "dtype":
            dtype = arguments[count + index]
        elif name == <PyObject*> "shape":
            shape = arguments[count + index]
        elif <object> name in OPTIONS or <object> name in ("src", "to"):
            wrapped = True          # names from a pickle are not interned
        else:
            raise wrong_keyword("convert", <object> name, OPTIONS)
    if wrapped or to == NULL or not 1 <= count <= 2:
        check_arguments(count, () if names == NULL else <tuple> names)
        return PyObject_Vectorcall(whole_convert, arguments, count, names)
    # In the order of parse_request(), whatever the order in the call, so that the first error is the same.
    for keyword in range(<int> KEYWORDS):
        if values[keyword] != NULL:
            parse_keyword(&request, keyword, <object> values[keyword])
    return convert_as(<object> arguments[0], <object> to, <object> dtype, <object> shape, &request)


cdef object convert_as(object src, object to, object dtype, object shape, Request* request):
    if dtype is None and shape is None:
        return convert_any(src, to, request)
    return (<ConvertSeen> c_function(&convert_seen, "dlbridge._core.described", "convert_seen"))(
        src, to, dtype, shape, request)


cdef int check_arguments(Py_ssize_t count, tuple names) except -1:
    if count > 2:
        raise TypeError(
            'convert: arguments: are more than src and to (the others are keywords, such as device="cpu")')
    for name, place in ("src", 1), ("to", 2):
        if count < place and name not in names:
            raise TypeError(f'convert: {name}: is missing (call dlbridge.convert(x, "torch"))')


cdef object wrong_keyword(str function, object name, tuple options):
    return load_module("dlbridge._core.meant").about_keyword(function, name, options)


def check_keywords(str function, tuple own, dict keywords):
    """Raise what convert() would raise for these keywords, which hold for every array of a tree.

    ``own`` are those that the function has beside them.
    """
    cdef Request request
    for name in keywords:
        if name not in OF_TREES:
            raise wrong_keyword(function, name, own + OF_TREES)
    parse_keywords(&request, keywords)


cdef object asdlpack_plainly(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names):
    """asdlpack(src) by a cached route, where there is one.

    A Tensor takes the long way, because its policy may differ from the default one.
    """
    cdef PyObject* entry
    cdef Route route
    if count == 1 and names == NULL and type(<object> arguments[0]) is not Tensor:
        entry = cached(ROUTES, arguments[0], <PyObject*> "dlbridge")
        if entry != NULL:
            route = <Route> steal(entry)
            return convert_by_block(<object> arguments[0], route, &route.request)
    return PyObject_Vectorcall(whole_asdlpack, arguments, count, names)


cdef int put_in_front(object module, object convert, object asdlpack) except -1:
    global whole_convert, whole_asdlpack
    whole_convert, whole_asdlpack = convert, asdlpack
    put(module, CONVERT, convert_plainly, convert)
    put(module, ASDLPACK, asdlpack_plainly, asdlpack)


cdef int put(object module, PyMethodDef* method, Quick quick, object whole) except -1:
    """Put a builtin function with the name, the signature and the documentation of ``whole`` into a module.

    Without the GIL, Python counts no references to functions that were added in this way; otherwise threads that call
    one at the same time would wait for each other.
    """
    name = whole.__name__.encode()
    doc = f"{whole.__name__}{whole.__text_signature__}\n--\n\n{whole.__doc__}".encode()
    texts.extend((name, doc))
    method.ml_name = name
    method.ml_doc = doc
    method.ml_meth = <void*> quick
    method.ml_flags = METH_FASTCALL | METH_KEYWORDS
    return PyModule_AddFunctions(module, method)
