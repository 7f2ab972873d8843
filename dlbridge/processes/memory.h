/* Memory with a descriptor (on Windows: a handle), which other processes can map. The kernel counts who uses it.

   What can fail gives an errno, or 0; dlbridge_receive gives how many bytes came, or an errno with a minus sign. */
#ifndef DLBRIDGE_MEMORY_H
#define DLBRIDGE_MEMORY_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Who can do what with the memory: bits. */
#define DLBRIDGE_KEEPS_ITS_SIZE 1
#define DLBRIDGE_IS_CONSTANT 2      /* nobody can write to it */

#ifdef _WIN32

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

static inline int dlbridge_new_memory(size_t nbytes, intptr_t *out) {
    HANDLE made = CreateFileMappingW(
        INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, (DWORD) (nbytes >> 32), (DWORD) nbytes, NULL);
    *out = made == NULL ? -1 : (intptr_t) made;
    return made == NULL ? ENOMEM : 0;
}

static inline int dlbridge_reserve(intptr_t memory, size_t *done, size_t nbytes) {
    (void) memory;
    *done = nbytes;         /* the system has counted it when it was made */
    return 0;
}

static inline int dlbridge_map(intptr_t memory, size_t nbytes, int writable, void **out) {
    *out = MapViewOfFile((HANDLE) memory, writable ? FILE_MAP_WRITE : FILE_MAP_READ, 0, 0, nbytes);
    return *out == NULL ? ENOMEM : 0;
}

static inline void dlbridge_unmap(void *mapped, size_t nbytes) {
    (void) nbytes;
    UnmapViewOfFile(mapped);
}

static inline void dlbridge_close(intptr_t memory) { CloseHandle((HANDLE) memory); }

static inline int dlbridge_receive(int socket, char *bytes, size_t nbytes, intptr_t *out) {
    (void) socket, (void) bytes, (void) nbytes, (void) out;
    return -ENOSYS;
}

/* To map more than there is fails, so nobody needs to know. */
static inline int64_t dlbridge_size(intptr_t memory) {
    (void) memory;
    return INT64_MAX;
}

#else

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int dlbridge_map(intptr_t memory, size_t nbytes, int writable, void **out) {
    /* Linux before 6.7 maps what is sealed against writing only privately. */
#ifdef __linux__
    int kind = writable ? MAP_SHARED : MAP_PRIVATE;
#else
    int kind = MAP_SHARED;
#endif
    void *made = mmap(NULL, nbytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, kind, (int) memory, 0);
    if (made == MAP_FAILED)
        return errno;
    *out = made;
    return 0;
}

static inline void dlbridge_unmap(void *mapped, size_t nbytes) { munmap(mapped, nbytes); }

static inline void dlbridge_close(intptr_t memory) { close((int) memory); }

static inline int64_t dlbridge_size(intptr_t memory) {
    struct stat about;
    return fstat((int) memory, &about) ? -1 : (int64_t) about.st_size;
}

/* How many bytes came by a socket, or an error, negated; a descriptor that came with them is stored. It is not for
   programs that are started. */
static inline int dlbridge_receive(int socket, char *bytes, size_t nbytes, intptr_t *out) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {bytes, nbytes};
    struct msghdr message = {0};
    struct cmsghdr *header;
    int got, descriptor, flags = 0;
#ifdef MSG_CMSG_CLOEXEC
    flags = MSG_CMSG_CLOEXEC;
#endif
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = CMSG_LEN(sizeof(int));     /* for one alone */
    got = (int) recvmsg(socket, &message, flags);
    if (got < 0)
        return -errno;
    header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS
            && header->cmsg_len >= CMSG_LEN(sizeof(int))) {
        memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        fcntl(descriptor, F_SETFD, FD_CLOEXEC);
        *out = descriptor;
    }
    return got;
}

#ifdef __linux__

#include <sys/syscall.h>

/* By their numbers, since the headers of older systems lack them. */
#ifndef SYS_memfd_create
  #if defined(__x86_64__)
    #define SYS_memfd_create 319
  #else
    #define SYS_memfd_create 279
  #endif
#endif
enum { DLBRIDGE_MFD_CLOEXEC = 1, DLBRIDGE_MFD_ALLOW_SEALING = 2, DLBRIDGE_MFD_NOEXEC_SEAL = 8 };
enum { DLBRIDGE_ADD_SEALS = 1033, DLBRIDGE_GET_SEALS = 1034 };
enum { DLBRIDGE_SEAL_SEAL = 1, DLBRIDGE_SEAL_SHRINK = 2, DLBRIDGE_SEAL_GROW = 4, DLBRIDGE_SEAL_WRITE = 8 };

