/* Allocations that fail when they are told to, before those of the C library (LD_PRELOAD): the counting wrapper of
 * test_failures.py. Of each thread its own calls count, so that those of other threads go on. */

#include <errno.h>
#include <limits.h>
#include <stddef.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

enum { CALLERS = 256 };

static __thread long calls, first = LONG_MAX, last;
static long live;                               /* blocks that were given out and not taken back */
static const char *callers[CALLERS][2];         /* the code whose calls count; all if there is none */
static int caller_count;
static long deleted;

void failing_arm(long from, long to) { calls = 0; first = from; last = to; }
void failing_disarm(void) { first = LONG_MAX; }
long failing_calls(void) { return calls; }
long failing_live(void) { return __atomic_load_n(&live, __ATOMIC_SEQ_CST); }
void failing_forget_callers(void) { caller_count = 0; }
void failing_add_caller(const char *begin, const char *end) {
    callers[caller_count][0] = begin;
    callers[caller_count++][1] = end;
}
/* Deleters that need no memory themselves. */
void failing_delete(void *tensor) { (void) tensor; __atomic_add_fetch(&deleted, 1, __ATOMIC_SEQ_CST); }
long failing_deleted(void) { return __atomic_exchange_n(&deleted, 0, __ATOMIC_SEQ_CST); }

static int fails(const char *caller) {
    int counts = caller_count == 0;
    if (first == LONG_MAX)
        return 0;
    for (int index = 0; index < caller_count && !counts; index++)
        counts = callers[index][0] <= caller && caller < callers[index][1];
    if (!counts)
        return 0;
    calls++;
    return first <= calls && calls <= last;
}

static void *counted(void *memory) {
    if (memory)
        __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
    else
        errno = ENOMEM;
    return memory;
}

#define CALLER ((const char *) __builtin_return_address(0))

void *malloc(size_t size) { return counted(fails(CALLER) ? NULL : __libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return counted(fails(CALLER) ? NULL : __libc_calloc(count, size)); }
void *memalign(size_t alignment, size_t size) { return counted(fails(CALLER) ? NULL : __libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) {
    return counted(fails(CALLER) ? NULL : __libc_memalign(alignment, size));
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    void *made = counted(fails(CALLER) ? NULL : __libc_memalign(alignment, size));
    if (!made)
        return ENOMEM;
    *memory = made;
    return 0;
}

void *realloc(void *memory, size_t size) {
    if (!memory)
        return counted(fails(CALLER) ? NULL : __libc_malloc(size));
    if (size && fails(CALLER)) {
        errno = ENOMEM;
        return NULL;
    }
    if (!size)
        __atomic_add_fetch(&live, -1, __ATOMIC_SEQ_CST);
    return __libc_realloc(memory, size);
}

void free(void *memory) {
    if (memory)
        __atomic_add_fetch(&live, -1, __ATOMIC_SEQ_CST);
    __libc_free(memory);
}
