"""The innermost loops of a copy, in C: a line of words, a tile that is transposed, and pixels that are shuffled.

Words have 1, 2, 4, 8 or 16 bytes and can lie at any address: memcpy() of a word is a single instruction. The bytes of a
word are changed, and its signs are inverted, on the way; or its numbers become narrower.
"""

from libc.stdint cimport int64_t, uint8_t


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    typedef void (*dlbridge_line)(char *, const char *, int64_t, int64_t, int64_t, const uint8_t *);
    typedef void (*dlbridge_tile)(char *, const char *, int64_t, int64_t, int64_t, dlbridge_line, const uint8_t *);

    /* Vectors of GCC and Clang. Every machine with 16-byte registers has instructions for them. */
    typedef uint8_t dlbridge_vector_1 __attribute__((vector_size(16)));
    typedef uint16_t dlbridge_vector_2 __attribute__((vector_size(16)));
    typedef uint32_t dlbridge_vector_4 __attribute__((vector_size(16)));
    typedef uint64_t dlbridge_vector_8 __attribute__((vector_size(16)));
    typedef dlbridge_vector_8 dlbridge_vector_16;

    typedef uint8_t dlbridge_word_1;
    typedef uint16_t dlbridge_word_2;
    typedef uint32_t dlbridge_word_4;
    typedef uint64_t dlbridge_word_8;
    typedef dlbridge_vector_8 dlbridge_word_16;

    #define DLBRIDGE_KEEP(word) (word)
    #define DLBRIDGE_TRUTH(word) (word != 0)
    #define DLBRIDGE_HALVES_4(word) ((word & 0x00FF00FFu) << 8 | (word >> 8 & 0x00FF00FFu))
    #define DLBRIDGE_HALVES_8(word) (__builtin_bswap64(word) << 32 | __builtin_bswap64(word) >> 32)
    #define DLBRIDGE_HALVES_16(word) ((dlbridge_word_16) {__builtin_bswap64(word[0]), __builtin_bswap64(word[1])})

    /* ---- a line ----
       When the steps are known, the compiler moves many words at once. With other steps it is told to move four words
       at once: without that, it gathers them into vectors, at half the speed. */
    #define DLBRIDGE_MOVE(Word, change, into, source)                                                                  \
        do {                                                                                                           \
            Word word;                                                                                                 \
            memcpy(&word, source, sizeof word);                                                                        \
            word = (Word) (change(word) ^ flips);                                                                      \
            memcpy(into, &word, sizeof word);                                                                          \
        } while (0)

    #define DLBRIDGE_KNOWN_STEP(Word, change, known)                                                                   \
        if (into_step == size && source_step == (known)) {                                                             \
            for (int64_t at = 0; at < count; at++)                                                                     \
                DLBRIDGE_MOVE(Word, change, into + at * size, source + at * (known));                                  \
            return;                                                                                                    \
        }

    /* Words that change are first gathered, and then changed many at once. */
    enum { DLBRIDGE_GATHERED_BYTES = 1024, DLBRIDGE_FEW_WORDS = 16 };
    static const uint8_t dlbridge_no_flips[16];

    #define DLBRIDGE_GATHER(Word, change, gather)                                                                      \
        if (into_step == size && count >= DLBRIDGE_FEW_WORDS) {                                                        \
            char words[DLBRIDGE_GATHERED_BYTES];                                                                       \
            while (count > 0) {                                                                                        \
                int64_t some = count < (int64_t) sizeof words / size ? count : (int64_t) sizeof words / size;          \
                gather(words, source, some, size, source_step, dlbridge_no_flips);                                     \
                for (int64_t at = 0; at < some; at++)                                                                  \
                    DLBRIDGE_MOVE(Word, change, into + at * size, words + at * size);                                  \
                into += some * size;                                                                                   \
                source += some * source_step;                                                                          \
                count -= some;                                                                                         \
            }                                                                                                          \
            return;                                                                                                    \
        }

    /* Backwards, the compiler knows no quick way to every second, third or fourth word. So small words are gathered
       forwards, and then reversed. */
    #define DLBRIDGE_BACKWARDS(forwards)                                                                               \
        if (size <= 2 && into_step == size && -4 * size <= source_step && source_step < -size && count >= 64) {        \
            char words[DLBRIDGE_GATHERED_BYTES];                                                                       \
            while (count > 0) {                                                                                        \
                int64_t some = count < (int64_t) sizeof words / size ? count : (int64_t) sizeof words / size;          \
                forwards(words, source + (some - 1) * source_step, some, size, -source_step, dlbridge_no_flips);       \
                forwards(into, words + (some - 1) * size, some, size, -size, flips_at);                                \
                into += some * size;                                                                                   \
                source += some * source_step;                                                                          \
                count -= some;                                                                                         \
            }                                                                                                          \
            return;                                                                                                    \
        }

    #define DLBRIDGE_LINE(name, Word, change, source_is_apart, target)                                                 \
    target static void name(                                                                                           \
            char *restrict into, const char *restrict source, int64_t count, int64_t into_step, int64_t source_step,   \
            const uint8_t *flips_at) {                                                                                 \
        const int64_t size = sizeof(Word);                                                                             \
        Word flips;                                                                                                    \
        memcpy(&flips, flips_at, sizeof flips);                                                                        \
        DLBRIDGE_KNOWN_STEP(Word, change, size)                                                                        \
        source_is_apart                                                                                                \
        for (; count >= 4; count -= 4) {                                                                               \
            Word words[4];                                                                                             \
            for (int at = 0; at < 4; at++)                                                                             \
                DLBRIDGE_MOVE(Word, change, words + at, source + at * source_step);                                    \
            for (int at = 0; at < 4; at++)                                                                             \
                memcpy(into + at * into_step, words + at, sizeof(Word));                                               \
            into += 4 * into_step;                                                                                     \
            source += 4 * source_step;                                                                                 \
        }                                                                                                              \
        for (; count > 0; count--) {                                                                                   \
            DLBRIDGE_MOVE(Word, change, into, source);                                                                 \
            into += into_step;                                                                                         \
            source += source_step;                                                                                     \
        }                                                                                                              \
    }

    #define DLBRIDGE_KEEPING_LINE(size, suffix, target)                                                                \
        DLBRIDGE_LINE(dlbridge_keep_##size##suffix, dlbridge_word_##size, DLBRIDGE_KEEP,                               \
                      DLBRIDGE_KNOWN_STEP(dlbridge_word_##size, DLBRIDGE_KEEP, -size)                                  \
                      DLBRIDGE_KNOWN_STEP(dlbridge_word_##size, DLBRIDGE_KEEP, 0 * size)                               \
                      DLBRIDGE_KNOWN_STEP(dlbridge_word_##size, DLBRIDGE_KEEP, 2 * size)                               \
                      DLBRIDGE_KNOWN_STEP(dlbridge_word_##size, DLBRIDGE_KEEP, 3 * size)                               \
                      DLBRIDGE_KNOWN_STEP(dlbridge_word_##size, DLBRIDGE_KEEP, 4 * size)                               \
                      DLBRIDGE_BACKWARDS(dlbridge_keep_##size##suffix), target)
    #define DLBRIDGE_CHANGING_LINE(name, size, change, suffix, target)                                                 \
        DLBRIDGE_LINE(name##suffix, dlbridge_word_##size, change,                                                      \
                      DLBRIDGE_GATHER(dlbridge_word_##size, change, dlbridge_keep_##size##suffix), target)

    /* ---- a line of narrower words ----
       Its last argument is the byte in which it notes that a value does not fit. A finite value
       that rounds to infinity does not fit. So infinite results are looked for, many at once, and only if there is one,
       each value is tested. */
    #define DLBRIDGE_INFINITE(wide, narrow) (__builtin_fabsf(narrow) > __FLT_MAX__)
    #define DLBRIDGE_BEYOND_FLOAT(wide) (__builtin_isfinite(wide) && !__builtin_isfinite((float) (wide)))
    #define DLBRIDGE_HIGH_BITS(wide, narrow) DLBRIDGE_BEYOND_INT32(wide)
    #define DLBRIDGE_BEYOND_INT32(wide) (((uint64_t) (wide) + (UINT64_C(1) << 31)) >> 32)

    #define DLBRIDGE_NARROWING(name, Wide, Narrow, Suspects, suspect, beyond, target)                                  \
    target static void name(char *restrict into, const char *restrict source, int64_t count, const uint8_t *lost_at) { \
        Suspects suspects = 0;                                                                                         \
        Wide wide;                                                                                                     \
        for (int64_t at = 0; at < count; at++) {                                                                       \
            Narrow narrow;                                                                                             \
            memcpy(&wide, source + at * sizeof wide, sizeof wide);                                                     \
            narrow = (Narrow) wide;                                                                                    \
            suspects |= suspect(wide, narrow);                                                                         \
            memcpy(into + at * sizeof narrow, &narrow, sizeof narrow);                                                 \
        }                                                                                                              \
        for (int64_t at = 0; suspects && at < count; at++) {                                                           \
            memcpy(&wide, source + at * sizeof wide, sizeof wide);                                                     \
            if (beyond(wide))                                                                                          \
                __atomic_store_n((uint8_t *) lost_at, 1, __ATOMIC_RELAXED);                                            \
        }                                                                                                              \
    }

    /* Words that are apart, or in the other byte order, are gathered, narrowed, and put to their places. A word has one
       number, or two. */
    #define DLBRIDGE_NARROWING_LINE(name, narrowing, numbers, gather, is_native, from_size, to_size, suffix, target)   \
    target static void dlbridge_##name##suffix(                                                                        \
            char *restrict into, const char *restrict source, int64_t count, int64_t into_step, int64_t source_step,   \
            const uint8_t *lost_at) {                                                                                  \
        enum { BLOCK = 128 };                                                                                          \
        char wide[BLOCK * from_size], narrow[BLOCK * to_size];                                                         \
        if (is_native && into_step == to_size && source_step == from_size) {                                           \
            dlbridge_##narrowing##suffix(into, source, count * numbers, lost_at);                                      \
            return;                                                                                                    \
        }                                                                                                              \
        for (; count > 0; count -= BLOCK, into += BLOCK * into_step, source += BLOCK * source_step) {                  \
            int64_t some = count < BLOCK ? count : BLOCK;                                                              \
            dlbridge_##gather##suffix(wide, source, some, from_size, source_step, dlbridge_no_flips);                  \
            dlbridge_##narrowing##suffix(narrow, wide, some * numbers, lost_at);                                       \
            dlbridge_keep_##to_size##suffix(into, narrow, some, into_step, to_size, dlbridge_no_flips);                \
        }                                                                                                              \
    }

    /* ---- a tile ----
       A cache line of every row is read at once and written at once. So rows that fall into the same few places of the
       cache cannot drive each other out, as they would in arrays whose extents are powers of two. The cache holds up to
       eight rows wherever they fall, so tiles of up to eight rows are written straight to their places. */
    enum { DLBRIDGE_TILE_BYTES = 64, DLBRIDGE_FEW_ROWS = 8 };

    /* The words of the lower halves, and of the upper halves, of two vectors in turn. Each is one instruction. */
    #define DLBRIDGE_LOW_1(a, b) (dlbridge_vector_1) {a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3],                  \
                                                      a[4], b[4], a[5], b[5], a[6], b[6], a[7], b[7]}
    #define DLBRIDGE_HIGH_1(a, b) (dlbridge_vector_1) {a[8], b[8], a[9], b[9], a[10], b[10], a[11], b[11],             \
                                                       a[12], b[12], a[13], b[13], a[14], b[14], a[15], b[15]}
    #define DLBRIDGE_LOW_2(a, b) (dlbridge_vector_2) {a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3]}
    #define DLBRIDGE_HIGH_2(a, b) (dlbridge_vector_2) {a[4], b[4], a[5], b[5], a[6], b[6], a[7], b[7]}
    #define DLBRIDGE_LOW_4(a, b) (dlbridge_vector_4) {a[0], b[0], a[1], b[1]}
    #define DLBRIDGE_HIGH_4(a, b) (dlbridge_vector_4) {a[2], b[2], a[3], b[3]}
    #define DLBRIDGE_LOW_8(a, b) (dlbridge_vector_8) {a[0], b[0]}
    #define DLBRIDGE_HIGH_8(a, b) (dlbridge_vector_8) {a[1], b[1]}
    #define DLBRIDGE_LOW_16(a, b) (a)
    #define DLBRIDGE_HIGH_16(a, b) (b)

    #define DLBRIDGE_VECTOR_KEEP(a) (a)
    #define DLBRIDGE_VECTOR_TRUTH(a) ((dlbridge_vector_1) (a != 0) & 1)
    #define DLBRIDGE_REVERSE_2(a) (dlbridge_vector_1) {a[1], a[0], a[3], a[2], a[5], a[4], a[7], a[6],                 \
                                                       a[9], a[8], a[11], a[10], a[13], a[12], a[15], a[14]}
    #define DLBRIDGE_REVERSE_4(a) (dlbridge_vector_1) {a[3], a[2], a[1], a[0], a[7], a[6], a[5], a[4],                 \
                                                       a[11], a[10], a[9], a[8], a[15], a[14], a[13], a[12]}
    #define DLBRIDGE_REVERSE_8(a) (dlbridge_vector_1) {a[7], a[6], a[5], a[4], a[3], a[2], a[1], a[0],                 \
                                                       a[15], a[14], a[13], a[12], a[11], a[10], a[9], a[8]}

    /* A square of vectors is transposed by shuffling its first half with its second half, once for every bit in the
       index of a word. */
    #define DLBRIDGE_TILE(name, size, change, target)                                                                  \
    target static inline void name##_transpose(                                                                        \
            char *restrict into, const char *restrict source, int64_t into_step, int64_t source_step,                  \
            dlbridge_word_##size flips) {                                                                              \
        enum { SIDE = DLBRIDGE_TILE_BYTES / size, WORDS = 16 / size };                                                 \
        for (int row = 0; row < SIDE; row += WORDS)                                                                    \
            for (int column = 0; column < SIDE; column += WORDS) {                                                     \
                dlbridge_vector_##size square[WORDS], shuffled[WORDS];                                                 \
                for (int at = 0; at < WORDS; at++) {                                                                   \
                    dlbridge_vector_1 bytes;                                                                           \
                    memcpy(&bytes, source + (row + at) * source_step + column * size, 16);                             \
                    square[at] = (dlbridge_vector_##size) change(bytes) ^ flips;                                       \
                }                                                                                                      \
                for (int bit = 1; bit < WORDS; bit *= 2) {                                                             \
                    for (int at = 0; at < WORDS / 2; at++) {                                                           \
                        shuffled[2 * at] = DLBRIDGE_LOW_##size(square[at], square[at + WORDS / 2]);                    \
                        shuffled[2 * at + 1] = DLBRIDGE_HIGH_##size(square[at], square[at + WORDS / 2]);               \
                    }                                                                                                  \
                    memcpy(square, shuffled, sizeof square);                                                           \
                }                                                                                                      \
                for (int at = 0; at < WORDS; at++)                                                                     \
                    memcpy(into + (column + at) * into_step + row * size, &square[at], 16);                            \
            }                                                                                                          \
    }                                                                                                                  \
    target static void name(                                                                                           \
            char *restrict into, const char *restrict source, int64_t into_step, int64_t source_step,                  \
            int64_t neighbour_step, dlbridge_line gather, const uint8_t *flips_at) {                                   \
        enum { SIDE = DLBRIDGE_TILE_BYTES / size };                                                                    \
        dlbridge_word_##size flips, gathered[SIDE][SIDE], tile[SIDE][SIDE];                                            \
        memcpy(&flips, flips_at, sizeof flips);                                                                        \
        if (gather != NULL) {                                                                                          \
            for (int row = 0; row < SIDE; row++)                                                                       \
                gather((char *) gathered[row], source + row * source_step, SIDE, size, neighbour_step,                 \
                       dlbridge_no_flips);                                                                             \
            source = (const char *) gathered;                                                                          \
            source_step = sizeof gathered[0];                                                                          \
        }                                                                                                              \
        if (SIDE <= (int) DLBRIDGE_FEW_ROWS) {                                                                         \
            name##_transpose(into, source, into_step, source_step, flips);                                             \
            return;                                                                                                    \
        }                                                                                                              \
        name##_transpose((char *) tile, source, sizeof tile[0], source_step, flips);                                   \
        for (int row = 0; row < SIDE; row++)                                                                           \
            memcpy(into + row * into_step, tile[row], sizeof tile[row]);                                               \
    }

    /* ---- pixels ----
       One instruction puts 16 bytes of the source, a window, into any order. The first of them are whole pixels of the
       result; the next window is written over the others. AVX2 and 64-bit ARM have such an instruction. */
    #if defined(__x86_64__) && !defined(_MSC_VER)
    #include <immintrin.h>
    #define DLBRIDGE_SHUFFLES __builtin_cpu_supports("avx2")
    #define DLBRIDGE_SHUFFLE(bytes, order) (dlbridge_vector_1) _mm_shuffle_epi8((__m128i) bytes, (__m128i) order)
    __attribute__((target("avx2")))
    #elif defined(__aarch64__)
    #include <arm_neon.h>
    #define DLBRIDGE_SHUFFLES 1
    #define DLBRIDGE_SHUFFLE(bytes, order) (dlbridge_vector_1) vqtbl1q_u8((uint8x16_t) bytes, (uint8x16_t) order)
    #else
    #define DLBRIDGE_SHUFFLES 0
    #define DLBRIDGE_SHUFFLE(bytes, order) (bytes)
    #endif
    static void dlbridge_shuffle(
            char *restrict into, const char *restrict source, int64_t windows, int64_t into_step, int64_t source_step,
            const uint8_t *order_at) {
        dlbridge_vector_1 bytes, order;
        memcpy(&order, order_at, sizeof order);
        _Pragma("GCC unroll 4")
        for (int64_t at = 0; at < windows; at++) {
            memcpy(&bytes, source + at * source_step, sizeof bytes);
            bytes = DLBRIDGE_SHUFFLE(bytes, order);
            memcpy(into + at * into_step, &bytes, sizeof bytes);
        }
    }

    /* ---- the tables ---- */
    #define DLBRIDGE_KERNELS(suffix, target)                                                                           \
        DLBRIDGE_KEEPING_LINE(1, suffix, target)                                                                       \
        DLBRIDGE_KEEPING_LINE(2, suffix, target)                                                                       \
        DLBRIDGE_KEEPING_LINE(4, suffix, target)                                                                       \
        DLBRIDGE_KEEPING_LINE(8, suffix, target)                                                                       \
        DLBRIDGE_LINE(dlbridge_keep_16##suffix, dlbridge_word_16, DLBRIDGE_KEEP, , target)                             \
        DLBRIDGE_CHANGING_LINE(dlbridge_swap_2, 2, __builtin_bswap16, suffix, target)                                  \
        DLBRIDGE_CHANGING_LINE(dlbridge_swap_4, 4, __builtin_bswap32, suffix, target)                                  \
        DLBRIDGE_CHANGING_LINE(dlbridge_swap_8, 8, __builtin_bswap64, suffix, target)                                  \
        DLBRIDGE_CHANGING_LINE(dlbridge_halves_4, 4, DLBRIDGE_HALVES_4, suffix, target)                                \
        DLBRIDGE_CHANGING_LINE(dlbridge_halves_8, 8, DLBRIDGE_HALVES_8, suffix, target)                                \
        DLBRIDGE_LINE(dlbridge_halves_16##suffix, dlbridge_word_16, DLBRIDGE_HALVES_16, , target)                      \
        DLBRIDGE_CHANGING_LINE(dlbridge_truth_1, 1, DLBRIDGE_TRUTH, suffix, target)                                    \
        DLBRIDGE_NARROWING(dlbridge_floats##suffix, double, float, uint32_t, DLBRIDGE_INFINITE,                        \
                           DLBRIDGE_BEYOND_FLOAT, target)                                                              \
        DLBRIDGE_NARROWING(dlbridge_integers##suffix, int64_t, int32_t, uint64_t, DLBRIDGE_HIGH_BITS,                  \
                           DLBRIDGE_BEYOND_INT32, target)                                                              \
        DLBRIDGE_NARROWING_LINE(to_float, floats, 1, keep_8, 1, 8, 4, suffix, target)                                  \
        DLBRIDGE_NARROWING_LINE(to_floats, floats, 2, keep_16, 1, 16, 8, suffix, target)                               \
        DLBRIDGE_NARROWING_LINE(to_int32, integers, 1, keep_8, 1, 8, 4, suffix, target)                                \
        DLBRIDGE_NARROWING_LINE(swapped_to_float, floats, 1, swap_8, 0, 8, 4, suffix, target)                          \
        DLBRIDGE_NARROWING_LINE(swapped_to_floats, floats, 2, halves_16, 0, 16, 8, suffix, target)                     \
        DLBRIDGE_NARROWING_LINE(swapped_to_int32, integers, 1, swap_8, 0, 8, 4, suffix, target)                        \
        DLBRIDGE_TILE(dlbridge_keep_tile_1##suffix, 1, DLBRIDGE_VECTOR_KEEP, target)                                   \
        DLBRIDGE_TILE(dlbridge_keep_tile_2##suffix, 2, DLBRIDGE_VECTOR_KEEP, target)                                   \
        DLBRIDGE_TILE(dlbridge_keep_tile_4##suffix, 4, DLBRIDGE_VECTOR_KEEP, target)                                   \
        DLBRIDGE_TILE(dlbridge_keep_tile_8##suffix, 8, DLBRIDGE_VECTOR_KEEP, target)                                   \
        DLBRIDGE_TILE(dlbridge_keep_tile_16##suffix, 16, DLBRIDGE_VECTOR_KEEP, target)                                 \
        DLBRIDGE_TILE(dlbridge_swap_tile_2##suffix, 2, DLBRIDGE_REVERSE_2, target)                                     \
        DLBRIDGE_TILE(dlbridge_swap_tile_4##suffix, 4, DLBRIDGE_REVERSE_4, target)                                     \
        DLBRIDGE_TILE(dlbridge_swap_tile_8##suffix, 8, DLBRIDGE_REVERSE_8, target)                                     \
        DLBRIDGE_TILE(dlbridge_halves_tile_4##suffix, 4, DLBRIDGE_REVERSE_2, target)                                   \
        DLBRIDGE_TILE(dlbridge_halves_tile_8##suffix, 8, DLBRIDGE_REVERSE_4, target)                                   \
        DLBRIDGE_TILE(dlbridge_halves_tile_16##suffix, 16, DLBRIDGE_REVERSE_8, target)                                 \
        DLBRIDGE_TILE(dlbridge_truth_tile_1##suffix, 1, DLBRIDGE_VECTOR_TRUTH, target)                                 \
        static const dlbridge_line dlbridge_lines##suffix[8][5] = {                                                    \
            {dlbridge_keep_1##suffix, dlbridge_keep_2##suffix, dlbridge_keep_4##suffix, dlbridge_keep_8##suffix,       \
             dlbridge_keep_16##suffix},                                                                                \
            {dlbridge_keep_1##suffix, dlbridge_swap_2##suffix, dlbridge_swap_4##suffix, dlbridge_swap_8##suffix,       \
             NULL},                                                                                                    \
            {NULL, NULL, dlbridge_halves_4##suffix, dlbridge_halves_8##suffix, dlbridge_halves_16##suffix},            \
            {dlbridge_truth_1##suffix, NULL, NULL, NULL, NULL},                                                        \
            {NULL, NULL, dlbridge_to_float##suffix, dlbridge_to_floats##suffix, NULL},                                 \
            {NULL, NULL, dlbridge_to_int32##suffix, NULL, NULL},                                                       \
            {NULL, NULL, dlbridge_swapped_to_float##suffix, dlbridge_swapped_to_floats##suffix, NULL},                 \
            {NULL, NULL, dlbridge_swapped_to_int32##suffix, NULL, NULL}};                                              \
        static const dlbridge_tile dlbridge_tiles##suffix[8][5] = {                                                    \
            {dlbridge_keep_tile_1##suffix, dlbridge_keep_tile_2##suffix, dlbridge_keep_tile_4##suffix,                 \
             dlbridge_keep_tile_8##suffix, dlbridge_keep_tile_16##suffix},                                             \
            {dlbridge_keep_tile_1##suffix, dlbridge_swap_tile_2##suffix, dlbridge_swap_tile_4##suffix,                 \
             dlbridge_swap_tile_8##suffix, NULL},                                                                      \
            {NULL, NULL, dlbridge_halves_tile_4##suffix, dlbridge_halves_tile_8##suffix,                               \
             dlbridge_halves_tile_16##suffix},                                                                         \
            {dlbridge_truth_tile_1##suffix, NULL, NULL, NULL, NULL}};

    DLBRIDGE_KERNELS(, )
    /* The baseline of x86-64 cannot shuffle bytes. AVX2 can, which nearly every machine has had since 2015. It is not
       used with clang-cl: MSVC's linker does not find what __builtin_cpu_supports() reads. */
    #if defined(__x86_64__) && !defined(_MSC_VER)
    DLBRIDGE_KERNELS(_avx2, __attribute__((target("avx2"))))
    #define DLBRIDGE_BEST(table) (__builtin_cpu_supports("avx2") ? table##_avx2 : table)
    #else
    #define DLBRIDGE_BEST(table) table
    #endif
    #define DLBRIDGE_LINE_OF(change, column) DLBRIDGE_BEST(dlbridge_lines)[change][column]
    #define DLBRIDGE_TILE_OF(change, column) DLBRIDGE_BEST(dlbridge_tiles)[change][column]
    """
    const int64_t TILE_BYTES "DLBRIDGE_TILE_BYTES"
    const int64_t FEW_ROWS "DLBRIDGE_FEW_ROWS"
    # Whether this machine has shuffle().
    bint can_shuffle "(DLBRIDGE_SHUFFLES)"
    void shuffle "dlbridge_shuffle"(
        char* into, const char* source, int64_t windows, int64_t into_step, int64_t source_step, const uint8_t* order,
    ) noexcept nogil
    # A Line and a Tile of copying.pxd; column is log2 of the bytes of a word.
    const void* line_of "DLBRIDGE_LINE_OF"(int change, int column) noexcept nogil
    const void* tile_of "DLBRIDGE_TILE_OF"(int change, int column) noexcept nogil
