/* CUDA's runtime over a driver that the loader finds, for libraries that are built on it: libcudart.so.13.
 *
 * It is here for torch and CuPy on the fake driver, so it has what they call for memory, streams and events. Kernels can
 * be launched, and do nothing. on_fake.py adds the names that are missing, all of which answer "not supported". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <driver_types.h>

typedef unsigned long handle;
#define UNUSED(parameter) parameter __attribute__((unused))

/* The driver's functions; their arguments are checked there. */
int cuInit(), cuDriverGetVersion(), cuDeviceGetCount(), cuDevicePrimaryCtxRetain(), cuCtxGetCurrent(), cuCtxSetCurrent();
int cuCtxGetDevice(), cuCtxSynchronize(), cuMemGetInfo_v2(), cuGetErrorName(), cuGetErrorString(), cuGetProcAddress_v2();
int cuMemAlloc_v2(), cuMemFree_v2(), cuMemAllocManaged(), cuMemAllocAsync(), cuMemFreeAsync(), cuMemHostAlloc();
int cuMemFreeHost(), cuMemHostRegister_v2(), cuMemHostUnregister(), cuMemcpyAsync(), cuPointerGetAttribute();
int cuDeviceGetMemPool(), cuMemPoolGetAttribute(), cuMemPoolSetAttribute();
int cuStreamCreateWithPriority(), cuStreamDestroy_v2(), cuStreamSynchronize(), cuStreamWaitEvent(), cuStreamIsCapturing();
int cuThreadExchangeStreamCaptureMode();
int cuEventCreate(), cuEventDestroy_v2(), cuEventRecord(), cuEventQuery(), cuEventSynchronize();

enum { DEVICES = 2, INVALID_DEVICE = 101, NOT_SUPPORTED = 801 };
static handle contexts[DEVICES];                        /* the primary ones, retained with their first use */
static __thread int last;

/* The first call of a thread makes the first device's context current. */
static int enter(int device)
{
    if (!contexts[device] && (cuInit(0) || cuDevicePrimaryCtxRetain(&contexts[device], device)))
        return INVALID_DEVICE;
    return cuCtxSetCurrent(contexts[device]);
}

static int begin(void)
{
    handle current = 0;
    return !cuCtxGetCurrent(&current) && current ? 0 : enter(0);
}

static int keep(int code)
{
    last = code ? code : last;
    return code;
}

#define CALL(name, parameters, call) int name parameters { int code = begin(); return keep(code ? code : (call)); }
#define SAY(name, parameters, ...) int name parameters { __VA_ARGS__; return 0; }

/* ---- Errors, versions, devices ---- */

int cudaGetLastError(void) { int code = last; last = 0; return code; }
int cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorName(int code) { const char *says = "?"; cuGetErrorName(code, &says); return says; }
const char *cudaGetErrorString(int code) { const char *says = "?"; cuGetErrorString(code, &says); return says; }
SAY(cudaDriverGetVersion, (int *version), cuDriverGetVersion(version))
SAY(cudaRuntimeGetVersion, (int *version), *version = 13000)
SAY(cudaGetDeviceCount, (int *count), cuInit(0), cuDeviceGetCount(count))
CALL(cudaGetDevice, (int *device), cuCtxGetDevice(device))
CALL(cudaDeviceSynchronize, (void), cuCtxSynchronize())
SAY(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), *least = *greatest = 0)
SAY(cudaDeviceCanAccessPeer, (int *can, UNUSED(int device), UNUSED(int peer)), *can = 1)
SAY(cudaDeviceEnablePeerAccess, (UNUSED(int peer), UNUSED(unsigned flags)), )
SAY(cudaDeviceGetPCIBusId, (char *id, int n, int device), snprintf(id, (size_t)n, "0000:00:%02d.0", device))
SAY(cudaDeviceGetAttribute, (int *value, int attribute, UNUSED(int device)),
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : attribute != cudaDevAttrComputeCapabilityMinor)

