"""Modules that are imported with their first use."""

cpdef object load_module(str name)
# A C function of another module of this package, which the first call imports. The function is then kept in ``place``.
cdef void* c_function(void** place, str module, str name) except NULL

# Between the two no garbage is collected. A callback of the collector (``gc.callbacks``) that converts something would
# find a module half imported.
cdef void pause_collector() noexcept
cdef void resume_collector() noexcept
