/* A GPU driver over host memory, with two devices: libcuda.so.1 (-DHIP=0) or libamdhip64.so (-DHIP=1).
 *
 * It does at once what a driver would queue, and notes by vector clocks what a driver would have been free to overlap.
 * Each stream, each event and the host carry one: for every stream, how much of its work is known to be done. A use of
 * memory that does not follow all that it has to follow is a race, which the harness makes the child fail for, although
 * nothing has gone wrong here. Uses are what is copied, allocated and freed here, and what a test tells with fake_use().
 *
 * Where a driver is strict, so is this one: a call before Init, without a context, with a dead handle, or
 * that records an event of another device fails. A device's memory is out of the CPU's reach: SIGSEGV. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long handle;       /* whatever the API hides behind a pointer, and addresses */

#define ERRORS(X) \
    X(0, SUCCESS, "Success", "no error") \
    X(1, INVALID_VALUE, "InvalidValue", "an argument is not valid") \
    X(2, OUT_OF_MEMORY, "OutOfMemory", "no memory is left") \
    X(3, NOT_INITIALIZED, "NotInitialized", "the driver is not initialised") \
    X(4, DEINITIALIZED, "Deinitialized", "the driver is shutting down") \
    X(100, NO_DEVICE, "NoDevice", "there is no device") \
    X(101, INVALID_DEVICE, "InvalidDevice", "there is no such device") \
    X(201, INVALID_CONTEXT, "InvalidContext", "the context is not valid") \
    X(400, INVALID_HANDLE, "InvalidHandle", "the handle is not valid") \
    X(500, NOT_FOUND, "NotFound", "there is no such symbol") \
    X(600, NOT_READY, "NotReady", "the work is not done") \
    X(700, ILLEGAL_ADDRESS, "IllegalAddress", "an address is not the device's") \
    X(709, CONTEXT_IS_DESTROYED, "ContextIsDestroyed", "the context is destroyed") \
    X(719, LAUNCH_FAILED, "LaunchFailure", "a kernel failed") \
    X(801, NOT_SUPPORTED, "NotSupported", "the operation is not supported") \
    X(900, STREAM_CAPTURE_UNSUPPORTED, "StreamCaptureUnsupported", "not while a stream captures") \
    X(901, STREAM_CAPTURE_INVALIDATED, "StreamCaptureInvalidated", "the capture is invalidated") \
    X(905, STREAM_CAPTURE_ISOLATION, "StreamCaptureIsolation", "the order would cross a capture") \
    X(906, STREAM_CAPTURE_IMPLICIT, "StreamCaptureImplicit", "the legacy stream would join a capture") \
    X(999, UNKNOWN, "Unknown", "not known")
#define CONSTANT(value, name, hip, text) name = value,
#define ROW(value, name, hip, text) {value, {HIP ? (value ? "hipError" hip : "hipSuccess") \
                                                 : (value ? "CUDA_ERROR_" #name : "CUDA_SUCCESS"), text}},
enum { ERRORS(CONSTANT) };
static const struct { int code; const char *says[2]; } errors[] = {ERRORS(ROW)};
#define EACH(index, table) size_t index = 0; index < sizeof table / sizeof *table; index++

static struct device { int retained; size_t kept; } devices[2];     /* its address is the handle of its primary context */

enum { LANES = 256 };
static struct lane {                                    /* where work is in order: the host, and each stream */
    handle stream;
    int device, non_blocking;
    unsigned known[LANES];                              /* of each lane, how much work comes before what is next here */
} lanes[LANES] = {{.stream = -1}};
static int lane_count = 1;                              /* the first is the host's: all of its threads, in the order of their calls */
static char races[1 << 16];

enum { DEAD, EVENT, STREAM, MEMORY, PAGES, RANGE };
enum { HOST = 1, DEVICE, MANAGED };
static struct object {                                  /* its address is an event's or a stream's handle */
    struct object *next;                                /* the dead are kept, so that no handle comes back */
    int kind, device, type;                             /* type: of memory, one of the three */
    int capturing, global, non_blocking;                /* a stream's status; an event has its stream's at the record */
    int in_pool;                                        /* of memory that was freed in the order of a stream */
    int descriptor;                                     /* of pages */
    int mapped, out_of_reach;                           /* of memory: made of pages; which no device may use yet */
    int busy, runs;                                     /* a stream that is kept from running, and how often it ran */
    struct object *of;                                  /* an event's stream, which has to run ... */
    int due;                                            /* ... so often before the event has happened */
    handle start;
    size_t size;
    unsigned known[LANES];                              /* an event: what was done when it was recorded */
    struct place { int lane; unsigned at; } written;    /* of memory: the last write */
    struct use { int lane, writes; unsigned at; size_t begin, end; const char *what; } *uses;    /* ... and what is to follow */
    size_t use_count;
} *objects, standard[3] = {{.kind = STREAM}, {.kind = STREAM}, {.kind = STREAM}};         /* the streams 0, 1 and 2 */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static handle context_of;               /* what memory is said to be of, in place of its device's primary context */
static int initialized = HIP, deinitialized, concurrent_managed_access = 1, descriptors = 1, pushed;
static struct { char call[48]; int code, after, times; } failures[32];
static char text[1 << 23];
static size_t written;

static __thread struct device *stack[64], *top;         /* HIP: the top outlives a pop, and begins as device 0 */
static __thread int depth;
static int current(void) { return top ? (int)(top - devices) : HIP - 1; }
static int ordinal(handle context) { return context ? (int)((struct device *)context - devices) : -1; }

/* ---- A call: under the lock, `body` gives its code, unless a failure is set; then one line is logged ---- */

#define UNUSED(parameter) parameter __attribute__((unused))
static void unlock(UNUSED(int *guard)) { pthread_mutex_unlock(&mutex); }
#define LOCKED int guard __attribute__((cleanup(unlock), unused)) = pthread_mutex_lock(&mutex)
#define CALL(name, body, ...) { LOCKED; int code = forced(name); if (!code) code = (body); \
                                return note(code, name, "" __VA_ARGS__); }