int cudaSetDevice(int device)
{
    int current = -1;
    return device < 0 || device >= DEVICES ? keep(INVALID_DEVICE)
        : !cuCtxGetDevice(&current) && current == device ? 0 : keep(enter(device));
}

int cudaGetDeviceProperties(struct cudaDeviceProp *of, int device)
{
    *of = (struct cudaDeviceProp){
        .totalGlobalMem = 1ul << 34, .major = 9, .multiProcessorCount = 132, .warpSize = 32, .maxThreadsPerBlock = 1024,
        .maxThreadsPerMultiProcessor = 2048, .maxThreadsDim = {1024, 1024, 64}, .maxGridSize = {65535, 65535, 65535},
        .sharedMemPerBlock = 49152, .sharedMemPerBlockOptin = 232448, .regsPerBlock = 65536, .l2CacheSize = 50 << 20};
    snprintf(of->name, sizeof of->name, "Fake device %d", device);
    return 0;
}

/* ---- Memory ---- */

CALL(cudaMalloc, (handle *start, size_t n), n ? cuMemAlloc_v2(start, n) : (*start = 0, 0))
CALL(cudaMallocManaged, (handle *start, size_t n, unsigned flags), cuMemAllocManaged(start, n, flags))
CALL(cudaFree, (handle start), start ? cuMemFree_v2(start) : 0)
CALL(cudaHostAlloc, (handle *start, size_t n, unsigned flags), cuMemHostAlloc(start, n, flags))
CALL(cudaFreeHost, (handle start), cuMemFreeHost(start))
CALL(cudaHostRegister, (handle start, size_t n, unsigned flags), cuMemHostRegister_v2(start, n, flags))
CALL(cudaHostUnregister, (handle start), cuMemHostUnregister(start))
CALL(cudaMallocAsync, (handle *start, size_t n, handle stream), cuMemAllocAsync(start, n, stream))
CALL(cudaFreeAsync, (handle start, handle stream), cuMemFreeAsync(start, stream))
CALL(cudaMemGetInfo, (size_t *available, size_t *total), cuMemGetInfo_v2(available, total))
CALL(cudaDeviceGetDefaultMemPool, (handle *pool, int device), cuDeviceGetMemPool(pool, device))
CALL(cudaDeviceGetMemPool, (handle *pool, int device), cuDeviceGetMemPool(pool, device))
CALL(cudaMemPoolGetAttribute, (handle pool, int attribute, void *value), cuMemPoolGetAttribute(pool, attribute, value))
CALL(cudaMemPoolSetAttribute, (handle pool, int attribute, void *value), cuMemPoolSetAttribute(pool, attribute, value))
SAY(cudaMemPoolTrimTo, (UNUSED(handle pool), UNUSED(size_t n)), )

static int copy(handle to, handle from, size_t n, handle stream, int waits)
{
    int code = n ? cuMemcpyAsync(to, from, n, stream) : 0;
    return code || !waits ? code : cuStreamSynchronize(stream);
}

static int fill(handle to, int value, size_t n, handle stream)
{
    void *values = memset(malloc(n + 1), value, n);
    int code = copy(to, (handle)values, n, stream, 0);      /* the fake driver copies at once */
    free(values);
    return code;
}

CALL(cudaMemcpy, (handle to, handle from, size_t n, UNUSED(int kind)), copy(to, from, n, 0, 1))
CALL(cudaMemcpyAsync, (handle to, handle from, size_t n, UNUSED(int kind), handle stream), copy(to, from, n, stream, 0))
CALL(cudaMemset, (handle to, int value, size_t n), fill(to, value, n, 0))
CALL(cudaMemsetAsync, (handle to, int value, size_t n, handle stream), fill(to, value, n, stream))

