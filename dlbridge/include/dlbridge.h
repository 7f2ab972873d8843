/* dlbridge's API for C and C++: take any array, and give one.

   The extension is compiled with the folder of dlbridge.get_include(), and calls dlbridge_import() when its module is
   made. It needs nothing of dlbridge at build time but this file: C11 or C++17, with or without Py_LIMITED_API.

   An array is looked at like this:

       dlbridge_View view;
       dlbridge_Want want = dlbridge_want("blur(image)", DLBRIDGE_WRITABLE);
       want.dtype = dlbridge_dtype(kDLFloat, 32);
       want.ndim = 2;
       if (dlbridge_view(image, &want, &view) < 0)
           return NULL;                         // the exception names blur(image), what is wrong, and what to do
       ... view.tensor.data, view.tensor.shape, view.tensor.strides ...
       dlbridge_release(&view);
*/
#ifndef DLBRIDGE_H
#define DLBRIDGE_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>


/* ---- DLPack 1.3 ------------------------------------------------------------------------------------------------

   These are the declarations of dlpack.h. They stand aside for a dlpack.h that was included before, and a dlpack.h that
   is included later stands aside for them, since it asks for the same name. A newer one goes first. */

#ifdef DLPACK_DLPACK_H_
  #ifndef DLPACK_MAJOR_VERSION
    #error "dlbridge.h: this dlpack.h is older than 1.0 (include dlbridge.h before it)"
  #endif
#else
#define DLPACK_DLPACK_H_

#ifdef __cplusplus
  #define DLPACK_EXTERN_C extern "C"
#else
  #define DLPACK_EXTERN_C
#endif
#define DLPACK_DLL

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLOpenCL = 4,
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14,
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17,
    kDLTrn = 18
} DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef enum {
    kDLInt = 0U,
    kDLUInt = 1U,
    kDLFloat = 2U,
    kDLOpaqueHandle = 3U,
    kDLBfloat = 4U,
    kDLComplex = 5U,
    kDLBool = 6U,
    kDLFloat8_e3m4 = 7U,
    kDLFloat8_e4m3 = 8U,
    kDLFloat8_e4m3b11fnuz = 9U,
    kDLFloat8_e4m3fn = 10U,
    kDLFloat8_e4m3fnuz = 11U,
    kDLFloat8_e5m2 = 12U,
    kDLFloat8_e5m2fnuz = 13U,
    kDLFloat8_e8m0fnu = 14U,
    kDLFloat6_e2m3fn = 15U,
    kDLFloat6_e3m2fn = 16U,
    kDLFloat4_e2m1fn = 17U
} DLDataTypeCode;

typedef struct {
    uint8_t code;               /* DLDataTypeCode */
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;             /* in elements */
    int64_t *strides;           /* in elements */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef int (*DLPackManagedTensorAllocator)(
    DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
    void (*SetError)(void *error_ctx, const char *kind, const char *message));
typedef int (*DLPackManagedTensorFromPyObjectNoSync)(void *py_object, DLManagedTensorVersioned **out);
typedef int (*DLPackManagedTensorToPyObjectNoSync)(DLManagedTensorVersioned *tensor, void **out_py_object);
typedef int (*DLPackDLTensorFromPyObjectNoSync)(void *py_object, DLTensor *out);
typedef int (*DLPackCurrentWorkStream)(DLDeviceType device_type, int32_t device_id, void **out_current_stream);

typedef struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

typedef struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    DLPackManagedTensorAllocator managed_tensor_allocator;
    DLPackManagedTensorFromPyObjectNoSync managed_tensor_from_py_object_no_sync;
    DLPackManagedTensorToPyObjectNoSync managed_tensor_to_py_object_no_sync;
    DLPackDLTensorFromPyObjectNoSync dltensor_from_py_object_no_sync;
    DLPackCurrentWorkStream current_work_stream;
} DLPackExchangeAPI;

#ifdef __cplusplus
}
#endif
#endif


/* ---- what is asked, and what is seen --------------------------------------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif

#define DLBRIDGE_API_MAJOR 1    /* tables of different majors do not fit */
#define DLBRIDGE_API_MINOR 0    /* a newer minor has all of an older one */
#define DLBRIDGE_MAX_NDIM 64

