/* running_sum(samples): the sums of all samples up to each one, for the arrays of any library.
 *
 * Built under the limited API of Python 3.10, one file serves every later Python.
 */

#include "dlbridge.h"

static double sample(const DLTensor *samples, int64_t index) {
    const char *at = (const char *) samples->data;
    index *= samples->strides[0];
    if (samples->dtype.code == kDLUInt)
        return ((const uint8_t *) at)[index];
    return samples->dtype.bits == 32 ? ((const float *) at)[index] : ((const double *) at)[index];
}

static int is_known(DLDataType dtype) {
    return dtype.lanes == 1 && ((dtype.code == kDLUInt && dtype.bits == 8)
                                || (dtype.code == kDLFloat && (dtype.bits == 32 || dtype.bits == 64)));
}

static PyObject *running_sum(PyObject *module, PyObject *samples) {
    dlbridge_View view;
    dlbridge_Want want = dlbridge_want("running_sum(samples)", DLBRIDGE_OR_COPY);
    DLManagedTensorVersioned *sums;
    DLTensor like;
    double sum = 0;
    (void) module;
    want.ndim = 1;
    if (dlbridge_view(samples, &want, &view) < 0)
        return NULL;
    if (!is_known(view.tensor.dtype)) {
        dlbridge_release(&view);
        PyErr_SetString(PyExc_TypeError, "running_sum(samples): are neither float64 nor float32 nor uint8");
        return NULL;
    }
    like = view.tensor;
    like.data = NULL;                   /* so dlbridge allocates */
    like.dtype = dlbridge_dtype(kDLFloat, 32);
    sums = dlbridge_make(&like, 0, NULL, NULL);
    if (sums != NULL) {
        Py_BEGIN_ALLOW_THREADS
        for (int64_t index = 0; index < view.tensor.shape[0]; index++)
            ((float *) sums->dl_tensor.data)[index] = (float) (sum += sample(&view.tensor, index));
        Py_END_ALLOW_THREADS
    }
    dlbridge_release(&view);
    return sums == NULL ? NULL : dlbridge_deliver(sums, samples);       /* an array of the caller's library */
}

static PyMethodDef functions[] = {
    {"running_sum", running_sum, METH_O, "The sums of all samples up to each one, as float32."},
    {NULL, NULL, 0, NULL},
};

static int import_dlbridge(PyObject *module) {
    (void) module;
    return dlbridge_import();
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *) import_dlbridge}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "running", NULL, 0, functions, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_running(void) {
    return PyModuleDef_Init(&definition);
}
