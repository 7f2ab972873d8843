// A type caster for nanobind: functions take Array<Wanted>, an array of any library, and give Made, an array of one.
//
// nanobind's own ndarray<> takes arrays by __dlpack__ and buffers alone.

#pragma once

#include <nanobind/nanobind.h>

#include "dlbridge.h"

// An array, for as long as the call lasts. Wanted::want() says what it must be.
template <typename Wanted> struct Array {
    nanobind::handle object;    // which keeps the memory meanwhile
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
    nanobind::handle like;
};

namespace nanobind::detail {

template <typename Wanted> struct type_caster<Array<Wanted>> {
    static constexpr auto Name = const_name("array");
    template <typename> using Cast = const Array<Wanted> &;
    template <typename> static constexpr bool can_cast() { return true; }

    // The array is looked at when the function is called: what is raised there keeps dlbridge's words. To have
    // nanobind try the next overload instead, look at it here, and return false.
    bool from_python(handle source, uint8_t, cleanup_list *) noexcept {
        array.object = source;
        return true;
    }

    operator const Array<Wanted> &() {
        dlbridge_Want want = Wanted::want();
        if (dlbridge_view(array.object.ptr(), &want, &array.view) < 0)
            throw python_error();
        return array;
    }

    Array<Wanted> array;
};

template <> struct type_caster<Made> {
    static constexpr auto Name = const_name("array");
    static handle from_cpp(const Made &made, rv_policy, cleanup_list *) noexcept {
        return made.tensor ? dlbridge_deliver(made.tensor, made.like.ptr()) : nullptr;
    }
};

}  // namespace nanobind::detail
