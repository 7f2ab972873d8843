"""One bug of each kind. The scripts of this folder build them beside the package, and have their tool find them before
its silence about the package counts; they are never installed.

The values go through volatile, or the compiler would take the bugs out.
"""

from cpython.ref cimport Py_INCREF


cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    static char dlbridge_read_beyond(void) {
        volatile int size = 16;
        char *memory = malloc(size);
        memset(memory, 1, size);
        char beyond = ((volatile char *) memory)[size];
        free(memory);
        return beyond;
    }
    static char dlbridge_use_freed(void) {
        volatile int size = 16;
        char *volatile memory = malloc(size);
        memset(memory, 1, size);
        free(memory);
        return ((volatile char *) memory)[3];
    }
    static void dlbridge_free_twice(void) {
        char *volatile memory = malloc(16);
        free(memory);
        free(memory);
    }
    static int64_t dlbridge_overflow(void) {
        volatile int64_t large = INT64_MAX;
        return large + 1;
    }
    static int32_t dlbridge_misalign(void) {
        volatile char bytes[16] = {0};
        char *volatile odd = (char *) bytes + 1;
        return *(volatile int32_t *) odd;
    }
    static int dlbridge_branch_on_unset(void) {
        volatile char *memory = malloc(16);
        int answer = memory[3] == 'a' ? 1 : 2;
        free((void *) memory);
        return answer;
    }
    static char *volatile dlbridge_lost;
    static void dlbridge_lose(void) {
        dlbridge_lost = malloc(12345);
        dlbridge_lost = NULL;
    }
    /* What a coverage-guided fuzzer finds step by step, and a blind one in thousands of millions of executions. */
    static int dlbridge_four_bytes(const char *bytes, int64_t size) {
        if (size >= 4 && bytes[0] == 'D')
            if (bytes[1] == 'L')
                if (bytes[2] == 'P')
                    if (bytes[3] == 'K')
                        return dlbridge_read_beyond();
        return 0;
    }
    static int64_t dlbridge_counter;
    static void dlbridge_race(int64_t times) {
        for (int64_t at = 0; at < times; at++)
            *(volatile int64_t *) &dlbridge_counter += 1;
    }
    """
    char c_read_beyond "dlbridge_read_beyond"() nogil
    char c_use_freed "dlbridge_use_freed"() nogil
    void c_free_twice "dlbridge_free_twice"() nogil
    long c_overflow "dlbridge_overflow"() nogil
    int c_misalign "dlbridge_misalign"() nogil
    int c_branch_on_unset "dlbridge_branch_on_unset"() nogil
    void c_lose "dlbridge_lose"() nogil
    int c_four_bytes "dlbridge_four_bytes"(const char* bytes, long size) nogil
    void c_race "dlbridge_race"(long times) nogil


def read_beyond():
    return c_read_beyond()


def use_freed():
    return c_use_freed()


def free_twice():
    c_free_twice()


def overflow():
    return c_overflow()


def misalign():
    return c_misalign()


def branch_on_unset():
    return c_branch_on_unset()


def lose_memory():
    c_lose()


def lose_reference(obj):
    Py_INCREF(obj)


def four_bytes(bytes data):
    return c_four_bytes(data, len(data))


def race(long times):
    with nogil:
        c_race(times)
