/* The C floors: the least C that does each conversion. dlbridge is measured beside them.
 *
 * They check the type and the dtype alone. Read-only memory, gradients, negative bits and negative strides (on which
 * torch aborts) go unchecked, so the floors must not be used for anything else.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <numpy/arrayobject.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* DLPack 1.3, in the order of the standard's header. */

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

typedef struct {
    int32_t device_type, device_id;
} DLDevice;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef struct DLPackExchangeAPI {
    DLPackVersion version;
    struct DLPackExchangeAPI *older;
    int (*managed_tensor_allocator)(void);
    int (*managed_tensor_from_py_object_no_sync)(void *, DLManagedTensorVersioned **);
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *, void **);
} DLPackExchangeAPI;

enum { CPU = 1 };
enum { INT, UINT, FLOAT, BFLOAT = 4, COMPLEX, BOOL, CODES };
static const char CAPSULE[] = "dltensor_versioned";

static const DLPackExchangeAPI *torch_api;

/* The dtypes are found by NumPy's type number, and NumPy's types by a code and the logarithm of the element's bytes. */

#define NUMPY_TYPES (NPY_HALF + 1)
#define LOG2_BYTES 5

static DLDataType dltypes[NUMPY_TYPES];
static PyArray_Descr *descrs[CODES][LOG2_BYTES];
static int bfloat16_number = NPY_NOTYPE;
static const DLDataType bfloat16 = {BFLOAT, 16, 1};

static int log2_bytes(DLDataType dtype) { return __builtin_ctz(dtype.bits) - 3; }

static int
fill_dtypes(void)
{
    static const struct {
        int number, code;
    } codes[] = {
        {NPY_BOOL, BOOL},   {NPY_BYTE, INT},     {NPY_UBYTE, UINT},    {NPY_SHORT, INT},  {NPY_USHORT, UINT},
        {NPY_INT, INT},     {NPY_UINT, UINT},    {NPY_LONGLONG, INT},  {NPY_ULONGLONG, UINT},
        {NPY_LONG, INT},    {NPY_ULONG, UINT},   {NPY_HALF, FLOAT},    {NPY_FLOAT, FLOAT},
        {NPY_DOUBLE, FLOAT}, {NPY_CFLOAT, COMPLEX}, {NPY_CDOUBLE, COMPLEX},
    };
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        PyArray_Descr *descr = PyArray_DescrFromType(codes[i].number);
        if (descr == NULL) {
            return -1;
        }
        DLDataType dtype = {(uint8_t)codes[i].code, (uint8_t)(8 * PyDataType_ELSIZE(descr)), 1};
        dltypes[codes[i].number] = dtype;
        Py_XSETREF(descrs[dtype.code][log2_bytes(dtype)], descr);
    }
    return 0;
}

static int
fill_bfloat16(void)
{
    PyObject *ml_dtypes = PyImport_ImportModule("ml_dtypes");
    if (ml_dtypes == NULL) {
        PyErr_Clear();
        return 0;
    }
    PyObject *type = PyObject_GetAttrString(ml_dtypes, "bfloat16");
    Py_DECREF(ml_dtypes);
    PyArray_Descr *descr = NULL;
    int converted = type != NULL && PyArray_DescrConverter(type, &descr);
    Py_XDECREF(type);
    if (!converted) {
        return -1;
    }
    bfloat16_number = descr->type_num;
    descrs[BFLOAT][log2_bytes(bfloat16)] = descr;
    return 0;
}

/* An ndarray as a managed tensor: one block has the struct, then the shape and the strides. */

typedef struct {
    DLManagedTensorVersioned managed;
    Py_ssize_t references;
    int64_t axes[];
} Block;

static void
release(Block *block)
{
    if (--block->references == 0) {
        Py_DECREF((PyObject *)block->managed.manager_ctx);
        free(block);
    }
}

static void
delete_block(DLManagedTensorVersioned *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();       /* torch calls this without the GIL */
    release((Block *)managed);
    PyGILState_Release(state);
}

