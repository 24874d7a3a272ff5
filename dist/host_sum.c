#include "dist/host_sum.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_ELEMS ((size_t)1 << 13) /* 32 KiB: parts and total of a piece fit the nearest caches */
#define GUARD_BYTES 256               /* kernels read past the end */

/* One range's round, at the start of the shared memory. Each counter is written by all ranks. */
struct slot {
    _Alignas(64) _Atomic uint64_t n_arrived; /* of all rounds */
    _Atomic uint64_t open_round;             /* all ranks have arrived for it */
    _Atomic uint32_t n_taken, n_done;        /* pieces of the open round */
};

static struct slot *slot_of(const struct dt_host_sum *sum, int slot)
{
    return (struct slot *)sum->memory + slot;
}

static size_t array_bytes(size_t n_elems)
{
    const size_t page = 4096; /* ranks then never share a page, which lies near the one that touches it first */
    return (n_elems * sizeof(float) + GUARD_BYTES + page - 1) / page * page;
}

static float *array_of(const struct dt_host_sum *sum, int index)
{
    char *arrays = (char *)sum->memory + DT_HOST_SUM_SLOTS * sizeof(struct slot);
    return (float *)(void *)(arrays + (size_t)index * array_bytes(sum->n_elems));
}

static const float *part_of(const struct dt_host_sum *sum, int rank)
{
    return array_of(sum, 1 + rank);
}

static void add_piece(const struct dt_host_sum *sum, size_t begin, size_t end)
{
    float *restrict total = sum->total;
    const float *first = part_of(sum, 0), *second = part_of(sum, 1);
    for (size_t i = begin; i < end; i++) {
        total[i] = first[i] + second[i];
    }
    for (int rank = 2; rank < sum->comm->size; rank++) {
        const float *part = part_of(sum, rank);
        for (size_t i = begin; i < end; i++) {
            total[i] += part[i];
        }
    }
}

/* Adds one more piece, if there is one to be had, and says whether the total is complete. */
static bool progress(struct dt_request *request)
{
    const struct dt_host_sum *sum = request->handle;
    struct slot *slot = slot_of(sum, request->slot);
    if (atomic_load_explicit(&slot->open_round, memory_order_acquire) != sum->rounds[request->slot]) {
        return false;
    }
    const size_t begin = sum->ranges[request->slot].begin, end = sum->ranges[request->slot].end;
    const uint32_t n_pieces = (uint32_t)((end - begin + PIECE_ELEMS - 1) / PIECE_ELEMS);
    if (atomic_load_explicit(&slot->n_taken, memory_order_relaxed) < n_pieces) {
        const uint32_t piece = atomic_fetch_add_explicit(&slot->n_taken, 1, memory_order_relaxed);
        if (piece < n_pieces) {
            const size_t from = begin + piece * PIECE_ELEMS;
            add_piece(sum, from, end - from < PIECE_ELEMS ? end : from + PIECE_ELEMS);
            atomic_fetch_add_explicit(&slot->n_done, 1, memory_order_release);
        }
    }
    return atomic_load_explicit(&slot->n_done, memory_order_acquire) == n_pieces;
}

void dt_host_sum_start(struct dt_host_sum *sum, int slot_index, size_t begin, size_t end, const char *name,
                       struct dt_request *request)
{
    struct slot *slot = slot_of(sum, slot_index);
    dt_comm_request_begin(sum->comm, name, request);
    request->handle = sum;
    request->slot = slot_index;
    request->progress = progress;
    sum->ranges[slot_index].begin = begin;
    sum->ranges[slot_index].end = end;
    const uint64_t round = ++sum->rounds[slot_index];
    /* The last to arrive opens the round. By then every rank has seen the end of the one before, and none looks at the counters. */
    if (atomic_fetch_add(&slot->n_arrived, 1) + 1 == round * (uint64_t)sum->comm->size) {
        atomic_store_explicit(&slot->n_taken, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->n_done, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->open_round, round, memory_order_release);
    }
}

/* Where rank 0 keeps the memory: its process, the number of the file there, and the file's identity, because a rank that sees other
 * processes (a container) may find a stranger's file under that number. */
struct place {
    int64_t pid, fd; /* fd < 0: there is none */
    uint64_t device, inode;
};

static int create(size_t n_bytes, struct place *place)
{
    struct stat file;
    const int fd = memfd_create("dtrain-gradients", MFD_CLOEXEC);
    if (fd >= 0 && (ftruncate(fd, (off_t)n_bytes) != 0 || fstat(fd, &file) != 0)) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        *place = (struct place){.pid = getpid(), .fd = fd, .device = file.st_dev, .inode = file.st_ino};
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
    if (fd >= 0 && (fstat(fd, &file) != 0 || file.st_dev != place->device || file.st_ino != place->inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void *map(int fd, size_t n_bytes)
{
    void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    madvise(memory, n_bytes, MADV_HUGEPAGE); /* no matter if refused */
#endif
    return memory;
}

/* Rank 0 creates the memory and the others open it: all of them, or none. */
static enum dt_status share(struct dt_host_sum *sum)
{
    struct dt_comm *comm = sum->comm;
    struct place place = {.fd = -1};
    int fd = comm->rank == 0 ? create(sum->n_bytes, &place) : -1;
    enum dt_status s = dt_comm_broadcast(comm, &place, sizeof place, 0, "place of the shared gradients");
    if (s == DT_OK) {
        fd = comm->rank == 0 ? fd : open_place(&place);
        sum->memory = map(fd, sum->n_bytes);
        int32_t all_have_it = sum->memory != NULL;
        s = dt_comm_allreduce(comm, &all_have_it, 1, DT_TYPE_I32, DT_REDUCE_MIN, "opening of the shared gradients");
        if (s != DT_OK || !all_have_it) {
            dt_host_sum_close(sum);
        }
    }
    if (fd >= 0) {
        close(fd); /* only now: rank 0's must be there while the others open it */
    }
    return s;
}

enum dt_status dt_host_sum_open(struct dt_comm *comm, size_t n_elems, struct dt_host_sum *out)
{
    *out = (struct dt_host_sum){.comm = comm, .n_elems = n_elems};
    if (comm->size == 1 || comm->local_size < comm->size) {
        return DT_OK;
    }
    out->n_bytes = DT_HOST_SUM_SLOTS * sizeof(struct slot) + (size_t)(comm->size + 1) * array_bytes(n_elems);
    DT_TRY(share(out));
    if (out->memory != NULL) {
        out->total = array_of(out, 0);
        out->part = array_of(out, 1 + comm->rank);
        memset(out->part, 0, array_bytes(n_elems)); /* touched here first, so it lies near this rank's core */
    }
    return DT_OK;
}

void dt_host_sum_close(struct dt_host_sum *sum)
{
    if (sum->memory != NULL) {
        munmap(sum->memory, sum->n_bytes);
    }
    sum->memory = NULL;
    sum->part = sum->total = NULL;
}
