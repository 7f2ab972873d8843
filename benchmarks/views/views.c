/* How an extension looks at its argument: by dlbridge's face, and by hand. Each function takes one object and gives None. */

#define PY_SSIZE_T_CLEAN
#include "dlbridge.h"
#include <numpy/arrayobject.h>

static PyObject *failed(void) {
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_BufferError, "this object is not taken");
    return NULL;
}

static PyObject *nothing(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    (void) self, (void) arguments, (void) count;
    Py_RETURN_NONE;
}

static PyObject *view(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    dlbridge_View view;
    (void) self, (void) count;
    if (dlbridge_view(arguments[0], NULL, &view) < 0)
        return NULL;
    dlbridge_release(&view);
    Py_RETURN_NONE;
}

/* Two axes of float32 in C order. */
static PyObject *view_asked(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    dlbridge_View view;
    dlbridge_Want want = dlbridge_want("view_asked(array)", DLBRIDGE_C_ORDER);
    (void) self, (void) count;
    want.dtype = dlbridge_dtype(kDLFloat, 32);
    want.ndim = 2;
    if (dlbridge_view(arguments[0], &want, &view) < 0)
        return NULL;
    dlbridge_release(&view);
    Py_RETURN_NONE;
}

static PyObject *acquire(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    DLManagedTensorVersioned *tensor = dlbridge_acquire(arguments[0], NULL);
    (void) self, (void) count;
    if (tensor == NULL)
        return NULL;
    tensor->deleter(tensor);
    Py_RETURN_NONE;
}

static PyObject *from_any(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    PyObject *array = PyArray_FromAny(arguments[0], NULL, 0, 0, 0, NULL);
    (void) self, (void) count;
    if (array == NULL)
        return NULL;
    Py_DECREF(array);
    Py_RETURN_NONE;
}

/* The borrowed slot of the exchange table, without any check. */
static const DLPackExchangeAPI *table;

static PyObject *find_table(PyObject *self, PyObject *kind) {
    PyObject *capsule = PyObject_GetAttrString(kind, "__dlpack_c_exchange_api__");
    (void) self;
    if (capsule == NULL)
        return NULL;
    table = (const DLPackExchangeAPI *) PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    if (table == NULL)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *borrow_by_hand(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    DLTensor tensor;
    (void) self, (void) count;
    if (table->dltensor_from_py_object_no_sync(arguments[0], &tensor))
        return failed();
    Py_RETURN_NONE;
}

/* ---- the producing half: memory of the author's becomes an array ------------------------------------------------ */

static float memory[12];

/* deliver(like): by make and deliver, like an example. */
static PyObject *deliver(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    int64_t shape[2] = {3, 4};
    DLTensor like = {memory, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
    DLManagedTensorVersioned *made = dlbridge_make(&like, 0, NULL, NULL);
    (void) self, (void) count;
    return made == NULL ? NULL : dlbridge_deliver(made, arguments[0]);
}

typedef struct {
    DLManagedTensorVersioned tensor;
    int64_t extents[4];
} Exported;

static void drop_exported(DLManagedTensorVersioned *tensor) {
    free(tensor);
}

static void drop_capsule(PyObject *capsule) {
    DLManagedTensorVersioned *tensor;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        tensor = (DLManagedTensorVersioned *) PyCapsule_GetPointer(capsule, "dltensor_versioned");
        tensor->deleter(tensor);
    }
}

/* deliver_by_hand(from_dlpack): by a capsule, which from_dlpack consumes. */
static PyObject *deliver_by_hand(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Exported *exported = (Exported *) malloc(sizeof *exported);
    PyObject *capsule, *made;
    (void) self, (void) count;
    if (exported == NULL)
        return PyErr_NoMemory();
    exported->extents[0] = 3, exported->extents[1] = 4, exported->extents[2] = 4, exported->extents[3] = 1;
    exported->tensor = (DLManagedTensorVersioned) {
        {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, NULL, drop_exported, 0,
        {memory, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, exported->extents, exported->extents + 2, 0}};
    capsule = PyCapsule_New(exported, "dltensor_versioned", drop_capsule);
    made = PyObject_CallOneArg(arguments[0], capsule);
    Py_DECREF(capsule);
    return made;
}

static PyMethodDef functions[] = {
    {"nothing", (PyCFunction) (void *) nothing, METH_FASTCALL, NULL},
    {"view", (PyCFunction) (void *) view, METH_FASTCALL, NULL},
    {"view_asked", (PyCFunction) (void *) view_asked, METH_FASTCALL, NULL},
    {"acquire", (PyCFunction) (void *) acquire, METH_FASTCALL, NULL},
    {"from_any", (PyCFunction) (void *) from_any, METH_FASTCALL, NULL},
    {"find_table", find_table, METH_O, NULL},
    {"borrow_by_hand", (PyCFunction) (void *) borrow_by_hand, METH_FASTCALL, NULL},
    {"deliver", (PyCFunction) (void *) deliver, METH_FASTCALL, NULL},
    {"deliver_by_hand", (PyCFunction) (void *) deliver_by_hand, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "views", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_views(void) {
    import_array();
    return dlbridge_import() < 0 ? NULL : PyModule_Create(&definition);
}
