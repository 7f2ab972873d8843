/* What compilers give beyond C11: GCC, clang, and on Windows clang-cl. */
#ifndef DLBRIDGE_COMPILER_H
#define DLBRIDGE_COMPILER_H

#include <stdint.h>

#if !defined(__GNUC__) && !defined(__clang__)
  #error "dlbridge is compiled by GCC or clang; on Windows, by clang-cl"
#elif UINTPTR_MAX != UINT64_MAX || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
  #error "dlbridge is for 64-bit little-endian machines"
#endif

/* Checked arithmetic: true if the exact result does not fit into int64. */
#define dlbridge_multiply(a, b, out) __builtin_mul_overflow((int64_t) (a), (int64_t) (b), (int64_t *) (out))
#define dlbridge_add(a, b, out) __builtin_add_overflow((int64_t) (a), (int64_t) (b), (int64_t *) (out))

/* The compiler forgets how it came by the value, which it then keeps in a register. */
#define DLBRIDGE_KEEP_IN_REGISTER(value) __asm__("" : "+r"(value))

/* ---- atomic words ---- */
#define dlbridge_atomic_load(where) __atomic_load_n(where, __ATOMIC_ACQUIRE)
#define dlbridge_atomic_store(where, value) __atomic_store_n(where, value, __ATOMIC_RELEASE)
#define dlbridge_atomic_exchange(where, value) __atomic_exchange_n(where, value, __ATOMIC_ACQ_REL)
#define dlbridge_atomic_add(where, value) __atomic_add_fetch(where, value, __ATOMIC_ACQ_REL)
#define dlbridge_atomic_count(where) __atomic_add_fetch(where, 1, __ATOMIC_RELAXED)
#define dlbridge_atomic_or(where, value) __atomic_or_fetch(where, value, __ATOMIC_ACQ_REL)
static inline int dlbridge_atomic_replace(void *where, void *expected, void *value) {
    return __atomic_compare_exchange_n((void **) where, &expected, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

#endif
