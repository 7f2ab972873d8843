/* Deleters that need no Python, and who calls deleters: threads that Python never saw, and code with an exception. */

#include <Python.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static long deleted;

void count_deleted(void *tensor) { (void) tensor; deleted++; }
void count_and_interrupt(void *tensor) { (void) tensor; deleted++; raise(SIGINT); }
long take_deleted(void) { long count = deleted; deleted = 0; return count; }

/* Whether an exception that is on its way is the same after a function was called; it is cleared. */
static int is_kept(void (*function)(void *), void *argument) {
    PyObject *before = PyObject_CallFunction(PyExc_LookupError, "s", "on its way"), *kind, *after, *traceback;
    int kept;
    PyErr_SetObject(PyExc_LookupError, before);
    function(argument);
    PyErr_Fetch(&kind, &after, &traceback);
    kept = kind == PyExc_LookupError && after == before;
    Py_XDECREF(kind), Py_XDECREF(after), Py_XDECREF(traceback), Py_XDECREF(before);
    return kept;
}

static void drop(void *object) { Py_DECREF((PyObject *) object); }

/* The only reference of a list to its first element, which so dies while an exception is on its way. */
int drops_keeping_error(PyObject *list) {
    PyObject *object = PyList_GetItem(list, 0);
    Py_INCREF(object);
    PyList_SetSlice(list, 0, 1, NULL);
    return is_kept(drop, object);
}

int deletes_keeping_error(void (*deleter)(void *), void *tensor) { return is_kept(deleter, tensor); }

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
