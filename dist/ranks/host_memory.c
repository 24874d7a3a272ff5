#include "dist/ranks/host_memory.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/memory.h"

#define GUARD_BYTES 256 /* kernels read past the end */
#define PAGE ((size_t)4096)

#ifndef MADV_COLLAPSE /* glibc names it from 2.37 on, Linux has it from 6.1 on */
#define MADV_COLLAPSE 25
#endif

/* The place of the memory that a host's first rank keeps: its process, the number of the file
 * there, and the file's identity, because a rank that sees other processes (a container) may find a
 * stranger's file under that number. */
struct place {
    int64_t pid, fd; /* fd < 0: there is none */
    uint64_t device, inode;
};

static int create(size_t n_bytes, struct place *place)
{
    DT_ASSERT(n_bytes > 0 && n_bytes % DT_HUGE_PAGE == 0);
    struct stat file;
    const int fd = memfd_create("dtrain", MFD_CLOEXEC);
    if (fd >= 0 && (ftruncate(fd, (off_t)n_bytes) != 0 || fstat(fd, &file) != 0)) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        *place =
            (struct place){.pid = getpid(), .fd = fd, .device = file.st_dev, .inode = file.st_ino};
    }
    return fd;
}

/* By way of /proc, so that no name is left behind however the job ends. */
static int open_place(const struct place *place)
{
    char path[64];
    struct stat file;
    if (place->fd < 0) {
        return -1;
    }
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->pid, (long long)place->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 &&
        (fstat(fd, &file) != 0 || file.st_dev != place->device || file.st_ino != place->inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The next address at which a huge page may begin. */
static void *map(int fd, size_t n_bytes)
{
    const size_t n_room = n_bytes + DT_HUGE_PAGE;
    char *room =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, n_room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return NULL;
    }
    const size_t before = (DT_HUGE_PAGE - (uintptr_t)room % DT_HUGE_PAGE) % DT_HUGE_PAGE,
                 after = DT_HUGE_PAGE - before;
    void *memory =
        mmap(room + before, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (memory == MAP_FAILED) {
        munmap(room, n_room);
        return NULL;
    }
    if (before > 0) {
        munmap(room, before);
    }
    if (after > 0) {
        munmap(room + before + n_bytes, after);
    }
    DT_ASSERT((uintptr_t)memory % DT_HUGE_PAGE == 0 && after > 0);
    return memory;
}

static enum dt_status share(struct dt_comm *comm, struct place *places,
                            struct dt_host_memory *memory)
{
    struct place place = {.fd = -1};
    int fd = comm->local_rank == 0 ? create(memory->n_bytes, &place) : -1;
    enum dt_status s =
        dt_comm_allgather(comm, &place, places, sizeof place, "places of the hosts' memory");
    if (s == DT_OK) {
        fd = comm->local_rank == 0 ? fd : open_place(&places[comm->host_root]);
        DT_ASSERT(places[comm->rank].fd < 0 || comm->rank == comm->host_root);
        memory->bytes = map(fd, memory->n_bytes);
        int32_t all_have_it = memory->bytes != NULL;
        s = dt_comm_allreduce(comm, &all_have_it, 1, DT_TYPE_I32, DT_REDUCE_MIN,
                              "opening of the hosts' memory");
        if (s != DT_OK || !all_have_it) {
            dt_host_memory_close(memory);
        }
    }
    if (fd >= 0) {
        close(fd); /* only now: the first rank's must be there while the others open it */
    }
    return s;
}

enum dt_status dt_host_memory_open(struct dt_comm *comm, size_t n_bytes, struct dt_host_memory *out)
{
    *out = (struct dt_host_memory){.n_bytes = dt_round_up(n_bytes, DT_HUGE_PAGE)};
    struct place *places = calloc((size_t)comm->size, sizeof *places);
    int32_t all_have_room = places != NULL;
    enum dt_status s = dt_comm_allreduce(comm, &all_have_room, 1, DT_TYPE_I32, DT_REDUCE_MIN,
                                         "room to open the hosts' memory");
    if (s == DT_OK && (places == NULL || !all_have_room)) {
        s = dt_error_agreed(
            dt_error(DT_NO_MEMORY, "no memory to share with the other ranks of the host"));
    } else if (s == DT_OK) {
        s = share(comm, places, out);
    }
    free(places);
    return s;
}

void dt_host_memory_close(struct dt_host_memory *memory)
{
    if (memory->bytes != NULL) {
        munmap(memory->bytes, memory->n_bytes);
    }
    memory->bytes = NULL;
}

size_t dt_host_array_bytes(size_t n_elems)
{
    const size_t n_bytes = n_elems * sizeof(float) + GUARD_BYTES;
    return dt_round_up(n_bytes, n_bytes >= DT_HUGE_PAGE ? DT_HUGE_PAGE : PAGE);
}

void dt_host_array_settle(float *array, size_t n_elems)
{
    DT_ASSERT((uintptr_t)array % PAGE == 0);
    const size_t n_bytes = dt_host_array_bytes(n_elems);
    memset(array, 0, n_bytes);
    if (n_bytes >= DT_HUGE_PAGE) {
        madvise(array, n_bytes, MADV_COLLAPSE); /* most systems give shared memory no huge page by
                                                   itself; no matter if refused */
    }
}