#if HIP
#define EITHER(cuda, hip) hip
#else
#define EITHER(cuda, hip) cuda
#endif
#define BOTH(name, cuda, hip, parameters, body, ...) int EITHER(cuda, hip) parameters CALL(name, body, __VA_ARGS__)
#define CUDA(name, symbol, parameters, body, ...) int symbol parameters CALL(name, body, __VA_ARGS__)

static int forced(const char *call)
{
    if (deinitialized)
        return DEINITIALIZED;
    for (EACH(i, failures))
        if (failures[i].code && !strcmp(failures[i].call, call) && !(failures[i].after && failures[i].after--)) {
            int code = failures[i].code;
            if (failures[i].times && !--failures[i].times)
                failures[i].code = 0;
            return code;
        }
    return initialized || !strcmp(call, "Init") || !strcmp(call, "DriverGetVersion") ? SUCCESS : NOT_INITIALIZED;
}

static int note(int code, const char *call, const char *format, ...)
{
#ifdef SILENT                                           /* where instructions are counted, not calls */
    return (void)call, (void)format, code;
#endif
    char *line = text + written, arguments[256], result[24] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    if (code)
        snprintf(result, sizeof result, " -> %d", code);
    if (written + sizeof arguments + 128 > sizeof text) {
        fputs("fake driver: the log is full (clear it now and then)\n", stderr);
        abort();
    }
    written += (size_t)sprintf(line, "%s%s%s%s\n", call, *format ? " " : "", arguments, result);
    return code;
}

static int error_text(const char *call, int code, int which, const char **says)
{
    LOCKED;
    *says = HIP ? "hipErrorUnknown" : NULL;
    for (EACH(i, errors))
        if (errors[i].code == code)
            *says = errors[i].says[which];
    note(SUCCESS, call, "code=%d", code);
    return *says ? SUCCESS : INVALID_VALUE;
}

/* ---- Order ---- */

static int lane_of(handle stream, int device)
{
    for (int lane = 1; lane < lane_count; lane++)
        if (lanes[lane].stream == (stream == 1 ? 0 : stream) && (stream > 2 || lanes[lane].device == device))
            return lane;
    if (lane_count == LANES)
        return LANES - 1;                               /* the streams that are too many are taken for one */
    lanes[lane_count].stream = stream == 1 ? 0 : stream;
    lanes[lane_count].device = device;
    lanes[lane_count].non_blocking = stream > 2 && ((struct object *)stream)->non_blocking;
    return lane_count++;
}

static void learn(unsigned *known, const unsigned *other)
{
    for (int lane = 0; lane < lane_count; lane++)
        if (known[lane] < other[lane])
            known[lane] = other[lane];
}

/* Queue work: it follows what the host knows of, and what is between the legacy stream and those that block with it. */
static int queue(int lane)
{
    learn(lanes[lane].known, lanes[0].known);
    for (int other = 1; other < lane_count && lane && !lanes[lane].non_blocking; other++)
        if (lanes[other].device == lanes[lane].device && !lanes[other].non_blocking &&
                (!lanes[lane].stream || !lanes[other].stream))
            learn(lanes[lane].known, lanes[other].known);
    lanes[lane].known[lane]++;
    return lane;
}

static void finish(int device, int lane)        /* the host waits for a lane, or for all of a device */
{
    for (int other = 1; other < lane_count; other++)
        if (lane ? other == lane : lanes[other].device == device)
            learn(lanes[0].known, lanes[other].known);
    if (lane)
        learn(lanes[0].known, lanes[queue(lane)].known);
}

static void race(handle of, const char *what, int lane, const char *before, int other)
{
    size_t length = strlen(races);
    snprintf(races + length, sizeof races - length, "RACE 0x%lx: %s on stream 0x%lx does not follow %s on stream 0x%lx\n",
             of, what, lanes[lane].stream, before, lanes[other].stream);
}

/* A use follows the writes of the same bytes, and a write the reads of them, too. What it covers need not be followed. */
static void check_part(struct object *memory, int lane, const char *what, int writes, size_t begin, size_t end)
{
    unsigned at = lanes[lane].known[lane];
    size_t left = 0;
    for (size_t i = 0; i < memory->use_count; i++) {
        struct use *before = &memory->uses[i];
        if (before->begin < end && begin < before->end && (writes || before->writes) &&
                lanes[lane].known[before->lane] < before->at)
            race(memory->start, what, lane, before->what, before->lane);
        if (!(begin <= before->begin && before->end <= end && (writes || (!before->writes && before->lane == lane))))
            memory->uses[left++] = *before;
    }
    memory->uses = realloc(memory->uses, (left + 1) * sizeof *memory->uses);
    memory->uses[left] = (struct use){lane, writes, at, begin, end, what};
    memory->use_count = left + 1;
    if (writes)
        memory->written = (struct place){lane, at};
}

static void check_use(struct object *memory, int lane, const char *what, int writes)
{
    check_part(memory, lane, what, writes, 0, memory->size);
}

/* ---- Events and streams ---- */

static struct object *make(int kind, int device)
{
    struct object *object = calloc(1, sizeof *object);
    *object = (struct object){.next = objects, .kind = kind, .device = device};
    return objects = object;
}

static struct object *find(int kind, handle of)
{
    if (kind == STREAM && of < 3)
        return standard[of].kind == STREAM ? &standard[of] : NULL;
    for (struct object *object = objects; object; object = object->next)
        if (object->kind == kind && (kind == MEMORY ? of - object->start < object->size : of == (handle)object))
            return object;
    return NULL;
}

