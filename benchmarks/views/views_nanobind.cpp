// The same by nanobind: its caster of any array, without and with what view_asked() asks for.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;

NB_MODULE(views_nanobind, module) {
    module.def("nothing", [](nb::object) {});
    module.def("view", [](nb::ndarray<>) {});
    module.def("view_asked", [](nb::ndarray<float, nb::ndim<2>, nb::c_contig>) {});
}
