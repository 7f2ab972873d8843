/* Looks at index arrays: a kernel that trusts them would read or write out of bounds by what is wrong in them. */
#ifndef DLBRIDGE_INDICES_H
#define DLBRIDGE_INDICES_H

#include <stdint.h>

#define DLBRIDGE_BLOCK 1024         /* values between two looks at whether any was wrong, so that compilers vectorise */

/* Of values of one width, all read as unsigned, so that a negative one is a large one. ``stride`` is in elements. */
#define DLBRIDGE_LOOKS(bits)                                                                                           \
    /* The place of the first value that is not below ``limit``, or -1. */                                             \
    static int64_t dlbridge_outside_##bits(const uint##bits##_t *values, int64_t count, int64_t stride,                \
                                           uint##bits##_t limit) {                                                     \
        for (int64_t start = 0; start < count; start += DLBRIDGE_BLOCK) {                                              \
            const int64_t end = count - start < DLBRIDGE_BLOCK ? count : start + DLBRIDGE_BLOCK;                       \
            unsigned wrong = 0;                                                                                        \
            if (stride == 1)                                                                                           \
                for (int64_t i = start; i < end; ++i) wrong |= values[i] >= limit;                                     \
            else                                                                                                       \
                for (int64_t i = start; i < end; ++i) wrong |= values[i * stride] >= limit;                            \
            for (int64_t i = start; wrong && i < end; ++i)                                                             \
                if (values[i * stride] >= limit) return i;                                                             \
        }                                                                                                              \
        return -1;                                                                                                     \
    }                                                                                                                  \
    /* The place of the first value that is smaller than the one before, or -1. */                                     \
    static int64_t dlbridge_falling_##bits(const uint##bits##_t *values, int64_t count, int64_t stride) {              \
        for (int64_t start = 1; start < count; start += DLBRIDGE_BLOCK) {                                              \
            const int64_t end = count - start < DLBRIDGE_BLOCK ? count : start + DLBRIDGE_BLOCK;                       \
            unsigned wrong = 0;                                                                                        \
            if (stride == 1)                                                                                           \
                for (int64_t i = start; i < end; ++i) wrong |= values[i] < values[i - 1];                              \
            else                                                                                                       \
                for (int64_t i = start; i < end; ++i) wrong |= values[i * stride] < values[(i - 1) * stride];          \
            for (int64_t i = start; wrong && i < end; ++i)                                                             \
                if (values[i * stride] < values[(i - 1) * stride]) return i;                                           \
        }                                                                                                              \
        return -1;                                                                                                     \
    }

DLBRIDGE_LOOKS(8)
DLBRIDGE_LOOKS(16)
DLBRIDGE_LOOKS(32)
DLBRIDGE_LOOKS(64)

#define DLBRIDGE_OF_WIDTH(call)                                                                                        \
    switch (item_bytes) {                                                                                              \
    case 1: return call(8);                                                                                            \
    case 2: return call(16);                                                                                           \
    case 4: return call(32);                                                                                           \
    default: return call(64);                                                                                          \
    }

/* The place of the first index that is not from 0 to bound - 1, or -1. Signed ones are not above what they can hold. */
static int64_t dlbridge_outside(const void *values, int item_bytes, int is_signed, int64_t count, int64_t stride,
                                int64_t bound) {
    const int bits = 8 * item_bytes - !!is_signed;
    const uint64_t most = bits == 64 ? UINT64_MAX : ((uint64_t) 1 << bits) - 1;
    if ((uint64_t) bound > most) {
        if (!is_signed) return -1;              /* every value is below it */
        bound = (int64_t) (most + 1);           /* none of the negative ones is */
    }
#define DLBRIDGE_CALL(bits) \
    dlbridge_outside_##bits((const uint##bits##_t *) values, count, stride, (uint##bits##_t) bound)
    DLBRIDGE_OF_WIDTH(DLBRIDGE_CALL)
#undef DLBRIDGE_CALL
}

/* One value. An unsigned one that is too large for int64_t becomes negative, which callers refuse. */
static int64_t dlbridge_integer(const void *value, int item_bytes, int is_signed) {
#define DLBRIDGE_CALL(bits) \
    is_signed ? (int64_t) *(const int##bits##_t *) value : (int64_t) *(const uint##bits##_t *) value
    DLBRIDGE_OF_WIDTH(DLBRIDGE_CALL)
#undef DLBRIDGE_CALL
}

/* The place of the first offset that is below the one before, or -1. Between 0 and what is above 0, none is negative. */
static int64_t dlbridge_falling(const void *values, int item_bytes, int64_t count, int64_t stride) {
#define DLBRIDGE_CALL(bits) dlbridge_falling_##bits((const uint##bits##_t *) values, count, stride)
    DLBRIDGE_OF_WIDTH(DLBRIDGE_CALL)
#undef DLBRIDGE_CALL
}

#endif