/* A driver that is given a dead handle does as it likes. */
static void no_dead(handle of)
{
    for (struct object *object = objects; object; object = object->next)
        if (object->kind == DEAD && !object->size && of == (handle)object) {
            fprintf(stderr, "fake driver: handle 0x%lx is dead\n", of);
            abort();
        }
}

static int create(int kind, handle *result, unsigned flags)
{
    if (current() < 0)
        return INVALID_CONTEXT;
    struct object *object = make(kind, current());
    object->non_blocking = flags & 1;
    *result = (handle)object;
    return SUCCESS;
}

static int destroy(int kind, handle of)
{
    struct object *object = find(kind, of);
    no_dead(of);
    return object ? object->kind = DEAD : INVALID_HANDLE;
}

static int use(handle of, struct object **stream)
{
    if (current() < 0)
        return INVALID_CONTEXT;
    no_dead(of);
    if (!(*stream = find(STREAM, of)))
        return INVALID_HANDLE;
    if (of < 3)
        (*stream)->device = current();
    for (struct object *other = of < 2 ? objects : NULL; other; other = other->next)
        if (other->kind == STREAM && other->device == current() && other->capturing && !other->non_blocking)
            return STREAM_CAPTURE_IMPLICIT;
    return SUCCESS;
}

static int order(handle stream_handle, handle event_handle, int record)
{
    struct object *stream, *event = find(EVENT, event_handle);
    int code = use(stream_handle, &stream), lane;
    no_dead(event_handle);
    if (code || !event || (record && event->device != stream->device))
        return code ? code : INVALID_HANDLE;
    if (record) {
        event->capturing = stream->capturing;
        event->of = stream;
        event->due = stream->runs + stream->busy;
    }
    /* A stream that waits for a captured event would join the capture: here that is always a mistake. */
    if (!event->capturing != !stream->capturing)
        return STREAM_CAPTURE_ISOLATION;
    lane = queue(lane_of(stream_handle, stream->device));
    if (record)
        memcpy(event->known, lanes[lane].known, sizeof event->known);
    else
        learn(lanes[lane].known, event->known);
    return SUCCESS;
}

static int device_of(handle of)
{
    struct object *stream = find(STREAM, of);
    no_dead(of);
    return of < 3 ? current() : stream ? stream->device : -1;
}

static int capture_status(handle of, int *status)
{
    struct object *stream;
    int code = use(of, &stream);
    if (!code)
        *status = stream->capturing;
    return code;
}

static __thread int capture_mode;                       /* 0: global, 1: of the thread, 2: relaxed */

static int exchange_capture_mode(int *mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return before < 0 || before > 2 ? INVALID_VALUE : SUCCESS;
}

/* Whether a stream captures in the global mode. What may break that capture fails, and breaks it, but not in a thread
 * whose mode is relaxed. */
static int global_capture(void)
{
    int found = 0;
    if (capture_mode == 2)
        return 0;
    for (struct object *stream = objects; stream; stream = stream->next)
        if (stream->kind == STREAM && stream->capturing && stream->global) {
            stream->capturing = 2;
            found = 1;
        }
    return found;
}

/* Whether any stream of the device captures: whoever waits for the device breaks that, in every mode. */
__attribute__((unused)) static int any_capture(void)
{
    int found = 0;
    for (struct object *stream = objects; stream; stream = stream->next)
        if (stream->kind == STREAM && stream->capturing && stream->device == current())
            found = stream->capturing = 2;
    return found;
}

static int synchronize(handle of)
{
    int status = 0, code = capture_status(of, &status);
    if (code || status || global_capture())
        return code ? code : STREAM_CAPTURE_UNSUPPORTED;
    finish(0, lane_of(of, current()));
    return SUCCESS;
}

/* A wait lets a stream run that is kept from it. */
static int ask_event(handle of, int waits)
{
    struct object *event = find(EVENT, of);
    no_dead(of);
    if (!event || global_capture())
        return event ? STREAM_CAPTURE_UNSUPPORTED : INVALID_HANDLE;
    if (event->of && event->of->runs < event->due) {
        if (!waits)
            return NOT_READY;
        event->of->runs = event->due;
    }
    learn(lanes[0].known, event->known);
    return SUCCESS;
}

/* ---- Memory ---- */

static int allocate(int type, handle *start, size_t size, int device, int registered)
{
    if (device < 0 || !size)
        return size ? INVALID_CONTEXT : INVALID_VALUE;
    int protection = type == DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (!registered)
        *start = (handle)mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*start == (handle)MAP_FAILED)
        return OUT_OF_MEMORY;
    struct object *memory = make(MEMORY, device);
    memory->type = type;
    memory->start = *start;
    memory->size = size;
    return SUCCESS;
}

static int release(handle start, int registered)
{
    struct object *memory = find(MEMORY, start);
    if (!memory || memory->start != start || memory->mapped)
        return INVALID_VALUE;
    if (!registered)
        munmap((void *)start, memory->size);
    return memory->kind = DEAD;
}

static int protect(handle start, size_t n, int protection)
{
    struct object *memory = find(MEMORY, start);
    if (memory && memory->type == DEVICE)
        mprotect((void *)memory->start, memory->size, protection);
    return memory && n > memory->start + memory->size - start ? INVALID_VALUE : SUCCESS;
}

static int out_of_reach(handle of)
{
    struct object *memory = find(MEMORY, of);
    return memory && memory->out_of_reach;
}

static int move(handle to, handle from, size_t n)
{
    if (out_of_reach(to) || out_of_reach(from))
        return ILLEGAL_ADDRESS;
    int code = protect(to, n, PROT_READ | PROT_WRITE) | protect(from, n, PROT_READ | PROT_WRITE);
    if (!code)
        memmove((void *)to, (void *)from, n);
    protect(to, 0, PROT_NONE);
    protect(from, 0, PROT_NONE);
    return code;
}