static Block *
export_ndarray(PyObject *obj)
{
    if (!PyArray_CheckExact(obj)) {
        PyErr_SetString(PyExc_TypeError, "an ndarray is wanted");
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)obj;
    int number = PyArray_TYPE(array), ndim = PyArray_NDIM(array);
    DLDataType dtype = {0, 0, 0};
    if (number < NUMPY_TYPES) {
        dtype = dltypes[number];
    }
    else if (number == bfloat16_number) {
        dtype = bfloat16;
    }
    if (dtype.bits == 0 || PyArray_ISBYTESWAPPED(array)) {
        PyErr_SetString(PyExc_TypeError, "the dtype has no DLPack type");
        return NULL;
    }
    Block *block = malloc(sizeof(Block) + 2 * ndim * sizeof(int64_t));
    if (block == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    int64_t *shape = block->axes, *strides = block->axes + ndim;
    block->managed = (DLManagedTensorVersioned){
        .version = {1, 3},
        .manager_ctx = Py_NewRef(obj),
        .deleter = delete_block,
        .dl_tensor = {PyArray_DATA(array), {CPU, 0}, ndim, dtype, shape, strides, 0},
    };
    block->references = 1;
    int shift = log2_bytes(dtype);
    for (int i = 0; i < ndim; i++) {
        shape[i] = PyArray_DIM(array, i);
        strides[i] = PyArray_STRIDE(array, i) >> shift;
    }
    return block;
}

static PyObject *
to_torch(DLManagedTensorVersioned *managed)
{
    void *tensor = NULL;
    if (torch_api->managed_tensor_to_py_object_no_sync(managed, &tensor) != 0) {
        managed->deleter(managed);      /* torch does not call it when it fails */
        return NULL;
    }
    return tensor;
}

static PyObject *
numpy_to_torch(PyObject *module, PyObject *array)
{
    Block *block = export_ndarray(array);
    return block == NULL ? NULL : to_torch(&block->managed);
}

/* A torch tensor as an ndarray, whose base is a capsule that holds torch's own managed tensor. */

#define OWNER "owner"

static void
delete_owner(PyObject *capsule)
{
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, OWNER);
    managed->deleter(managed);
}

static PyObject *
torch_to_numpy(PyObject *module, PyObject *tensor)
{
    DLManagedTensorVersioned *managed = NULL;
    if (torch_api->managed_tensor_from_py_object_no_sync(tensor, &managed) != 0) {
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(managed, OWNER, delete_owner);
    if (capsule == NULL) {
        managed->deleter(managed);
        return NULL;
    }
    const DLTensor *dl = &managed->dl_tensor;
    int shift = log2_bytes(dl->dtype);
    PyArray_Descr *descr = NULL;
    if (dl->dtype.code < CODES && shift >= 0 && shift < LOG2_BYTES) {
        descr = descrs[dl->dtype.code][shift];
    }
    if (descr == NULL || dl->ndim > NPY_MAXDIMS) {
        PyErr_SetString(PyExc_TypeError, "the tensor has no NumPy dtype, or too many axes");
        Py_DECREF(capsule);
        return NULL;
    }
    npy_intp strides[NPY_MAXDIMS];
    for (int i = 0; i < dl->ndim; i++) {
        strides[i] = dl->strides[i] << shift;
    }
    Py_INCREF(descr);                   /* PyArray_NewFromDescr steals this reference */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, dl->ndim, dl->shape, strides,
                                           (char *)dl->data + dl->byte_offset, NPY_ARRAY_WRITEABLE, NULL);
    if (array == NULL) {
        Py_DECREF(capsule);
        return NULL;
    }
    PyArray_SetBaseObject((PyArrayObject *)array, capsule);
    return array;
}

/* A buffer as a torch tensor. The shape is the exporter's own, which exists until the view is released. */

#define BUFFER_AXES 8

typedef struct {
    DLManagedTensorVersioned managed;
    Py_buffer view;
    int64_t strides[BUFFER_AXES];
} BufferBlock;

static uint8_t format_codes[256];       /* the code plus one, so that zero stands for no code */

static void
fill_formats(void)
{
    static const char *letters[CODES] = {
        [INT] = "bhilqn", [UINT] = "BHILQN", [FLOAT] = "efd", [BOOL] = "?",
    };
    for (int code = 0; code < CODES; code++) {
        for (const char *letter = letters[code]; letter != NULL && *letter; letter++) {
            format_codes[(uint8_t)*letter] = code + 1;
        }
    }
}

static void
delete_buffer(DLManagedTensorVersioned *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&((BufferBlock *)managed)->view);
    free(managed);
    PyGILState_Release(state);
}

static PyObject *
buffer_with_flags_to_torch(PyObject *obj, int flags)
{
    BufferBlock *block = malloc(sizeof(BufferBlock));
    if (block == NULL) {
        return PyErr_NoMemory();
    }
    Py_buffer *view = &block->view;
    if (PyObject_GetBuffer(obj, view, flags) != 0) {
        free(block);
        return NULL;
    }
    const char *format = view->format + (view->format[0] == '=' || view->format[0] == '<');
    int code = format_codes[(uint8_t)format[0]] - 1;
    if (code < 0 || format[1] || view->ndim > BUFFER_AXES) {
        PyErr_SetString(PyExc_TypeError, "the format has no DLPack type, or the buffer too many axes");
        PyBuffer_Release(view);
        free(block);
        return NULL;
    }
    DLDataType dtype = {(uint8_t)code, (uint8_t)(8 * view->itemsize), 1};
    block->managed = (DLManagedTensorVersioned){
        .version = {1, 3},
        .deleter = delete_buffer,
        .dl_tensor = {view->buf, {CPU, 0}, view->ndim, dtype, view->shape, block->strides, 0},
    };
    int shift = log2_bytes(dtype);
    for (int i = 0; i < view->ndim; i++) {
        block->strides[i] = view->strides[i] >> shift;
    }
    return to_torch(&block->managed);
}

