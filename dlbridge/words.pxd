"""The innermost loops of a copy, in C: a line of words, and a tile that is transposed.

Words have 1, 2, 4, 8 or 16 bytes and may lie at any address: memcpy() of one is a single instruction. A change of its
bytes and the inverting of its signs happen on the way.
"""

from libc.stdint cimport int64_t

from dlbridge.copying cimport Line, Tile


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    typedef void (*dlbridge_line)(char *, const char *, int64_t, int64_t, int64_t, const uint8_t *);
    typedef void (*dlbridge_tile)(char *, const char *, int64_t, int64_t, int64_t, dlbridge_line, const uint8_t *);

    /* Vectors of GCC's and Clang's, which every machine with 16-byte registers has instructions for. */
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
    #define DLBRIDGE_HALVES_4(word) ((word & 0x00FF00FFu) << 8 | (word >> 8 & 0x00FF00FFu))
    #define DLBRIDGE_HALVES_8(word) (__builtin_bswap64(word) << 32 | __builtin_bswap64(word) >> 32)
    #define DLBRIDGE_HALVES_16(word) ((dlbridge_word_16) {__builtin_bswap64(word[0]), __builtin_bswap64(word[1])})

    /* ---- a line ----
       Steps that are known let the compiler take many words at once; of the others it had better take four: left to
       itself, it gathers them into vectors, at a half of the speed. */
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

    #define DLBRIDGE_LINE(name, Word, change, keeps, target)                                                           \
    target static void name(                                                                                           \
            char *restrict into, const char *restrict source, int64_t count, int64_t into_step, int64_t source_step,   \
            const uint8_t *flips_at) {                                                                                 \
        const int64_t size = sizeof(Word);                                                                             \
        Word flips;                                                                                                    \
        memcpy(&flips, flips_at, sizeof flips);                                                                        \
        DLBRIDGE_KNOWN_STEP(Word, change, size)                                                                        \
        if (keeps) {                                                                                                   \
            DLBRIDGE_KNOWN_STEP(Word, change, -size)                                                                   \
            DLBRIDGE_KNOWN_STEP(Word, change, 0 * size)                                                                \
            DLBRIDGE_KNOWN_STEP(Word, change, 2 * size)                                                                \
            DLBRIDGE_KNOWN_STEP(Word, change, 3 * size)                                                                \
            DLBRIDGE_KNOWN_STEP(Word, change, 4 * size)                                                                \
        }                                                                                                              \
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

    /* ---- a tile ----
       A cache line of every row is read at once and written at once, so rows that fall into the same few places of the
       cache, as those of arrays with extents of a power of two do, cannot drive each other out. Tiles of up to eight
       rows, which the cache holds wherever they fall, are written straight to their places. */
    enum { DLBRIDGE_TILE_BYTES = 64, DLBRIDGE_FEW_ROWS = 8 };

    /* The lower, and the upper, halves of two vectors, in turns: one instruction each. */
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

    /* A square of vectors is transposed when each of its words has been shuffled with its half once for every bit of
       their number. */
    #define DLBRIDGE_TRANSPOSE(size)                                                                                   \
    static inline void dlbridge_transpose_##size(                                                                      \
            char *restrict into, const char *restrict source, int64_t into_step, int64_t source_step) {                \
        enum { SIDE = DLBRIDGE_TILE_BYTES / size, WORDS = 16 / size };                                                 \
        for (int row = 0; row < SIDE; row += WORDS)                                                                    \
            for (int column = 0; column < SIDE; column += WORDS) {                                                     \
                dlbridge_vector_##size square[WORDS], shuffled[WORDS];                                                 \
                for (int at = 0; at < WORDS; at++)                                                                     \
                    memcpy(&square[at], source + (row + at) * source_step + column * size, 16);                        \
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
    static void dlbridge_tile_##size(                                                                                  \
            char *restrict into, const char *restrict source, int64_t into_step, int64_t source_step,                  \
            int64_t neighbour_step, dlbridge_line line, const uint8_t *flips) {                                        \
        enum { SIDE = DLBRIDGE_TILE_BYTES / size };                                                                    \
        dlbridge_word_##size gathered[SIDE][SIDE], tile[SIDE][SIDE];                                                   \
        if (line != NULL) {                                                                                            \
            for (int row = 0; row < SIDE; row++)                                                                       \
                line((char *) gathered[row], source + row * source_step, SIDE, size, neighbour_step, flips);           \
            source = (const char *) gathered;                                                                          \
            source_step = sizeof gathered[0];                                                                          \
        }                                                                                                              \
        if (SIDE <= (int) DLBRIDGE_FEW_ROWS) {                                                                         \
            dlbridge_transpose_##size(into, source, into_step, source_step);                                           \
            return;                                                                                                    \
        }                                                                                                              \
        dlbridge_transpose_##size((char *) tile, source, sizeof tile[0], source_step);                                 \
        for (int row = 0; row < SIDE; row++)                                                                           \
            memcpy(into + row * into_step, tile[row], sizeof tile[row]);                                               \
    }
    DLBRIDGE_TRANSPOSE(1)
    DLBRIDGE_TRANSPOSE(2)
    DLBRIDGE_TRANSPOSE(4)
    DLBRIDGE_TRANSPOSE(8)
    DLBRIDGE_TRANSPOSE(16)
    static const dlbridge_tile dlbridge_tiles[5] = {
        dlbridge_tile_1, dlbridge_tile_2, dlbridge_tile_4, dlbridge_tile_8, dlbridge_tile_16};

    /* ---- the tables ---- */
    #define DLBRIDGE_LINES(suffix, target)                                                                             \
        DLBRIDGE_LINE(dlbridge_keep_1##suffix, dlbridge_word_1, DLBRIDGE_KEEP, 1, target)                              \
        DLBRIDGE_LINE(dlbridge_keep_2##suffix, dlbridge_word_2, DLBRIDGE_KEEP, 1, target)                              \
        DLBRIDGE_LINE(dlbridge_keep_4##suffix, dlbridge_word_4, DLBRIDGE_KEEP, 1, target)                              \
        DLBRIDGE_LINE(dlbridge_keep_8##suffix, dlbridge_word_8, DLBRIDGE_KEEP, 1, target)                              \
        DLBRIDGE_LINE(dlbridge_keep_16##suffix, dlbridge_word_16, DLBRIDGE_KEEP, 0, target)                            \
        DLBRIDGE_LINE(dlbridge_swap_2##suffix, dlbridge_word_2, __builtin_bswap16, 0, target)                          \
        DLBRIDGE_LINE(dlbridge_swap_4##suffix, dlbridge_word_4, __builtin_bswap32, 0, target)                          \
        DLBRIDGE_LINE(dlbridge_swap_8##suffix, dlbridge_word_8, __builtin_bswap64, 0, target)                          \
        DLBRIDGE_LINE(dlbridge_halves_4##suffix, dlbridge_word_4, DLBRIDGE_HALVES_4, 0, target)                        \
        DLBRIDGE_LINE(dlbridge_halves_8##suffix, dlbridge_word_8, DLBRIDGE_HALVES_8, 0, target)                        \
        DLBRIDGE_LINE(dlbridge_halves_16##suffix, dlbridge_word_16, DLBRIDGE_HALVES_16, 0, target)                     \
        static const dlbridge_line dlbridge_lines##suffix[3][5] = {                                                    \
            {dlbridge_keep_1##suffix, dlbridge_keep_2##suffix, dlbridge_keep_4##suffix, dlbridge_keep_8##suffix,       \
             dlbridge_keep_16##suffix},                                                                                \
            {dlbridge_keep_1##suffix, dlbridge_swap_2##suffix, dlbridge_swap_4##suffix, dlbridge_swap_8##suffix,       \
             NULL},                                                                                                    \
            {NULL, NULL, dlbridge_halves_4##suffix, dlbridge_halves_8##suffix, dlbridge_halves_16##suffix}};

    DLBRIDGE_LINES(, )
    #ifdef __x86_64__
    /* The baseline of x86-64 cannot shuffle bytes; what nearly every machine has had since 2015 can. */
    DLBRIDGE_LINES(_avx2, __attribute__((target("avx2"))))
    #define DLBRIDGE_LINE_OF(change, column) \
        (__builtin_cpu_supports("avx2") ? dlbridge_lines_avx2 : dlbridge_lines)[change][column]
    #else
    #define DLBRIDGE_LINE_OF(change, column) dlbridge_lines[change][column]
    #endif
    """
    const int64_t TILE_BYTES "DLBRIDGE_TILE_BYTES"
    const int64_t FEW_ROWS "DLBRIDGE_FEW_ROWS"
    Line line_of "DLBRIDGE_LINE_OF"(int change, int column) noexcept nogil      # column: log2 of the bytes of a word
    const Tile tile_of "dlbridge_tiles"[5]