static inline int dlbridge_new_memory(size_t nbytes, intptr_t *out) {
    const unsigned flags = DLBRIDGE_MFD_CLOEXEC | DLBRIDGE_MFD_ALLOW_SEALING;
    (void) nbytes;
    /* Kernels before 6.3 do not know the third flag; later ones may be set up to ask for it. */
    *out = syscall(SYS_memfd_create, "dlbridge", flags | DLBRIDGE_MFD_NOEXEC_SEAL);
    if (*out < 0 && errno == EINVAL)
        *out = syscall(SYS_memfd_create, "dlbridge", flags);
    return *out < 0 ? errno : 0;
}

/* The pages are there afterwards, with zeros. A signal interrupts it (EINTR); called again, it goes on. The kernel takes
   back what it has of a piece then, so the pieces are small. */
static inline int dlbridge_reserve(intptr_t memory, size_t *done, size_t nbytes) {
    const size_t piece = (size_t) 1 << 20;
    while (*done < nbytes) {
        size_t size = nbytes - *done < piece ? nbytes - *done : piece;
        if (fallocate((int) memory, 0, (off_t) *done, (off_t) size))
            return errno;
        *done += size;
    }
    return 0;
}

/* No page is cleared first, nor mapped. Several threads are not faster: the kernel takes one at a time. */
static inline int dlbridge_fill(intptr_t memory, const char *bytes, size_t nbytes) {
    const size_t most = (size_t) 1 << 30;
    size_t done = 0;
    while (done < nbytes) {
        size_t size = nbytes - done < most ? nbytes - done : most;
        ssize_t written = pwrite((int) memory, bytes + done, size, (off_t) done);
        if (written >= 0)
            done += (size_t) written;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* A child that is forked meanwhile does not have it mapped, and so cannot keep it from being sealed. */
static inline void dlbridge_keep_from_children(void *mapped, size_t nbytes) { madvise(mapped, nbytes, MADV_DONTFORK); }

static inline int dlbridge_seal(intptr_t memory, int against_writes) {
    int seals = DLBRIDGE_SEAL_SEAL | DLBRIDGE_SEAL_SHRINK | DLBRIDGE_SEAL_GROW | (
        against_writes ? DLBRIDGE_SEAL_WRITE : 0);
    return fcntl((int) memory, DLBRIDGE_ADD_SEALS, seals) ? errno : 0;
}

static inline int dlbridge_seals(intptr_t memory) {
    int seals = fcntl((int) memory, DLBRIDGE_GET_SEALS);
    if (seals < 0)
        return 0;
    return (seals & DLBRIDGE_SEAL_SHRINK ? DLBRIDGE_KEEPS_ITS_SIZE : 0) | (
        seals & DLBRIDGE_SEAL_WRITE ? DLBRIDGE_IS_CONSTANT : 0);
}

#else

/* Its name is gone at once. */
static inline int dlbridge_new_memory(size_t nbytes, intptr_t *out) {
    static unsigned counter = 0;
    char name[32];      /* macOS takes 31 characters */
    (void) nbytes;
    do {
        snprintf(name, sizeof name, "/dlb-%d-%u", (int) getpid(), __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
        *out = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    } while (*out < 0 && errno == EEXIST);
    if (*out < 0)
        return errno;
    shm_unlink(name);
    return 0;
}

static inline int dlbridge_reserve(intptr_t memory, size_t *done, size_t nbytes) {
    if (ftruncate((int) memory, (off_t) nbytes))
        return errno;
    *done = nbytes;
    return 0;
}

#endif
#endif

#ifndef __linux__

/* There are no seals. The size can be set once on macOS, and never on Windows. */
static inline int dlbridge_seal(intptr_t memory, int against_writes) {
    (void) memory, (void) against_writes;
    return 0;
}

static inline int dlbridge_seals(intptr_t memory) {
    (void) memory;
    return DLBRIDGE_KEEPS_ITS_SIZE;
}

static inline void dlbridge_keep_from_children(void *mapped, size_t nbytes) { (void) mapped, (void) nbytes; }

static inline int dlbridge_fill(intptr_t memory, const char *bytes, size_t nbytes) {
    void *mapped;
    size_t done = 0;
    int error = dlbridge_reserve(memory, &done, nbytes);
    if (!error)
        error = dlbridge_map(memory, nbytes, 1, &mapped);
    if (error)
        return error;
    memcpy(mapped, bytes, nbytes);
    dlbridge_unmap(mapped, nbytes);
    return 0;
}

#endif
#endif
