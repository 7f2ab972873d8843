/* An extension that uses dlbridge's C API, for tests/face/test_face.py. It also compiles under Py_LIMITED_API, and as C++. */
#include "dlbridge.h"
#include <pthread.h>
#include <stdlib.h>

static const char *const VIEW_NAME = "dlbridge_View", *const TENSOR_NAME = "DLManagedTensorVersioned";

static PyObject *integers(const int64_t *values, int32_t count) {
    PyObject *made = PyTuple_New(count);
    for (int32_t index = 0; made != NULL && index < count; index++)
        PyTuple_SetItem(made, index, PyLong_FromLongLong(values[index]));
    return made;
}

static PyObject *described(const DLTensor *tensor, uint64_t flags, int owned) {
    return Py_BuildValue("{s:K,s:N,s:N,s:(iii),s:(ii),s:K,s:K,s:i}",
                         "data", (unsigned long long) (uintptr_t) tensor->data,
                         "shape", integers(tensor->shape, tensor->ndim),
                         "strides", integers(tensor->strides, tensor->ndim),
                         "dtype", (int) tensor->dtype.code, (int) tensor->dtype.bits, (int) tensor->dtype.lanes,
                         "device", (int) tensor->device.device_type, (int) tensor->device.device_id,
                         "byte_offset", (unsigned long long) tensor->byte_offset,
                         "flags", (unsigned long long) flags, "owned", owned);
}

/* (obj, flags, name, (code, bits, lanes), shape or None, stream, size, extra, dtypes, count): shape () asks for no axes,
   None for any; dtypes is a tuple like the fourth. */
struct asked {
    dlbridge_Want want;
    char more[64];
    int64_t shape[DLBRIDGE_MAX_NDIM];
    DLDataType dtypes[8];
};

static int ask(PyObject *arguments, PyObject **obj, struct asked *asked) {
    int code, bits, lanes, ndim, extra;
    unsigned int flags, size;
    long long stream, dtype_count;
    PyObject *shape, *dtypes;
    const char *name;
    asked->want = dlbridge_want(NULL, 0);
    if (!PyArg_ParseTuple(arguments, "OIz(iii)iOLIiOL", obj, &flags, &name, &code, &bits, &lanes, &ndim, &shape, &stream,
                          &size, &extra, &dtypes, &dtype_count))
        return -1;
    asked->want.dtype_count = dtype_count;
    for (Py_ssize_t index = 0; index < PyTuple_Size(dtypes); index++) {
        PyObject *each = PyTuple_GetItem(dtypes, index);
        asked->dtypes[index].code = (uint8_t) PyLong_AsLong(PyTuple_GetItem(each, 0));
        asked->dtypes[index].bits = (uint8_t) PyLong_AsLong(PyTuple_GetItem(each, 1));
        asked->dtypes[index].lanes = (uint16_t) PyLong_AsLong(PyTuple_GetItem(each, 2));
        asked->want.dtypes = asked->dtypes;
    }
    asked->want.flags = flags;
    asked->want.name = name;
    asked->want.dtype.code = (uint8_t) code;
    asked->want.dtype.bits = (uint8_t) bits;
    asked->want.dtype.lanes = (uint16_t) lanes;
    asked->want.ndim = ndim;
    asked->want.stream = stream;
    if (size)
        asked->want.size = size;
    for (size_t index = 0; index < sizeof asked->more; index++)
        asked->more[index] = (char) extra;
    if (shape != Py_None) {
        for (int axis = 0; axis < ndim; axis++)
            asked->shape[axis] = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
        asked->want.shape = asked->shape;
    }
    return 0;
}

static void drop_view(PyObject *capsule) {
    dlbridge_View *view = (dlbridge_View *) PyCapsule_GetPointer(capsule, VIEW_NAME);
    dlbridge_release(view);
    dlbridge_release(view);
    free(view);
}

static PyObject *view(PyObject *self, PyObject *arguments) {
    struct asked asked;
    PyObject *obj;
    dlbridge_View *out = (dlbridge_View *) malloc(sizeof *out);
    (void) self;
    out->owner = NULL;
    if (ask(arguments, &obj, &asked) < 0 || dlbridge_view(obj, &asked.want, out) < 0) {
        dlbridge_release(out);
        free(out);
        return NULL;
    }
    return Py_BuildValue("NN", PyCapsule_New(out, VIEW_NAME, drop_view),
                         described(&out->tensor, out->flags, out->owner != NULL));
}

