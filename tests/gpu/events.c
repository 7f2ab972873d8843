/* A libcuda.so.1 that counts CUDA events, and is the real driver in everything else.

   events.sh links it so that the driver is what it depends on: dlsym() on its handle finds these functions first, and
   all other names in the driver. Who asks cuGetProcAddress() for the two is given these as well. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static long live;

static void *real(const char *name)
{
    static void *driver;
    if (!driver)
        driver = dlopen(REAL_DRIVER, RTLD_LAZY);
    return dlsym(driver, name);
}

long dlbridge_live_events(void)
{
    return __atomic_load_n(&live, __ATOMIC_SEQ_CST);
}

int cuEventCreate(void **event, unsigned int flags)
{
    int code = ((int (*)(void **, unsigned int))real("cuEventCreate"))(event, flags);
    if (code == 0)
        __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
    return code;
}

int cuEventDestroy_v2(void *event)
{
    int code = ((int (*)(void *))real("cuEventDestroy_v2"))(event);
    if (code == 0)
        __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
    return code;
}

int cuEventDestroy(void *event)
{
    return cuEventDestroy_v2(event);
}

static void replace(const char *symbol, void **function)
{
    if (strcmp(symbol, "cuEventCreate") == 0)
        *function = (void *)cuEventCreate;
    else if (strcmp(symbol, "cuEventDestroy") == 0)
        *function = (void *)cuEventDestroy_v2;
}

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    int code = ((int (*)(const char *, void **, int, uint64_t))real("cuGetProcAddress"))(symbol, function, version, flags);
    if (code == 0)
        replace(symbol, function);
    return code;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    int code = ((int (*)(const char *, void **, int, uint64_t, int *))real("cuGetProcAddress_v2"))(
        symbol, function, version, flags, status);
    if (code == 0)
        replace(symbol, function);
    return code;
}
