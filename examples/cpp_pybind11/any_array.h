// A type caster for pybind11: functions take Array<Wanted>, an array of any library, and give Made, an array of one.
//
// pybind11's own array_t<> takes arrays of NumPy, and copies the others into one.

#pragma once

#include <pybind11/pybind11.h>

#include "dlbridge.h"

// An array, for as long as the call lasts. Wanted::want() says what it must be.
template <typename Wanted> struct Array {
    pybind11::handle object;    // which keeps the memory meanwhile
    dlbridge_View view{};       // points into itself, so an Array is neither copied nor moved
    Array() = default;
    Array(const Array &) = delete;
    ~Array() { dlbridge_release(&view); }
    const DLTensor &tensor() const { return view.tensor; }
    template <typename T> const T *data() const { return static_cast<const T *>(view.tensor.data); }
};

// A new array, which becomes one of the library of `like`. NULL is an error that is set.
struct Made {
    DLManagedTensorVersioned *tensor;
    pybind11::handle like;
};

namespace pybind11::detail {

template <typename Wanted> struct type_caster<Array<Wanted>> {
    static constexpr auto name = const_name("array");
    template <typename> using cast_op_type = const Array<Wanted> &;

    // What is raised here keeps dlbridge's words. To have pybind11 try the next overload instead, clear it, and return
    // false.
    bool load(handle source, bool) {
        dlbridge_Want want = Wanted::want();
        array.object = source;
        if (dlbridge_view(source.ptr(), &want, &array.view) < 0)
            throw error_already_set();
        return true;
    }

    operator const Array<Wanted> &() { return array; }

    Array<Wanted> array;
};

template <> struct type_caster<Made> {
    static constexpr auto name = const_name("array");
    static handle cast(const Made &made, return_value_policy, handle) {
        PyObject *array = made.tensor ? dlbridge_deliver(made.tensor, made.like.ptr()) : nullptr;
        if (!array)
            throw error_already_set();
        return array;
    }
};

}  // namespace pybind11::detail
