/* Threads that Python never saw, which let tensors go, for test_exit.py. */

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef void (*Deleter)(void *);

struct Work {
    long count, microseconds;
    Deleter deleters[1024];
    void *tensors[1024];
};

static void *let_go(void *given) {
    struct Work *work = given;
    for (long index = 0; index < work->count; index++) {
        work->deleters[index](work->tensors[index]);
        usleep(work->microseconds);
    }
    return NULL;
}

/* Lets one tensor go after the other, from a thread of its own that nobody waits for. */
int start_letting_go(long count, Deleter const *deleters, void *const *tensors, long microseconds) {
    pthread_t thread;
    struct Work *work = malloc(sizeof *work);
    work->count = count;
    work->microseconds = microseconds;
    for (long index = 0; index < count; index++) {
        work->deleters[index] = deleters[index];
        work->tensors[index] = tensors[index];
    }
    return pthread_create(&thread, NULL, let_go, work);
}