static void note_use(handle of, size_t n, int lane, const char *what, int writes)
{
    struct object *memory = find(MEMORY, of);
    if (memory)
        check_part(memory, lane, what, writes, of - memory->start, of - memory->start + n);
}

static int copy(const char *what, handle to, handle from, size_t n, handle of, int waits)
{
    struct object *stream;
    int code = use(of, &stream), lane;
    if (code || (code = move(to, from, n)))
        return code;
    lane = queue(lane_of(of, stream->device));
    note_use(from, n, lane, what, 0);
    note_use(to, n, lane, what, 1);
    if (waits)
        finish(0, lane);
    return SUCCESS;
}

static int pointer_attribute(void *value, int attribute, handle of)
{
    struct object *memory = find(MEMORY, of);
    switch (memory ? attribute : 0) {
    case 1: *(handle *)value = context_of ? context_of : (handle)&devices[memory->device]; return SUCCESS;
    case 2: *(int *)value = memory->type == MANAGED && !HIP ? DEVICE : memory->type; return SUCCESS;
    case 3: *(handle *)value = of; return SUCCESS;
    case 8: *(char *)value = memory->type == MANAGED; return SUCCESS;
    case 9: *(int *)value = memory->device; return SUCCESS;
    case 11: *(handle *)value = memory->start; return SUCCESS;
    case 12: *(size_t *)value = memory->size; return SUCCESS;
    default: return INVALID_VALUE;
    }
}

static int pointer_attributes(unsigned n, const int *attributes, void **values, handle of)
{
    for (unsigned i = 0; i < n; i++)
        if (pointer_attribute(values[i], attributes[i], of))
            memset(values[i], 0, attributes[i] == 1 || attributes[i] > 10 ? sizeof(handle) : attributes[i] == 8 ? 1 : sizeof(int));
    return SUCCESS;                     /* of memory that nobody registered, every attribute is 0 */
}

/* A block of the pool of this size that was freed before what is next on this lane, taken out of the pool. */
static struct object *pooled(size_t n, int lane)
{
    for (struct object *memory = objects; memory; memory = memory->next)
        if (memory->kind == DEAD && memory->in_pool && memory->size == n && memory->device == lanes[lane].device &&
                memory->written.at <= lanes[lane].known[memory->written.lane]) {
            memory->in_pool = 0;
            return memory;
        }
    return NULL;
}

static int allocate_in_order(handle *start, size_t n, handle of)
{
    struct object *stream, *before;
    int code = use(of, &stream), lane;
    if (code)
        return code;
    if (global_capture())
        return STREAM_CAPTURE_UNSUPPORTED;
    lane = queue(lane_of(of, stream->device));
    before = pooled(n, lane);
    if (before)
        *start = before->start;
    if ((code = allocate(DEVICE, start, n, stream->device, before != NULL)))
        return code;
    check_use(find(MEMORY, *start), lane, "MemAllocAsync", 1);
    return SUCCESS;
}

static int release_in_order(handle start, handle of)
{
    struct object *stream, *memory = find(MEMORY, start);
    int code = use(of, &stream);
    if (code || !memory || memory->start != start)
        return code ? code : INVALID_VALUE;
    check_use(memory, queue(lane_of(of, stream->device)), "MemFreeAsync", 1);
    memory->in_pool = 1;
    return memory->kind = DEAD;
}

__attribute__((unused)) static int free_after_all(handle start)      /* the host waits for the device */
{
    struct object *memory = find(MEMORY, start);
    if (memory) {
        finish(memory->device, 0);
        check_use(memory, queue(0), "MemFree", 1);
    }
    return release(start, 0);
}

/* ---- Devices and contexts ---- */

static int check(int device) { return device & ~1 ? INVALID_DEVICE : SUCCESS; }

static int device_attribute(int *value, int attribute, int device)
{
    /* It maps host memory, has one address space, is of 9.0, maps pages, and has them with descriptors. */
    const int of_cuda[][2] = {{19, 1}, {41, 1}, {75, 9}, {102, descriptors}, {103, descriptors}};
    *value = attribute == (HIP ? 9 : 89) && concurrent_managed_access;
    for (EACH(i, of_cuda))
        *value |= !HIP && of_cuda[i][0] == attribute ? of_cuda[i][1] : 0;
    return check(device);
}

static int retain(handle *context, int device, int count)
{
    if (check(device) || devices[device].retained + count < 0)
        return check(device) ? INVALID_DEVICE : INVALID_CONTEXT;
    devices[device].retained += count;
    if (context)
        *context = (handle)&devices[device];
    return SUCCESS;
}

static int pop(handle *context)
{
    if (!depth)
        return INVALID_CONTEXT;
    if (context)
        *context = (handle)stack[depth - 1];
    depth--, pushed--;
    if (!HIP)
        top = depth ? stack[depth - 1] : NULL;
    return SUCCESS;
}

static int push(handle context, int instead)
{
    if (check(ordinal(context)) || (!HIP && !devices[ordinal(context)].retained) || depth == 64)
        return INVALID_CONTEXT;
    if (instead)
        pop(NULL);
    depth++, pushed++;
    top = stack[depth - 1] = (struct device *)context;
    return SUCCESS;
}

#if !HIP
/* ---- Memory with a descriptor: pages of a memfd, which the driver of another process can import and map, too ---- */

struct device_of_memory { int type, id; };
struct kind_of_memory { int type, handles; struct device_of_memory on; void *unused; unsigned char flags[8]; };
struct access_to_memory { struct device_of_memory from; int flags; };
enum { PINNED = 1, POSIX_DESCRIPTOR = 1, ON_DEVICE = 1, READ_AND_WRITE = 3, GRANULE = 1 << 21 };

/* A process may see the machine's devices in another order. */
static int seen(int device) { return device ^ (getenv("FAKE_OTHER_ORDER") != NULL); }

