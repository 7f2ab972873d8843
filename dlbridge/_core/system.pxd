"""What the operating system gives: threads, cores, pages of memory, and shared libraries."""


cdef extern from "dlbridge/_core/system.h":
    ctypedef struct Thread "dlbridge_Thread":
        pass
    int cores "dlbridge_cores"() noexcept nogil         # that this process may use
    # Runs the function in a new thread, which takes no signals; False if there is no thread.
    bint start_thread "dlbridge_start_thread"(
        Thread* out, void* (*run)(void*) noexcept nogil, void* argument) noexcept nogil
    void join_thread "dlbridge_join_thread"(Thread thread) noexcept nogil
    void want_huge_pages "dlbridge_want_huge_pages"(void* memory, size_t nbytes) noexcept nogil

    void* open_library "dlbridge_open_library"(const char* name) noexcept nogil         # or NULL
    void* symbol_of "dlbridge_symbol"(void* library, const char* name) noexcept nogil   # its address, or NULL
    str file_of "dlbridge_file_of"(const void* address)     # of the library that has the address; or ""
