"""Atomic words, for what several threads read and write at a time.

On x86-64 an atomic read and an atomic write are plain moves. The GIL keeps most of these accesses apart; in a
free-threaded Python all of them can happen at the same time.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from "dlbridge/_core/compiler.h":
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

cdef extern from "dlbridge/_core/interpreter.h":
    const bint ONE_AT_A_TIME "DLBRIDGE_GIL"     # only one thread at a time runs Python code, since it holds the GIL
    void lock "dlbridge_lock"(unsigned char* where) noexcept nogil
    void unlock "dlbridge_unlock"(unsigned char* where) noexcept nogil