/* What an array must be, or'ed into dlbridge_Want.flags. */
enum {
    DLBRIDGE_WRITABLE = 1,      /* refuses read-only memory, strides of 0, and what a producer copies for this call */
    DLBRIDGE_C_ORDER = 2,       /* compact, the last axis fastest */
    DLBRIDGE_ANY_DEVICE = 4,    /* else memory of the host alone */
    DLBRIDGE_DETACHED = 8,      /* torch tensors that require a gradient are taken without it, else refused */
    DLBRIDGE_OR_COPY = 16       /* what does not meet this is copied where that helps; not with DLBRIDGE_WRITABLE */
};

/* What a function asks of an array. Set it by dlbridge_want(), which says what it is not asked. */
typedef struct {
    uint32_t size;              /* sizeof(dlbridge_Want): fields are added at the end */
    uint32_t flags;
    const char *name;           /* what an error begins with, "blur(image)"; or NULL */
    DLDataType dtype;           /* of exactly this type; bits 0: any that DLPack has */
    int32_t ndim;               /* 0, with shape NULL: any number of axes */
    const int64_t *shape;       /* ndim extents, of which -1 is any; or NULL */
    int64_t stream;             /* where the memory will be used, as the array API standard numbers streams; 0: as 1 */
    const DLDataType *dtypes;   /* of one of these types, where dtype asks for none */
    int64_t dtype_count;        /* 0: they are not asked for */
} dlbridge_Want;

/* An array that is looked at. It points into itself, so it is never copied. Elements are aligned, byte_offset is 0, and
   strides are always there. Nothing in it is changed by the caller. */
typedef struct {
    uint32_t version[2];        /* reserved */
    void *reserved[2];
    uint64_t flags;             /* DLPACK_FLAG_BITMASK_... */
    DLTensor tensor;
    uint64_t known;             /* reserved, too */
    DLManagedTensorVersioned *owner;    /* NULL where the array itself keeps the memory */
    int64_t room[2 * DLBRIDGE_MAX_NDIM];
} dlbridge_View;

static inline dlbridge_Want dlbridge_want(const char *name, uint32_t flags) {
    dlbridge_Want want;
    want.size = (uint32_t) sizeof(dlbridge_Want);
    want.flags = flags;
    want.name = name;
    want.dtype.code = 0;
    want.dtype.bits = 0;
    want.dtype.lanes = 0;
    want.ndim = 0;
    want.shape = NULL;
    want.stream = 0;
    want.dtypes = NULL;
    want.dtype_count = 0;
    return want;
}

/* A type of one lane: dlbridge_dtype(kDLFloat, 32). */
static inline DLDataType dlbridge_dtype(DLDataTypeCode code, uint8_t bits) {
    DLDataType dtype;
    dtype.code = (uint8_t) code;
    dtype.bits = bits;
    dtype.lanes = 1;
    return dtype;
}


/* ---- the table -------------------------------------------------------------------------------------------------

   Each file that includes this header has its own pointer to the table. Several files of one extension share one if all
   of them define DLBRIDGE_TABLE as the same name before they include it, and one of them DLBRIDGE_DEFINE_TABLE too. */

typedef struct dlbridge_Table {
    uint32_t major;
    uint32_t minor;
    const struct dlbridge_Table *older;     /* the table of the major before, or NULL */
    int (*view)(PyObject *, const dlbridge_Want *, dlbridge_View *);
    DLManagedTensorVersioned *(*acquire)(PyObject *, const dlbridge_Want *);
    PyObject *(*deliver)(DLManagedTensorVersioned *, PyObject *);
    DLManagedTensorVersioned *(*make)(const DLTensor *, uint64_t, void *, void (*)(void *));
} dlbridge_Table;

#ifndef DLBRIDGE_TABLE
  #define DLBRIDGE_TABLE dlbridge_table
static const dlbridge_Table *DLBRIDGE_TABLE = NULL;
#elif defined(DLBRIDGE_DEFINE_TABLE)
extern const dlbridge_Table *DLBRIDGE_TABLE;
const dlbridge_Table *DLBRIDGE_TABLE = NULL;
#else
extern const dlbridge_Table *DLBRIDGE_TABLE;
#endif