static int new_pages(handle *result, size_t n, int device, int descriptor)
{
    struct object *pages = make(PAGES, device);
    pages->size = n;
    pages->descriptor = descriptor;
    *result = (handle)pages;
    return descriptor < 0 ? (pages->kind = DEAD, OUT_OF_MEMORY) : SUCCESS;
}

static int create_pages(handle *result, size_t n, const struct kind_of_memory *kind)
{
    char name[] = "fake_device_0";      /* where they are, for whoever imports them */
    if (!n || n % GRANULE || kind->type != PINNED || kind->handles != POSIX_DESCRIPTOR || kind->on.type != ON_DEVICE ||
            check(kind->on.id))
        return INVALID_VALUE;
    if (n > 1ul << 34)
        return OUT_OF_MEMORY;
    name[sizeof name - 2] += (char)seen(kind->on.id);
    int descriptor = memfd_create(name, MFD_CLOEXEC);
    return descriptor >= 0 && ftruncate(descriptor, (off_t)n) ? OUT_OF_MEMORY : new_pages(result, n, kind->on.id, descriptor);
}

static int export_pages(int *result, handle of, int type)
{
    struct object *pages = find(PAGES, of);
    if (!pages || type != POSIX_DESCRIPTOR)
        return INVALID_VALUE;
    return (*result = dup(pages->descriptor)) < 0 ? OUT_OF_MEMORY : SUCCESS;
}

static int import_pages(handle *result, int descriptor, int type)
{
    char path[64], link[64] = "";
    struct stat about;
    int device;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (type != POSIX_DESCRIPTOR || readlink(path, link, sizeof link - 1) < 0 || fstat(descriptor, &about) ||
            sscanf(link, "/memfd:fake_device_%d", &device) != 1)
        return INVALID_VALUE;
    return new_pages(result, (size_t)about.st_size, seen(device), dup(descriptor));
}

static int release_pages(handle of)
{
    struct object *pages = find(PAGES, of);
    return pages ? (close(pages->descriptor), pages->kind = DEAD) : INVALID_VALUE;
}

static struct object *find_at(int kind, handle start, size_t n)
{
    for (struct object *object = objects; object; object = object->next)
        if (object->kind == kind && object->start == start && object->size == n)
            return object;
    return NULL;
}

static int reserve(handle *start, size_t n)
{
    if (!n || n % GRANULE)
        return INVALID_VALUE;
    *start = (handle)mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct object *range = make(RANGE, 0);
    range->start = *start;
    range->size = n;
    return SUCCESS;
}

static int free_range(handle start, size_t n)
{
    struct object *range = find_at(RANGE, start, n);
    if (!range || find_at(MEMORY, start, n))
        return INVALID_VALUE;
    munmap((void *)start, n);
    return range->kind = DEAD;
}

static int map_pages(handle start, size_t n, size_t offset, handle of)
{
    struct object *pages = find(PAGES, of), *memory;
    if (!pages || offset || n > pages->size || !find_at(RANGE, start, n) || find_at(MEMORY, start, n))
        return INVALID_VALUE;
    mmap((void *)start, n, PROT_NONE, MAP_SHARED | MAP_FIXED, pages->descriptor, 0);
    memory = make(MEMORY, pages->device);
    memory->type = DEVICE;
    memory->start = start;
    memory->size = n;
    return memory->mapped = memory->out_of_reach = 1, SUCCESS;
}

static int allow_access(handle start, size_t n, const struct access_to_memory *to, size_t count)
{
    struct object *memory = find_at(MEMORY, start, n);
    if (!memory || count != 1 || to->from.type != ON_DEVICE || to->from.id != memory->device || to->flags != READ_AND_WRITE)
        return INVALID_VALUE;
    return memory->out_of_reach = 0;
}