static PyObject *
buffer_to_torch(PyObject *module, PyObject *obj)
{
    return buffer_with_flags_to_torch(obj, PyBUF_RECORDS);
}

static PyObject *
jax_to_torch(PyObject *module, PyObject *obj)
{
    return buffer_with_flags_to_torch(obj, PyBUF_RECORDS_RO);   /* JAX's are read-only, which torch is not told */
}

/* An object that holds a managed tensor and gives it to any number of capsules. */

typedef struct {
    PyObject_HEAD
    Block *block;
} Wrap;

static void
delete_wrap(PyObject *self)
{
    release(((Wrap *)self)->block);
    PyObject_Free(self);
}

static void
delete_capsule(PyObject *capsule)
{
    if (PyCapsule_GetName(capsule) == CAPSULE) {        /* a consumer renames what it takes */
        release(PyCapsule_GetPointer(capsule, CAPSULE));
    }
}

static PyObject *
wrap_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    Block *block = ((Wrap *)self)->block;
    PyObject *capsule = PyCapsule_New(block, CAPSULE, delete_capsule);
    if (capsule != NULL) {
        block->references++;
    }
    return capsule;
}

static PyMethodDef wrap_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))wrap_dlpack, METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject wrap_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "floors.Wrap",
    .tp_basicsize = sizeof(Wrap),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = delete_wrap,
    .tp_methods = wrap_methods,
};

static PyObject *
wrap(PyObject *module, PyObject *array)
{
    Block *block = export_ndarray(array);
    if (block == NULL) {
        return NULL;
    }
    Wrap *self = PyObject_New(Wrap, &wrap_type);
    if (self == NULL) {
        release(block);
        return NULL;
    }
    self->block = block;
    return (PyObject *)self;
}

/* An empty call, whose cost is that of the call alone. */

static PyObject *
nothing(PyObject *module, PyObject *obj)
{
    Py_RETURN_NONE;
}

#ifdef WITH_CALLGRIND
#include <valgrind/callgrind.h>

static PyObject *
start_instrumentation(PyObject *module, PyObject *unused)
{
    CALLGRIND_START_INSTRUMENTATION;
    Py_RETURN_NONE;
}

/* collect(function, argument, name) counts one call, and writes the counts under the name. */
static PyObject *
collect(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const char *name = count == 3 ? PyUnicode_AsUTF8(args[2]) : NULL;
    if (name == NULL) {
        PyErr_SetString(PyExc_TypeError, "a function, its argument and a name are wanted");
        return NULL;
    }
    CALLGRIND_TOGGLE_COLLECT;
    PyObject *result = PyObject_CallOneArg(args[0], args[1]);
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS_AT(name);
    return result;
}
#endif

static PyMethodDef methods[] = {
    {"numpy_to_torch", numpy_to_torch, METH_O, NULL},
    {"torch_to_numpy", torch_to_numpy, METH_O, NULL},
    {"bfloat16_to_torch", numpy_to_torch, METH_O, NULL},
    {"bfloat16_to_numpy", torch_to_numpy, METH_O, NULL},
    {"buffer_to_torch", buffer_to_torch, METH_O, NULL},
    {"jax_to_torch", jax_to_torch, METH_O, NULL},
    {"wrap", wrap, METH_O, NULL},
    {"nothing", nothing, METH_O, NULL},
#ifdef WITH_CALLGRIND
    {"start_instrumentation", start_instrumentation, METH_NOARGS, NULL},
    {"collect", (PyCFunction)(void (*)(void))collect, METH_FASTCALL, NULL},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "floors", .m_size = -1, .m_methods = methods,
};

static int
find_torch_api(void)
{
    PyObject *capsule = NULL, *type = NULL, *torch = PyImport_ImportModule("torch");
    if (torch != NULL) {
        type = PyObject_GetAttrString(torch, "Tensor");
    }
    if (type != NULL) {
        capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    }
    if (capsule != NULL) {
        torch_api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    }
    Py_XDECREF(capsule);
    Py_XDECREF(type);
    Py_XDECREF(torch);
    if (torch_api != NULL && torch_api->version.major != 1) {
        PyErr_SetString(PyExc_ImportError, "torch's C exchange API has another major version");
        return -1;
    }
    return torch_api == NULL ? -1 : 0;
}

PyMODINIT_FUNC
PyInit_floors(void)
{
    if (PyArray_ImportNumPyAPI() < 0 || fill_dtypes() < 0 || fill_bfloat16() < 0 || find_torch_api() < 0
            || PyType_Ready(&wrap_type) < 0) {
        return NULL;
    }
    fill_formats();
    return PyModule_Create(&definition);
}
