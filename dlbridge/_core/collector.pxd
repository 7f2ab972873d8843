"""The garbage collector, paused while modules are imported."""

# Between the two no garbage is collected; resume_collector() takes what pause_collector() gave.
cdef bint pause_collector() noexcept
cdef void resume_collector(bint was_running) noexcept
