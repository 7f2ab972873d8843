// clamped(array, low, high): every element between two bounds, for the arrays of any library; with nanobind.

#include <algorithm>
#include <functional>
#include <numeric>

#include "any_array.h"

namespace nb = nanobind;

struct Clamped {
    static dlbridge_Want want() {
        static const DLDataType dtypes[] = {dlbridge_dtype(kDLFloat, 32), dlbridge_dtype(kDLUInt, 8)};
        dlbridge_Want want = dlbridge_want("clamped(array)", DLBRIDGE_C_ORDER | DLBRIDGE_OR_COPY);
        want.dtypes = dtypes;
        want.dtype_count = 2;
        return want;
    }
};

static int64_t size(const DLTensor &tensor) {
    return std::accumulate(tensor.shape, tensor.shape + tensor.ndim, int64_t{1}, std::multiplies<>());
}

static Made clamped(const Array<Clamped> &array, float low, float high) {
    const DLTensor &given = array.tensor();
    const bool bytes = given.dtype.code == kDLUInt;
    DLTensor wanted = given;
    wanted.data = nullptr;    // so dlbridge allocates
    wanted.dtype = dlbridge_dtype(kDLFloat, 32);
    DLManagedTensorVersioned *made = dlbridge_make(&wanted, 0, nullptr, nullptr);
    if (made) {
        nb::gil_scoped_release without_the_gil;
        auto clamp = [=, out = static_cast<float *>(made->dl_tensor.data), count = size(given)](auto values) {
            std::transform(values, values + count, out, [=](float value) { return std::clamp(value, low, high); });
        };
        bytes ? clamp(array.data<uint8_t>()) : clamp(array.data<float>());
    }
    return {made, array.object};
}

NB_MODULE(clamping, module) {
    if (dlbridge_import() < 0)
        throw nb::python_error();
    module.def("clamped", &clamped, nb::arg("array"), nb::arg("low"), nb::arg("high"));
}