/* The table of this major, of the package that is installed; NULL, with an ImportError, if it does not fit. */
static inline const dlbridge_Table *dlbridge_find_table(void) {
    const dlbridge_Table *newest, *found;
    PyObject *capsule, *module = PyImport_ImportModule("dlbridge.face");
    if (module == NULL)
        return NULL;
    capsule = PyObject_GetAttrString(module, "_C_API");
    Py_DECREF(module);
    if (capsule == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Format(PyExc_ImportError, "dlbridge: C API: is missing, and this extension needs %d.%d "
                         "(pip install -U dlbridge)", DLBRIDGE_API_MAJOR, DLBRIDGE_API_MINOR);
        return NULL;
    }
    newest = found = (const dlbridge_Table *) PyCapsule_GetPointer(capsule, "dlbridge._C_API");
    Py_DECREF(capsule);         /* the table itself lives as long as the process */
    while (found != NULL && found->major != DLBRIDGE_API_MAJOR)
        found = found->older;
    if (newest != NULL && (found == NULL || (int) found->minor < DLBRIDGE_API_MINOR)) {
        PyErr_Format(PyExc_ImportError, "dlbridge: C API: is %u.%u, and this extension was built for %d.%d (%s)",
                     (unsigned int) newest->major, (unsigned int) newest->minor, DLBRIDGE_API_MAJOR, DLBRIDGE_API_MINOR,
                     newest->major > DLBRIDGE_API_MAJOR ? "update the extension" : "pip install -U dlbridge");
        return NULL;
    }
    return found;
}

/* Import dlbridge; -1 with an ImportError if that fails. An extension calls it when its module is made, so that the
   error comes there, and so that a subinterpreter, which dlbridge refuses, cannot load the module. */
static inline int dlbridge_import(void) {
    const dlbridge_Table *found = dlbridge_find_table();
    if (found == NULL)
        return -1;
    DLBRIDGE_TABLE = found;     /* assigned only here: a failed import leaves the table that others use */
    return 0;
}


/* ---- the five functions; all but dlbridge_release() need the GIL, and set an exception when they fail --------------- */

/* Look at an array for as long as the caller holds obj, or until dlbridge_release().

   want may be NULL. Nothing is allocated for an ndarray, a torch.Tensor or a dlbridge.Tensor that is what is wanted.
   After a failure there is nothing to release, and releasing is harmless. */
static inline int dlbridge_view(PyObject *obj, const dlbridge_Want *want, dlbridge_View *out) {
    if (DLBRIDGE_TABLE == NULL && dlbridge_import() < 0) {
        out->owner = NULL;
        return -1;
    }
    return DLBRIDGE_TABLE->view(obj, want, out);
}

/* Let a view go; by any thread, with or without the GIL; twice is harmless. */
static inline void dlbridge_release(dlbridge_View *view) {
    DLManagedTensorVersioned *owner = view->owner;
    view->owner = NULL;
    if (owner != NULL && owner->deleter != NULL)
        owner->deleter(owner);
}

/* Take an array that outlives the call. Its deleter may be called by any thread, with or without the GIL. Of the struct
   itself the caller changes nothing, here as for dlbridge_make(). */
static inline DLManagedTensorVersioned *dlbridge_acquire(PyObject *obj, const dlbridge_Want *want) {
    if (DLBRIDGE_TABLE == NULL && dlbridge_import() < 0)
        return NULL;
    return DLBRIDGE_TABLE->acquire(obj, want);
}

/* Make an array of a library of it: by name ("torch"), module, type, or like an example, on its device. Like an example
   that no library makes, such as bytes, it is an ndarray. tensor is stolen, also when this fails. */
static inline PyObject *dlbridge_deliver(DLManagedTensorVersioned *tensor, PyObject *to) {
    if (DLBRIDGE_TABLE == NULL && dlbridge_import() < 0) {
        if (tensor != NULL && tensor->deleter != NULL)
            tensor->deleter(tensor);
        return NULL;
    }
    return DLBRIDGE_TABLE->deliver(tensor, to);
}

/* Describe memory of the caller's, or fresh memory of the host if like->data is NULL: then only dtype, ndim, shape and
   device of ``like`` count, and the elements are not set.

   owner keeps the caller's memory: if drop is NULL it is a PyObject, to which a reference is taken, or NULL for memory
   that stays for ever; else drop(owner) is called once when the last consumer lets go, by any thread, with or without the
   GIL, perhaps with an exception pending. After a failure nothing was taken. flags are DLPack's: IS_COPIED says that
   no other code uses the memory, which then need not be copied for a library whose arrays are immutable. Memory of a
   device is taken to be ready on the legacy default stream. */
static inline DLManagedTensorVersioned *dlbridge_make(
        const DLTensor *like, uint64_t flags, void *owner, void (*drop)(void *)) {
    if (DLBRIDGE_TABLE == NULL && dlbridge_import() < 0)
        return NULL;
    return DLBRIDGE_TABLE->make(like, flags, owner, drop);
}

#ifdef __cplusplus
}
#endif
#endif
