"""Atomic words, for what several threads read and write at a time.

On x86-64 an atomic read and an atomic write are plain moves. The GIL keeps most of these accesses apart; in a
free-threaded Python all of them can happen at the same time.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from *:
    """
    #define dlbridge_atomic_load(where) __atomic_load_n(where, __ATOMIC_ACQUIRE)
    #define dlbridge_atomic_store(where, value) __atomic_store_n(where, value, __ATOMIC_RELEASE)
    #define dlbridge_atomic_exchange(where, value) __atomic_exchange_n(where, value, __ATOMIC_ACQ_REL)
    #define dlbridge_atomic_add(where, value) __atomic_add_fetch(where, value, __ATOMIC_ACQ_REL)
    #define dlbridge_atomic_count(where) __atomic_add_fetch(where, 1, __ATOMIC_RELAXED)
    #define dlbridge_atomic_or(where, value) __atomic_or_fetch(where, value, __ATOMIC_ACQ_REL)
    static inline int dlbridge_atomic_replace(void *where, void *expected, void *value) {
        return __atomic_compare_exchange_n(
            (void **) where, &expected, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    /* A lock is one byte, zero at first. With the GIL no lock is needed: only one thread holds the GIL. */
    #ifdef Py_GIL_DISABLED
      #define DLBRIDGE_GIL 0
      #define dlbridge_lock(where) PyMutex_Lock((PyMutex *) (where))
      #define dlbridge_unlock(where) PyMutex_Unlock((PyMutex *) (where))
    #else
      #define DLBRIDGE_GIL 1
      #define dlbridge_lock(where) ((void) (where))
      #define dlbridge_unlock(where) ((void) (where))
    #endif
    """
    const bint ONE_AT_A_TIME "DLBRIDGE_GIL"     # only one thread at a time runs Python code, since it holds the GIL

    int32_t load "dlbridge_atomic_load"(const int32_t* where) noexcept nogil
    int32_t add "dlbridge_atomic_add"(int32_t* where, int32_t value) noexcept nogil
    uint8_t exchange_byte "dlbridge_atomic_exchange"(uint8_t* where, uint8_t value) noexcept nogil
    int64_t count_one "dlbridge_atomic_count"(int64_t* where) noexcept nogil

    bint load_flag "dlbridge_atomic_load"(const bint* where) noexcept nogil
    void store_flag "dlbridge_atomic_store"(bint* where, bint value) noexcept nogil
    signed char load_row "dlbridge_atomic_load"(const signed char* where) noexcept nogil
    void store_row "dlbridge_atomic_store"(signed char* where, signed char value) noexcept nogil
    unsigned int load_bits "dlbridge_atomic_load"(const unsigned int* where) noexcept nogil
    void store_bits "dlbridge_atomic_store"(unsigned int* where, unsigned int value) noexcept nogil
    uint64_t load_rows "dlbridge_atomic_load"(const uint64_t* where) noexcept nogil
    uint64_t add_rows "dlbridge_atomic_or"(uint64_t* where, uint64_t value) noexcept nogil
    size_t load_size "dlbridge_atomic_load"(const size_t* where) noexcept nogil
    void store_size "dlbridge_atomic_store"(size_t* where, size_t value) noexcept nogil
    size_t add_size "dlbridge_atomic_add"(size_t* where, size_t value) noexcept nogil
    void* load_pointer "dlbridge_atomic_load"(void** where) noexcept nogil
    void* exchange_pointer "dlbridge_atomic_exchange"(void** where, void* value) noexcept nogil
    bint replace_pointer "dlbridge_atomic_replace"(void** where, void* expected, void* value) noexcept nogil

    void lock "dlbridge_lock"(unsigned char* where) noexcept nogil
    void unlock "dlbridge_unlock"(unsigned char* where) noexcept nogil
