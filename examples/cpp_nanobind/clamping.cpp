// clamped(array, low, high): every element between two bounds, for the arrays of any library; with nanobind.
//
// nanobind's own ndarray<> takes arrays by __dlpack__ and buffers alone. The ten lines of Array and deliver() take any.

#include <nanobind/nanobind.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "dlbridge.h"

namespace nb = nanobind;

struct Array {
    dlbridge_View view;     // points into itself, so an Array is neither copied nor moved
    Array(nb::handle obj, const dlbridge_Want &want) {
        if (dlbridge_view(obj.ptr(), &want, &view) < 0)
            throw nb::python_error();
    }
    Array(const Array &) = delete;
    ~Array() { dlbridge_release(&view); }
};

static nb::object deliver(DLManagedTensorVersioned *tensor, nb::handle like) {
    PyObject *made = tensor ? dlbridge_deliver(tensor, like.ptr()) : nullptr;
    if (!made)
        throw nb::python_error();
    return nb::steal(made);
}

static int64_t size(const DLTensor &tensor) {
    return std::accumulate(tensor.shape, tensor.shape + tensor.ndim, int64_t{1}, std::multiplies<>());
}

static nb::object clamped(nb::object obj, float low, float high) {
    dlbridge_Want want = dlbridge_want("clamped(array)", DLBRIDGE_C_ORDER | DLBRIDGE_OR_COPY);
    Array array(obj, want);
    const DLTensor &given = array.view.tensor;
    const bool bytes = given.dtype.code == kDLUInt && given.dtype.bits == 8;
    if (!bytes && !(given.dtype.code == kDLFloat && given.dtype.bits == 32))
        throw nb::type_error("clamped(array): is neither of float32 nor of uint8");
    DLTensor like = given;
    like.data = nullptr;    // so dlbridge allocates
    like.dtype = dlbridge_dtype(kDLFloat, 32);
    DLManagedTensorVersioned *made = dlbridge_make(&like, 0, nullptr, nullptr);
    if (made) {
        nb::gil_scoped_release without_the_gil;
        auto clamp = [=, out = static_cast<float *>(made->dl_tensor.data), count = size(given)](auto values) {
            std::transform(values, values + count, out, [=](float value) { return std::clamp(value, low, high); });
        };
        bytes ? clamp(static_cast<const uint8_t *>(given.data)) : clamp(static_cast<const float *>(given.data));
    }
    return deliver(made, obj);
}

NB_MODULE(clamping, module) {
    if (dlbridge_import() < 0)
        throw nb::python_error();
    module.def("clamped", &clamped, nb::arg("array"), nb::arg("low"), nb::arg("high"));
}
