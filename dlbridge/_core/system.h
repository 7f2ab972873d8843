/* What operating systems give, by one name each. What a system does not give is done without: a copy then runs on one
   thread, and memory has pages of the usual size. */
#ifndef DLBRIDGE_SYSTEM_H
#define DLBRIDGE_SYSTEM_H

#include <Python.h>

#ifdef _WIN32

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef int dlbridge_Thread;

static inline int dlbridge_cores(void) { return 1; }

static inline int dlbridge_start_thread(dlbridge_Thread *out, void *(*run)(void *), void *argument) {
    (void) out, (void) run, (void) argument;
    return 0;
}

static inline void dlbridge_join_thread(dlbridge_Thread thread) { (void) thread; }

static inline void dlbridge_want_huge_pages(void *memory, size_t nbytes) { (void) memory, (void) nbytes; }

/* From the system's own folder alone, where drivers are installed. */
static inline void *dlbridge_open_library(const char *name) {
    return (void *) LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
}

static inline void *dlbridge_symbol(void *library, const char *name) {
    return (void *) GetProcAddress((HMODULE) library, name);
}

static inline PyObject *dlbridge_file_of(const void *address) {
    const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    HMODULE library;
    wchar_t name[MAX_PATH];
    DWORD length = 0;
    if (GetModuleHandleExW(flags, (const wchar_t *) address, &library))
        length = GetModuleFileNameW(library, name, MAX_PATH);
    return PyUnicode_FromWideChar(name, length < MAX_PATH ? (Py_ssize_t) length : 0);
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

typedef pthread_t dlbridge_Thread;

static inline int dlbridge_cores(void) {
#ifdef __linux__
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
#else
    return (int) sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

/* The thread inherits the mask that no signal passes: signals have to reach the threads of Python. */
static inline int dlbridge_start_thread(dlbridge_Thread *out, void *(*run)(void *), void *argument) {
    sigset_t every, before;
    int error;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    error = pthread_create(out, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !error;
}

static inline void dlbridge_join_thread(dlbridge_Thread thread) { pthread_join(thread, NULL); }

static inline void dlbridge_want_huge_pages(void *memory, size_t nbytes) {
#ifdef MADV_HUGEPAGE
    size_t page = (size_t) sysconf(_SC_PAGESIZE), begin = ((size_t) memory + page - 1) / page * page;
    madvise((void *) begin, (size_t) memory + nbytes - begin, MADV_HUGEPAGE);
#else
    (void) memory, (void) nbytes;
#endif
}

static inline void *dlbridge_open_library(const char *name) { return dlopen(name, RTLD_NOW); }

static inline void *dlbridge_symbol(void *library, const char *name) { return dlsym(library, name); }

static inline PyObject *dlbridge_file_of(const void *address) {
    Dl_info info;
    return PyUnicode_DecodeFSDefault(dladdr(address, &info) && info.dli_fname != NULL ? info.dli_fname : "");
}

#endif
#endif