static PyObject *view_anything(PyObject *self, PyObject *obj) {
    dlbridge_View out;
    PyObject *made;
    (void) self;
    if (dlbridge_view(obj, NULL, &out) < 0)
        return NULL;
    made = described(&out.tensor, out.flags, out.owner != NULL);
    dlbridge_release(&out);
    return made;
}

static PyObject *describe(PyObject *self, PyObject *capsule) {
    dlbridge_View *view = (dlbridge_View *) PyCapsule_GetPointer(capsule, VIEW_NAME);
    (void) self;
    return view == NULL ? NULL : described(&view->tensor, view->flags, view->owner != NULL);
}

/* The sum of a view's doubles, read without the GIL. */
static PyObject *sum(PyObject *self, PyObject *obj) {
    dlbridge_View view;
    dlbridge_Want want = dlbridge_want("sum(array)", DLBRIDGE_C_ORDER);
    double total = 0;
    int64_t count = 1;
    (void) self;
    want.dtype = dlbridge_dtype(kDLFloat, 64);
    if (dlbridge_view(obj, &want, &view) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (int32_t axis = 0; axis < view.tensor.ndim; axis++)
        count *= view.tensor.shape[axis];
    for (int64_t index = 0; index < count; index++)
        total += ((const double *) view.tensor.data)[index];
    dlbridge_release(&view);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(total);
}

static void drop_tensor(PyObject *capsule) {
    DLManagedTensorVersioned *tensor;
    if (PyCapsule_IsValid(capsule, TENSOR_NAME)) {
        tensor = (DLManagedTensorVersioned *) PyCapsule_GetPointer(capsule, TENSOR_NAME);
        tensor->deleter(tensor);
    }
}

static PyObject *holding(DLManagedTensorVersioned *tensor) {
    return tensor == NULL ? NULL : PyCapsule_New(tensor, TENSOR_NAME, drop_tensor);
}

static PyObject *acquire(PyObject *self, PyObject *arguments) {
    struct asked asked;
    PyObject *obj;
    (void) self;
    return ask(arguments, &obj, &asked) < 0 ? NULL : holding(dlbridge_acquire(obj, &asked.want));
}

static PyObject *describe_tensor(PyObject *self, PyObject *capsule) {
    DLManagedTensorVersioned *tensor = (DLManagedTensorVersioned *) PyCapsule_GetPointer(capsule, TENSOR_NAME);
    (void) self;
    return tensor == NULL ? NULL : described(&tensor->dl_tensor, tensor->flags, 1);
}

/* Let a tensor go in a thread that Python does not know. */
static void *delete_tensor(void *given) {
    DLManagedTensorVersioned *tensor = (DLManagedTensorVersioned *) given;
    tensor->deleter(tensor);
    return NULL;
}

static PyObject *release_elsewhere(PyObject *self, PyObject *capsule) {
    pthread_t thread;
    void *tensor = PyCapsule_GetPointer(capsule, TENSOR_NAME);
    (void) self;
    if (tensor == NULL || PyCapsule_SetName(capsule, "used") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_create(&thread, NULL, delete_tensor, tensor);
    pthread_join(thread, NULL);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *deliver(PyObject *self, PyObject *arguments) {
    PyObject *capsule, *to;
    DLManagedTensorVersioned *tensor;
    (void) self;
    if (!PyArg_ParseTuple(arguments, "OO", &capsule, &to))
        return NULL;
    tensor = (DLManagedTensorVersioned *) PyCapsule_GetPointer(capsule, TENSOR_NAME);
    if (tensor == NULL || PyCapsule_SetName(capsule, "used") < 0)
        return NULL;
    return dlbridge_deliver(tensor, to);
}

/* Change what lies open in a tensor: (capsule, ndim), where -2 takes its shape away and -3 its strides. */
static PyObject *change(PyObject *self, PyObject *arguments) {
    PyObject *capsule;
    int ndim;
    DLManagedTensorVersioned *tensor;
    (void) self;
    if (!PyArg_ParseTuple(arguments, "Oi", &capsule, &ndim))
        return NULL;
    tensor = (DLManagedTensorVersioned *) PyCapsule_GetPointer(capsule, TENSOR_NAME);
    if (tensor == NULL)
        return NULL;
    if (ndim == -2)
        tensor->dl_tensor.shape = NULL;
    else if (ndim == -3)
        tensor->dl_tensor.strides = NULL;
    else
        tensor->dl_tensor.ndim = ndim;
    Py_RETURN_NONE;
}

/* Call a function of the face with NULL, with the exception pending, or None. */
static PyObject *with_null(PyObject *self, PyObject *arguments) {
    const char *function;
    PyObject *pending;
    dlbridge_View view;
    DLManagedTensorVersioned *made;
    int64_t shape[] = {3};
    DLTensor like = {NULL, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
    (void) self;
    if (!PyArg_ParseTuple(arguments, "sO", &function, &pending))
        return NULL;
    made = dlbridge_make(&like, 0, NULL, NULL);
    if (pending != Py_None)
        PyErr_SetObject((PyObject *) Py_TYPE(pending), pending);
    if (function[0] == 'v')
        view.owner = made, (void) dlbridge_view(NULL, NULL, &view), made = view.owner == NULL ? made : NULL;
    else if (function[0] == 'a')
        (void) dlbridge_acquire(NULL, NULL);
    else if (function[0] == 'm')
        (void) dlbridge_make(NULL, 0, NULL, NULL);
    else
        (void) dlbridge_deliver(made, NULL), made = NULL;
    if (made != NULL)
        made->deleter(made);
    return NULL;
}

static int drops = 0;

static void count_drop(void *owner) {
    free(owner);
    __atomic_add_fetch(&drops, 1, __ATOMIC_SEQ_CST);
}

/* As code of Python may do that it calls, it leaves an exception behind. */
static void count_drop_and_fail(void *owner) {
    PyGILState_STATE state = PyGILState_Ensure();
    count_drop(owner);
    PyErr_SetString(PyExc_OSError, "left by a function that lets go");
    PyGILState_Release(state);
}

static PyObject *dropped(PyObject *self, PyObject *nothing) {
    (void) self, (void) nothing;
    return PyLong_FromLong(__atomic_load_n(&drops, __ATOMIC_SEQ_CST));
}

/* (shape, (code, bits, lanes), flags, how): "fresh"; "drop": memory of malloc, freed by a function; "fails": by one that
   leaves an exception; "static"; or an object whose buffer it is. */
static PyObject *make(PyObject *self, PyObject *arguments) {
    static double forever[1024];
    int64_t shape[DLBRIDGE_MAX_NDIM];
    int code, bits, lanes;
    unsigned long long flags, address;
    PyObject *extents, *how;
    DLTensor like;
    DLManagedTensorVersioned *made;
    void *memory;
    (void) self;
    if (!PyArg_ParseTuple(arguments, "O(iii)KOK", &extents, &code, &bits, &lanes, &flags, &how, &address))
        return NULL;
    like.device.device_type = kDLCPU;
    like.device.device_id = 0;
    like.ndim = (int32_t) PyTuple_Size(extents);
    for (int32_t axis = 0; axis < like.ndim && axis < DLBRIDGE_MAX_NDIM; axis++)
        shape[axis] = PyLong_AsLongLong(PyTuple_GetItem(extents, axis));
    like.dtype.code = (uint8_t) code;
    like.dtype.bits = (uint8_t) bits;
    like.dtype.lanes = (uint16_t) lanes;
    like.shape = shape;
    like.strides = NULL;
    like.byte_offset = 0;
    like.data = NULL;
    if (how == Py_None)
        return holding(dlbridge_make(&like, flags, NULL, NULL));
    if (!PyUnicode_Check(how)) {
        like.data = (void *) (uintptr_t) address;
        return holding(dlbridge_make(&like, flags, how, NULL));
    }
    if (PyUnicode_GetLength(how) == 6) {        /* "static" */
        like.data = forever;
        return holding(dlbridge_make(&like, flags, NULL, NULL));
    }
    memory = calloc(1024, sizeof(double));
    like.data = memory;
    made = dlbridge_make(&like, flags, memory, PyUnicode_GetLength(how) == 5 ? count_drop_and_fail : count_drop);
    if (made == NULL)
        free(memory);
    return holding(made);
}

static PyObject *layout(PyObject *self, PyObject *nothing) {
    (void) self, (void) nothing;
    return Py_BuildValue(
        "{s:[kkkkkkkkkk],s:[kkkkk],s:[kkkkkkkk],s:[iiiii]}",
        "want", (unsigned long) sizeof(dlbridge_Want), (unsigned long) offsetof(dlbridge_Want, size),
        (unsigned long) offsetof(dlbridge_Want, flags), (unsigned long) offsetof(dlbridge_Want, name),
        (unsigned long) offsetof(dlbridge_Want, dtype), (unsigned long) offsetof(dlbridge_Want, ndim),
        (unsigned long) offsetof(dlbridge_Want, shape), (unsigned long) offsetof(dlbridge_Want, stream),
        (unsigned long) offsetof(dlbridge_Want, dtypes), (unsigned long) offsetof(dlbridge_Want, dtype_count),
        "view", (unsigned long) sizeof(dlbridge_View), (unsigned long) offsetof(dlbridge_View, tensor),
        (unsigned long) offsetof(dlbridge_View, flags), (unsigned long) offsetof(dlbridge_View, owner),
        (unsigned long) offsetof(dlbridge_View, room),
        "table", (unsigned long) sizeof(dlbridge_Table), (unsigned long) offsetof(dlbridge_Table, major),
        (unsigned long) offsetof(dlbridge_Table, minor), (unsigned long) offsetof(dlbridge_Table, older),
        (unsigned long) offsetof(dlbridge_Table, view), (unsigned long) offsetof(dlbridge_Table, acquire),
        (unsigned long) offsetof(dlbridge_Table, deliver), (unsigned long) offsetof(dlbridge_Table, make),
        "flags", (int) DLBRIDGE_WRITABLE, (int) DLBRIDGE_C_ORDER, (int) DLBRIDGE_ANY_DEVICE, (int) DLBRIDGE_DETACHED,
        (int) DLBRIDGE_OR_COPY);
}

/* A capsule with a table of these versions, the newest first, which has the functions of the real one. */
static PyObject *table_of(PyObject *self, PyObject *versions) {
    Py_ssize_t count = PyTuple_Size(versions);
    dlbridge_Table *tables = (dlbridge_Table *) malloc(sizeof(dlbridge_Table) * (size_t) count);
    (void) self;
    for (Py_ssize_t index = 0; index < count; index++) {
        tables[index] = *DLBRIDGE_TABLE;
        if (!PyArg_ParseTuple(PyTuple_GetItem(versions, index), "II", &tables[index].major, &tables[index].minor))
            return NULL;
        tables[index].older = index + 1 < count ? &tables[index + 1] : NULL;
    }
    return PyCapsule_New(tables, "dlbridge._C_API", NULL);
}

static PyObject *import_again(PyObject *self, PyObject *nothing) {
    (void) self, (void) nothing;
    if (dlbridge_import() < 0)
        return NULL;
    return Py_BuildValue("II", DLBRIDGE_TABLE->major, DLBRIDGE_TABLE->minor);
}

#ifdef WITH_A_SECOND_FILE
#include "second.h"

static PyObject *in_the_second(PyObject *self, PyObject *obj) {
    dlbridge_View out;
    int failed = view_in_the_second(obj, &out);
    (void) self;
    if (failed)
        return PyErr_Occurred() ? NULL : PyLong_FromLong(failed);
    dlbridge_release(&out);
    return PyLong_FromLongLong(out.tensor.shape[0]);
}
#endif

static PyMethodDef functions[] = {
#ifdef WITH_A_SECOND_FILE
    {"view_in_the_second", in_the_second, METH_O, NULL},
#endif
    {"view", view, METH_VARARGS, NULL},
    {"view_anything", view_anything, METH_O, NULL},
    {"describe", describe, METH_O, NULL},
    {"sum", sum, METH_O, NULL},
    {"acquire", acquire, METH_VARARGS, NULL},
    {"describe_tensor", describe_tensor, METH_O, NULL},
    {"release_elsewhere", release_elsewhere, METH_O, NULL},
    {"deliver", deliver, METH_VARARGS, NULL},
    {"change", change, METH_VARARGS, NULL},
    {"with_null", with_null, METH_VARARGS, NULL},
    {"make", make, METH_VARARGS, NULL},
    {"dropped", dropped, METH_NOARGS, NULL},
    {"layout", layout, METH_NOARGS, NULL},
    {"table_of", table_of, METH_O, NULL},
    {"import_again", import_again, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "face", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_face(void) {
    PyObject *module = dlbridge_import() < 0 ? NULL : PyModule_Create(&definition);
#if defined(Py_GIL_DISABLED) && !defined(Py_LIMITED_API)
    if (module != NULL)
        PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