int cudaPointerGetAttributes(struct cudaPointerAttributes *of, handle pointer)
{
    unsigned type = 0, managed = 0;
    *of = (struct cudaPointerAttributes){.device = -2, .hostPointer = (void *)pointer};
    if (begin() || cuPointerGetAttribute(&type, 2, pointer))
        return 0;                                       /* memory that the driver does not know is the host's */
    cuPointerGetAttribute(&managed, 8, pointer);
    cuPointerGetAttribute(&of->device, 9, pointer);
    of->type = managed ? cudaMemoryTypeManaged : type;
    of->devicePointer = (void *)pointer;
    of->hostPointer = type == cudaMemoryTypeHost || managed ? (void *)pointer : NULL;
    return 0;
}

/* ---- Streams and events ---- */

CALL(cudaStreamCreate, (handle *stream), cuStreamCreateWithPriority(stream, 0, 0))
CALL(cudaStreamCreateWithFlags, (handle *stream, unsigned flags), cuStreamCreateWithPriority(stream, flags, 0))
CALL(cudaStreamCreateWithPriority, (handle *stream, unsigned flags, int priority),
     cuStreamCreateWithPriority(stream, flags, priority))
CALL(cudaStreamDestroy, (handle stream), cuStreamDestroy_v2(stream))
CALL(cudaStreamSynchronize, (handle stream), cuStreamSynchronize(stream))
CALL(cudaStreamWaitEvent, (handle stream, handle event, unsigned flags), cuStreamWaitEvent(stream, event, flags))
CALL(cudaStreamIsCapturing, (handle stream, int *status), cuStreamIsCapturing(stream, status))
CALL(cudaStreamGetCaptureInfo, (handle stream, int *status), cuStreamIsCapturing(stream, status))
CALL(cudaThreadExchangeStreamCaptureMode, (int *mode), cuThreadExchangeStreamCaptureMode(mode))
SAY(cudaStreamGetPriority, (UNUSED(handle stream), int *priority), *priority = 0)
SAY(cudaStreamQuery, (UNUSED(handle stream)), )
CALL(cudaEventCreate, (handle *event), cuEventCreate(event, 0))
CALL(cudaEventCreateWithFlags, (handle *event, unsigned flags), cuEventCreate(event, flags))
CALL(cudaEventDestroy, (handle event), cuEventDestroy_v2(event))
CALL(cudaEventRecord, (handle event, handle stream), cuEventRecord(event, stream))
CALL(cudaEventRecordWithFlags, (handle event, handle stream, UNUSED(unsigned flags)), cuEventRecord(event, stream))
CALL(cudaEventQuery, (handle event), cuEventQuery(event))
CALL(cudaEventSynchronize, (handle event), cuEventSynchronize(event))
SAY(cudaEventElapsedTime, (float *milliseconds, UNUSED(handle first), UNUSED(handle then)), *milliseconds = 1)

int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long flags, int *status)
{
    return cuGetProcAddress_v2(name, function, (int)version, (long)flags, status) ? keep(NOT_SUPPORTED) : 0;
}

/* ---- Kernels: they are registered and launched, and do nothing ---- */

#define NOTHING(name) int name(void) { return 0; }
void **__cudaRegisterFatBinary(UNUSED(void *binary)) { static void *one; return &one; }
NOTHING(__cudaRegisterFatBinaryEnd)
NOTHING(__cudaUnregisterFatBinary)
NOTHING(__cudaRegisterFunction)
NOTHING(__cudaRegisterVar)
NOTHING(__cudaPushCallConfiguration)
NOTHING(__cudaPopCallConfiguration)
NOTHING(__cudaLaunchKernel)
NOTHING(cudaLaunchKernel)
NOTHING(cudaLaunchKernelExC)
NOTHING(cudaFuncSetAttribute)
char __cudaInitModule(UNUSED(void **binary)) { return 1; }
SAY(__cudaGetKernel, (const void **kernel, const void *function), *kernel = function)
SAY(cudaFuncGetAttributes, (struct cudaFuncAttributes *of, UNUSED(const void *function)),
    *of = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024})
SAY(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks), *blocks = 2)
SAY(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int *blocks), *blocks = 2)