/* The host does not wait for work on the memory: that has to be done. */
static int unmap_pages(handle start, size_t n)
{
    struct object *memory = find_at(MEMORY, start, n);
    if (!memory || !memory->mapped)
        return INVALID_VALUE;
    check_use(memory, queue(0), "MemUnmap", 1);
    mmap((void *)start, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return memory->kind = DEAD;
}

static int fill(handle to, int value, size_t n, handle of)
{
    struct object *stream;
    int code = use(of, &stream);
    if (code || (code = out_of_reach(to) ? ILLEGAL_ADDRESS : protect(to, n, PROT_READ | PROT_WRITE)))
        return code;
    memset((void *)to, value, n);
    protect(to, 0, PROT_NONE);
    note_use(to, n, queue(lane_of(of, stream->device)), "MemsetD8Async", 1);
    return SUCCESS;
}
#endif

/* ---- What dlbridge calls ---- */

BOTH("Init", cuInit, hipInit, (unsigned flags), (initialized = 1, SUCCESS), "flags=%u", flags)
BOTH("DeviceGet", cuDeviceGet, hipDeviceGet, (int *device, int of), (*device = of, check(of)), "ordinal=%d", of)
BOTH("DeviceGetCount", cuDeviceGetCount, hipGetDeviceCount, (int *count), (*count = 2, SUCCESS))
BOTH("DeviceGetAttribute", cuDeviceGetAttribute, hipDeviceGetAttribute, (int *value, int attribute, int device),
     device_attribute(value, attribute, device), "attribute=%d device=%d", attribute, device)
BOTH("DevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain, (handle *context, int device),
     retain(context, device, 1), "device=%d", device)
BOTH("DevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease, (int device),
     retain(NULL, device, -1), "device=%d", device)
BOTH("CtxGetCurrent", cuCtxGetCurrent, hipCtxGetCurrent, (handle *context),
     (*context = current() < 0 ? 0 : (handle)&devices[current()], SUCCESS), "device=%d", current())
BOTH("CtxGetDevice", cuCtxGetDevice, hipGetDevice, (int *device),
     (*device = current()) < 0 ? INVALID_CONTEXT : SUCCESS, "device=%d", current())
BOTH("CtxPushCurrent", cuCtxPushCurrent_v2, hipCtxPushCurrent, (handle context),
     push(context, 0), "device=%d", ordinal(context))
BOTH("CtxPopCurrent", cuCtxPopCurrent_v2, hipCtxPopCurrent, (handle *context),
     pop(context), "device=%d", code ? -1 : (int)(stack[depth] - devices))
BOTH("PointerGetAttribute", cuPointerGetAttribute, hipPointerGetAttribute, (void *value, int attribute, handle of),
     pointer_attribute(value, attribute, of), "attribute=%d pointer=0x%lx", attribute, of)
BOTH("PointerGetAttributes", cuPointerGetAttributes, hipDrvPointerGetAttributes,
     (unsigned n, int *attributes, void **values, handle of), pointer_attributes(n, attributes, values, of),
     "pointer=0x%lx", of)
BOTH("MemGetInfo", cuMemGetInfo_v2, hipMemGetInfo, (size_t *available, size_t *total),
     (*available = *total = 1ul << 34, current() < 0 ? INVALID_CONTEXT : SUCCESS), "device=%d", current())
BOTH("DeviceGetMemPool", cuDeviceGetMemPool, hipDeviceGetMemPool, (handle *pool, int device),
     (*pool = (handle)&devices[device & 1].kept, check(device)), "device=%d", device)
BOTH("MemPoolGetAttribute", cuMemPoolGetAttribute, hipMemPoolGetAttribute, (size_t *pool, int attribute, size_t *value),
     attribute == 4 ? (*value = *pool, SUCCESS) : INVALID_VALUE, "attribute=%d", attribute)
BOTH("MemPoolSetAttribute", cuMemPoolSetAttribute, hipMemPoolSetAttribute, (size_t *pool, int attribute, size_t *value),
     attribute == 4 ? (*pool = *value, SUCCESS) : INVALID_VALUE, "attribute=%d value=%zu", attribute, *value)
BOTH("MemAllocAsync", cuMemAllocAsync, hipMallocAsync, (handle *start, size_t n, handle stream),
     allocate_in_order(start, n, stream), "pointer=0x%lx bytes=%zu stream=0x%lx", code ? 0 : *start, n, stream)
BOTH("MemFreeAsync", cuMemFreeAsync, hipFreeAsync, (handle start, handle stream),
     release_in_order(start, stream), "pointer=0x%lx stream=0x%lx", start, stream)
BOTH("EventCreate", cuEventCreate, hipEventCreateWithFlags, (handle *event, unsigned flags),
     create(EVENT, event, 0), "event=0x%lx flags=%u device=%d", code ? 0 : *event, flags, current())
BOTH("EventDestroy", cuEventDestroy_v2, hipEventDestroy, (handle event), destroy(EVENT, event), "event=0x%lx", event)
BOTH("EventRecord", cuEventRecord, hipEventRecord, (handle event, handle stream),
     order(stream, event, 1), "event=0x%lx stream=0x%lx device=%d", event, stream, current())
BOTH("EventQuery", cuEventQuery, hipEventQuery, (handle event), ask_event(event, 0), "event=0x%lx", event)
BOTH("EventSynchronize", cuEventSynchronize, hipEventSynchronize, (handle event), ask_event(event, 1), "event=0x%lx", event)
BOTH("StreamWaitEvent", cuStreamWaitEvent, hipStreamWaitEvent, (handle stream, handle event, unsigned flags),
     flags ? INVALID_VALUE : order(stream, event, 0), "stream=0x%lx event=0x%lx device=%d", stream, event, current())
BOTH("StreamIsCapturing", cuStreamIsCapturing, hipStreamIsCapturing, (handle stream, int *status),
     capture_status(stream, status), "stream=0x%lx device=%d", stream, current())
#if HIP
int hipStreamGetDevice(handle stream, int *device)
    CALL("StreamGetDevice", (*device = device_of(stream)) < 0 ? INVALID_HANDLE : SUCCESS, "stream=0x%lx", stream)
#else
int cuStreamGetCtx(handle stream, handle *context)
    CALL("StreamGetCtx", (*context = (handle)&devices[device_of(stream) & 1], device_of(stream)) < 0
         ? INVALID_HANDLE : SUCCESS, "stream=0x%lx", stream)
#endif
BOTH("ThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode,
     (int *mode), exchange_capture_mode(mode), "mode=%d", capture_mode)
BOTH("StreamCreate", cuStreamCreate, hipStreamCreateWithFlags, (handle *stream, unsigned flags),
     create(STREAM, stream, flags), "stream=0x%lx flags=%u device=%d", code ? 0 : *stream, flags, current())
BOTH("MemHostAlloc", cuMemHostAlloc, hipHostMalloc, (handle *start, size_t n, unsigned flags),
     allocate(HOST, start, n, current(), 0), "pointer=0x%lx bytes=%zu flags=%u device=%d", code ? 0 : *start, n, flags,
     current())
BOTH("MemFreeHost", cuMemFreeHost, hipHostFree, (handle start), release(start, 0), "pointer=0x%lx", start)
BOTH("StreamSynchronize", cuStreamSynchronize, hipStreamSynchronize, (handle stream),
     synchronize(stream), "stream=0x%lx device=%d", stream, current())

#define COPY(name, symbol, parameters, stream, waits) int symbol parameters \
    CALL(name, copy(name, to, from, n, stream, waits), "to=0x%lx from=0x%lx bytes=%zu stream=0x%lx device=%d", to, from, n, \
         (handle)stream, current())
#if HIP
COPY("MemcpyAsync", hipMemcpyAsync, (handle to, handle from, size_t n, UNUSED(int kind), handle stream), stream, 0)
COPY("MemcpyDtoHAsync", hipMemcpyDtoHAsync, (handle to, handle from, size_t n, handle stream), stream, 0)
COPY("MemcpyHtoDAsync", hipMemcpyHtoDAsync, (handle to, handle from, size_t n, handle stream), stream, 0)
COPY("MemcpyDtoDAsync", hipMemcpyDtoDAsync, (handle to, handle from, size_t n, handle stream), stream, 0)
int hipDrvGetErrorName(int of, const char **says) { return error_text("GetErrorName", of, 0, says); }
int hipDrvGetErrorString(int of, const char **says) { return error_text("GetErrorString", of, 1, says); }
const char *hipGetErrorName(int of) { const char *says; error_text("GetErrorName", of, 0, &says); return says; }
const char *hipGetErrorString(int of) { const char *says; error_text("GetErrorString", of, 1, &says); return says; }
#else
COPY("MemcpyAsync", cuMemcpyAsync, (handle to, handle from, size_t n, handle stream), stream, 0)
int cuGetErrorName(int of, const char **says) { return error_text("GetErrorName", of, 0, says); }
int cuGetErrorString(int of, const char **says) { return error_text("GetErrorString", of, 1, says); }

#define OF_PAGES(name, parameters, body, ...) CUDA(#name, cu##name, parameters, body, __VA_ARGS__)
OF_PAGES(MemGetAllocationGranularity, (size_t *n, const struct kind_of_memory *kind, int option),
         (*n = GRANULE, check(kind->on.id)), "device=%d option=%d", kind->on.id, option)
OF_PAGES(MemCreate, (handle *pages, size_t n, const struct kind_of_memory *kind, UNUSED(long flags)),
         create_pages(pages, n, kind), "pages=0x%lx bytes=%zu device=%d", code ? 0 : *pages, n, kind->on.id)
OF_PAGES(MemExportToShareableHandle, (int *descriptor, handle pages, int type, UNUSED(long flags)),
         export_pages(descriptor, pages, type), "pages=0x%lx", pages)
OF_PAGES(MemImportFromShareableHandle, (handle *pages, handle descriptor, int type),
         import_pages(pages, (int)descriptor, type), "pages=0x%lx", code ? 0 : *pages)
OF_PAGES(MemRelease, (handle pages), release_pages(pages), "pages=0x%lx", pages)
OF_PAGES(MemAddressReserve, (handle *start, size_t n, UNUSED(size_t alignment), UNUSED(handle wanted), UNUSED(long flags)),
         reserve(start, n), "pointer=0x%lx bytes=%zu", code ? 0 : *start, n)
OF_PAGES(MemAddressFree, (handle start, size_t n), free_range(start, n), "pointer=0x%lx bytes=%zu", start, n)
OF_PAGES(MemMap, (handle start, size_t n, size_t offset, handle pages, UNUSED(long flags)),
         map_pages(start, n, offset, pages), "pointer=0x%lx bytes=%zu pages=0x%lx", start, n, pages)
OF_PAGES(MemUnmap, (handle start, size_t n), unmap_pages(start, n), "pointer=0x%lx bytes=%zu", start, n)
OF_PAGES(MemSetAccess, (handle start, size_t n, const struct access_to_memory *to, size_t count),
         allow_access(start, n, to, count), "pointer=0x%lx bytes=%zu device=%d", start, n, to->from.id)
OF_PAGES(MemsetD8Async, (handle start, unsigned char value, size_t n, handle stream),
         fill(start, value, n, stream), "pointer=0x%lx bytes=%zu value=%d stream=0x%lx", start, n, value, stream)

/* ---- What cuda-bindings, cuda-core, numba-cuda and torch call besides ---- */

int cuGetProcAddress_v2(const char *name, void **function, UNUSED(int version), UNUSED(long flags), int *status)
{
    char versioned[128];
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    if (!(*function = dlsym(RTLD_DEFAULT, versioned)))
        *function = dlsym(RTLD_DEFAULT, name);
    if (status)
        *status = !*function;
    return *function ? SUCCESS : NOT_FOUND;
}

CUDA("DriverGetVersion", cuDriverGetVersion, (int *version), (*version = 13000, SUCCESS))
CUDA("DeviceGetName", cuDeviceGetName, (char *name, int n, int device),
     (snprintf(name, (size_t)n, "Fake device %d", device), check(device)), "device=%d", device)
CUDA("DeviceGetUuid", cuDeviceGetUuid_v2, (char *uuid, int device),
     (memset(uuid, seen(device), 16), check(device)), "device=%d", device)
CUDA("DevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active),
     (*flags = 0, *active = devices[device & 1].retained > 0, check(device)), "device=%d", device)
CUDA("DevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2, (int device),
     retain(NULL, device, check(device) ? 0 : -devices[device].retained), "device=%d", device)
CUDA("CtxSetCurrent", cuCtxSetCurrent, (handle context),
     context ? push(context, 1) : pop(NULL), "device=%d", ordinal(context))
CUDA("CtxSynchronize", cuCtxSynchronize, (void), current() < 0 ? INVALID_CONTEXT : any_capture()
     ? STREAM_CAPTURE_UNSUPPORTED : (finish(current(), 0), SUCCESS), "device=%d", current())
CUDA("StreamCreateWithPriority", cuStreamCreateWithPriority, (handle *stream, unsigned flags, UNUSED(int priority)),
     create(STREAM, stream, flags), "stream=0x%lx flags=%u device=%d", code ? 0 : *stream, flags, current())
CUDA("CtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange, (int *least, int *greatest), *least = *greatest = 0)
CUDA("StreamDestroy", cuStreamDestroy_v2, (handle stream), destroy(STREAM, stream), "stream=0x%lx", stream)
CUDA("MemGetAddressRange", cuMemGetAddressRange_v2, (handle *start, size_t *size, handle of),
     pointer_attribute(start, 11, of) || pointer_attribute(size, 12, of), "pointer=0x%lx", of)
CUDA("MemHostGetDevicePointer", cuMemHostGetDevicePointer_v2, (handle *pointer, handle of, unsigned flags),
     pointer_attribute(pointer, 3, of), "pointer=0x%lx flags=%u", of, flags)
CUDA("MemHostRegister", cuMemHostRegister_v2, (handle start, size_t n, unsigned flags),
     allocate(HOST, &start, n, current(), 1), "pointer=0x%lx bytes=%zu flags=%u", start, n, flags)
CUDA("MemHostUnregister", cuMemHostUnregister, (handle start), release(start, 1), "pointer=0x%lx", start)

#define ALLOCATION(name, symbol, type, parameters) \
    CUDA(name, symbol, parameters, allocate(type, start, n, current(), 0), "pointer=0x%lx bytes=%zu device=%d", \
         code ? 0 : *start, n, current())
ALLOCATION("MemAlloc", cuMemAlloc_v2, DEVICE, (handle *start, size_t n))
ALLOCATION("MemAllocHost", cuMemAllocHost_v2, HOST, (handle *start, size_t n))
ALLOCATION("MemAllocManaged", cuMemAllocManaged, MANAGED, (handle *start, size_t n, UNUSED(unsigned flags)))
CUDA("MemFree", cuMemFree_v2, (handle start), free_after_all(start), "pointer=0x%lx", start)

#define COPIES(name) \
    COPY(#name, cu##name##_v2, (handle to, handle from, size_t n), 0, 1) \
    COPY(#name "Async", cu##name##Async_v2, (handle to, handle from, size_t n, handle stream), stream, 0)
COPIES(MemcpyHtoD)
COPIES(MemcpyDtoH)
COPIES(MemcpyDtoD)
#endif

/* ---- What the tests call: none of it is logged, and it works whatever is set ---- */

const char *fake_log(void) { return text; }
void fake_clear(void) { LOCKED; *text = 0; written = 0; }
void fake_deinitialize(void) { LOCKED; deinitialized = 1; }
void fake_concurrent_managed_access(int value) { LOCKED; concurrent_managed_access = value; }
void fake_descriptors(int value) { LOCKED; descriptors = value; }
void fake_context_of_memory(handle context) { LOCKED; context_of = context; }
int fake_current_device(void) { return current(); }
handle fake_stream(int device) { LOCKED; return (handle)make(STREAM, device); }
int fake_kill_stream(handle of) { LOCKED; return destroy(STREAM, of); }
/* Keep a stream from running; 0 lets it do what it was given. */
int fake_hold(handle of, int busy)
{
    LOCKED;
    struct object *stream = find(STREAM, of);
    if (stream) {
        stream->runs += stream->busy && !busy;
        stream->busy = busy;
    }
    return stream ? SUCCESS : INVALID_HANDLE;
}

int fake_free(handle start) { LOCKED; return release(start, 0); }
int fake_copy(handle to, handle from, size_t n) { LOCKED; return move(to, from, n); }
handle fake_allocate(int device, size_t n, int type)
{
    LOCKED;
    handle start;
    return allocate(type, &start, n, device, 0) ? 0 : start;
}

/* Work of somebody else's on a stream, which reads or writes memory. */
int fake_use(handle of, handle stream_handle, int writes)
{
    LOCKED;
    struct object *stream = find(STREAM, stream_handle), *memory = find(MEMORY, of);
    if (!stream)
        return INVALID_HANDLE;
    int lane = queue(lane_of(stream_handle, stream_handle > 2 ? stream->device : memory ? memory->device : 0));
    if (memory)
        check_use(memory, lane, writes ? "a write" : "a read", writes);
    else
        race(of, writes ? "a write" : "a read", lane, "nothing: the memory is free", lane);
    return SUCCESS;
}

const char *fake_races(void) { return races; }
void fake_forget_races(void) { LOCKED; *races = 0; }

/* Another thread, such as one that runs a callback of the driver's, has the driver and wants the GIL. */
static void *want_gil(void *ready)
{
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*give_up)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    pthread_mutex_lock(&mutex);
    __atomic_store_n((int *)ready, 1, __ATOMIC_SEQ_CST);
    give_up(ensure());
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static pthread_t wanting;
static int wants;

void fake_got_gil(void)         /* without the GIL: until the other thread has had it */
{
    if (wants)
        pthread_join(wanting, NULL);
    wants = 0;
}

void fake_want_gil(void)        /* with the GIL: the other thread has the driver when this returns */
{
    static int ready;
    ready = 0;
    wants = !pthread_create(&wanting, NULL, want_gil, &ready);
    while (!__atomic_load_n(&ready, __ATOMIC_SEQ_CST));
}

int fake_capture(handle of, int status, int global)
{
    LOCKED;
    struct object *stream = find(STREAM, of);
    if (stream) {
        stream->capturing = status;
        stream->global = global;
    }
    return stream ? SUCCESS : INVALID_HANDLE;
}

int fake_fail(const char *call, int code, int after, int times)
{
    LOCKED;
    for (EACH(i, failures))
        if (!*failures[i].call || !strcmp(failures[i].call, call)) {
            snprintf(failures[i].call, sizeof failures[i].call, "%s", call);
            failures[i].code = code;
            failures[i].after = after;
            failures[i].times = times;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

int fake_alive(const char *what)
{
    static const char *const names[] = {[EVENT] = "events", "streams", "allocations", "pages", "ranges", "contexts", "pushed"};
    LOCKED;
    int counts[] = {[EVENT] = 0, 0, 0, 0, 0, devices[0].retained + devices[1].retained, pushed};
    for (struct object *object = objects; object; object = object->next)
        counts[object->kind]++;
    for (int i = EVENT; i <= RANGE + 2; i++)
        if (!strcmp(names[i], what))
            return counts[i];
    return -1;
}
