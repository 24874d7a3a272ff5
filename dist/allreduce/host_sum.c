#include "dist/allreduce/host_sum.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arithmetic.h"
#include "dist/allreduce/formula.h"

#define PIECE_ELEMS DT_HOST_SUM_PIECE

/* One range's round, at the end of the shared memory. Each counter is written by all ranks of the
 * host. */
struct slot {
    _Alignas(64) _Atomic uint64_t n_arrived; /* of all rounds */
    _Atomic uint64_t open_round;             /* all ranks have arrived for it */
    _Atomic uint32_t n_taken, n_done;        /* pieces of the open round */
    _Atomic uint32_t n_crossed;              /* slices that are summed over the hosts */
};

/* The arrays come first: the total, the ranks' parts, and then smaller ones, where each rank keeps
 * the sums of a piece that are used at once. */
static float *array_of(const struct dt_host_sum *sum, int index)
{
    DT_ASSERT(index >= 0 && index <= 1 + sum->comm->local_size);
    char *bytes = sum->memory.bytes;
    return (float *)(void *)(bytes + (size_t)index * dt_host_array_bytes(sum->n_elems));
}

static float *sums_of(const struct dt_host_sum *sum, int local_rank)
{
    char *bytes = (char *)array_of(sum, 1 + sum->comm->local_size);
    return (float *)(void *)(bytes + (size_t)local_rank * dt_host_array_bytes(PIECE_ELEMS));
}

static struct slot *slot_of(const struct dt_host_sum *sum, int slot)
{
    return (struct slot *)(void *)sums_of(sum, sum->comm->local_size) + slot;
}

static const float *part_of(const struct dt_host_sum *sum, int local_rank)
{
    return array_of(sum, 1 + local_rank);
}

static void add_parts(const struct dt_host_sum *sum, size_t begin, size_t n_elems,
                      float *restrict sums)
{
    const float *first = part_of(sum, 0) + begin;
    if (sum->comm->local_size == 1) { /* but other hosts have more */
        memcpy(sums, first, n_elems * sizeof *sums);
        return;
    }
    const float *second = part_of(sum, 1) + begin;
    for (size_t i = 0; i < n_elems; i++) {
        sums[i] = first[i] + second[i];
    }
    for (int rank = 2; rank < sum->comm->local_size; rank++) {
        const float *part = part_of(sum, rank) + begin;
        for (size_t i = 0; i < n_elems; i++) {
            sums[i] += part[i];
        }
    }
}

static enum dt_status add_piece(const struct dt_host_sum *sum, size_t begin, size_t end)
{
    DT_ASSERT(begin < end && end - begin <= PIECE_ELEMS && end <= sum->n_elems);
    if (sum->use == NULL) {
        add_parts(sum, begin, end - begin, sum->total + begin);
        return DT_OK;
    }
    float *sums = sums_of(sum, sum->comm->local_rank);
    add_parts(sum, begin, end - begin, sums);
    return sum->use(sum->use_context, begin, end, sums);
}

const float *dt_host_sum_again(const struct dt_host_sum *sum, size_t begin, size_t end)
{
    DT_ASSERT(begin <= end && end - begin <= PIECE_ELEMS && sum->use != NULL);
    float *sums = sums_of(sum, sum->comm->local_rank);
    add_parts(sum, begin, end - begin, sums);
    return sums;
}

static uint32_t n_pieces_of(const struct dt_host_sum_range *range)
{
    return (uint32_t)((range->end - range->begin + PIECE_ELEMS - 1) / PIECE_ELEMS);
}

/* All ranks of the host have arrived for this round of the slot. */
static bool is_open(const struct dt_host_sum_range *range, struct slot *slot)
{
    return atomic_load_explicit(&slot->open_round, memory_order_acquire) == range->round;
}

/* Adds the next piece of the host's total, if a piece is left, and then sets *added. */
static enum dt_status add_inside(const struct dt_host_sum *sum,
                                 const struct dt_host_sum_range *range, bool *added)
{
    struct slot *slot = slot_of(sum, (int)(range - sum->ranges));
    const uint32_t n_pieces = n_pieces_of(range);
    if (!is_open(range, slot) ||
        atomic_load_explicit(&slot->n_taken, memory_order_relaxed) >= n_pieces) {
        return DT_OK;
    }
    const uint32_t piece = atomic_fetch_add_explicit(&slot->n_taken, 1, memory_order_relaxed);
    if (piece >= n_pieces) {
        return DT_OK;
    }
    const size_t from = range->begin + piece * PIECE_ELEMS;
    DT_ASSERT(from < range->end);
    DT_TRY(add_piece(sum, from, dt_min_size(range->end, from + PIECE_ELEMS)));
    atomic_fetch_add_explicit(&slot->n_done, 1, memory_order_release);
    *added = true;
    return DT_OK;
}

/* The host's total is there. */
static bool is_complete(const struct dt_host_sum *sum, const struct dt_host_sum_range *range)
{
    struct slot *slot = slot_of(sum, (int)(range - sum->ranges));
    return is_open(range, slot) &&
           atomic_load_explicit(&slot->n_done, memory_order_acquire) == n_pieces_of(range);
}

static enum dt_status start_across(struct dt_host_sum *sum, struct dt_host_sum_range *range,
                                   int n_slices, const char *name)
{
    const size_t n_elems = range->end - range->begin;
    const int index = sum->comm->local_rank;
    DT_ASSERT(index < n_slices && range->stage == DT_INSIDE);
    const size_t begin = range->begin + dt_piece_begin(n_elems, index, n_slices);
    const size_t end = range->begin + dt_piece_begin(n_elems, index + 1, n_slices);
    range->stage = DT_ACROSS;
    if (sum->across != NULL) {
        return dt_executor_start(sum->across, (int)(range - sum->ranges), range->draw, begin, end);
    }
    return dt_comm_allreduce_start(sum->comm->across, sum->total + begin, end - begin, DT_TYPE_F32,
                                   DT_REDUCE_SUM, name, &range->across);
}

/* Moves this rank's slice on, if it has one. The sum has ended when all slices of the host have
 * crossed. */
static enum dt_status add_across(struct dt_host_sum *sum, struct dt_host_sum_range *range)
{
    struct slot *slot = slot_of(sum, (int)(range - sum->ranges));
    const int n_slices = dt_allreduce_n_slices(sum->comm, range->end - range->begin);
    if (sum->comm->local_rank < n_slices && range->stage != DT_CROSSED) {
        bool crossed;
        if (range->stage == DT_INSIDE) {
            DT_TRY(start_across(sum, range, n_slices, range->across.name));
        }
        if (sum->across != NULL) {
            DT_TRY(dt_executor_progress(sum->across, (int)(range - sum->ranges), &crossed));
        } else {
            DT_TRY(dt_comm_test(sum->comm->across, &range->across, &crossed));
        }
        if (crossed) {
            range->stage = DT_CROSSED;
            atomic_fetch_add_explicit(&slot->n_crossed, 1, memory_order_release);
        }
    }
    range->ended =
        atomic_load_explicit(&slot->n_crossed, memory_order_acquire) == (uint32_t)n_slices;
    return DT_OK;
}

static struct dt_host_sum_range *range_of(struct dt_host_sum *sum, uint64_t order)
{
    DT_ASSERT(order < sum->n_started && sum->n_started - order <= DT_ALLREDUCE_MAX_SLOTS);
    return &sum->ranges[sum->slots_of[order % DT_ALLREDUCE_MAX_SLOTS]];
}

/* A later sum may be in the slot by now. */
static bool has_ended(const struct dt_host_sum_range *range, uint64_t order)
{
    return range->ended || range->order != order;
}

/* Moves this sum and those that began before it a little way on, and says whether it is done.
 * It adds one piece at most, and looks for it first in the sum that this rank waits for, so that
 * this sum need not wait for the older ones. Messages between hosts by MPI begin in the order of
 * the sums, because MPI matches collectives by their order; all others begin as soon as the host's
 * total is complete. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct dt_host_sum *sum = request->handle;
    const uint64_t order = sum->ranges[request->slot].order;
    const bool by_mpi = sum->across == NULL && sum->comm->across != NULL;
    bool added = false, may_cross = true;
    for (uint64_t n = order + 1; n > sum->n_done && !added; n--) {
        struct dt_host_sum_range *range = range_of(sum, n - 1);
        DT_TRY(has_ended(range, n - 1) ? DT_OK : add_inside(sum, range, &added));
    }
    for (uint64_t n = sum->n_done; n <= order && may_cross; n++) {
        struct dt_host_sum_range *range = range_of(sum, n);
        const bool complete = has_ended(range, n) || is_complete(sum, range);
        if (complete && !has_ended(range, n)) {
            DT_TRY(add_across(sum, range));
        }
        sum->n_done += n == sum->n_done && has_ended(range, n);
        may_cross = complete || !by_mpi;
    }
    DT_ASSERT(order < sum->n_started && sum->n_done <= sum->n_started);
    *done = sum->ranges[request->slot].ended;
    return DT_OK;
}

void dt_host_sum_start(struct dt_host_sum *sum, int slot_index, size_t begin, size_t end,
                       const char *name, struct dt_request *request)
{
    struct slot *slot = slot_of(sum, slot_index);
    struct dt_host_sum_range *range = &sum->ranges[slot_index];
    DT_ASSERT(range->round == 0 || range->ended);
    DT_ASSERT(begin <= end && end <= sum->n_elems);
    dt_comm_request_begin(sum->comm, name, (end - begin) * sizeof(float), request);
    request->handle = sum;
    request->slot = slot_index;
    request->progress = progress;
    sum->slots_of[sum->n_started % DT_ALLREDUCE_MAX_SLOTS] = slot_index;
    *range = (struct dt_host_sum_range){.begin = begin,
                                        .end = end,
                                        .round = range->round + 1,
                                        .order = sum->n_started++,
                                        .across.name = name};
    range->draw = sum->across != NULL ? dt_executor_draw(sum->across) : 0;
    /* The last to arrive opens the round. By then every rank has seen the end of the one before,
     * and none looks at the counters. */
    if (atomic_fetch_add(&slot->n_arrived, 1) + 1 ==
        range->round * (uint64_t)sum->comm->local_size) {
        atomic_store_explicit(&slot->n_taken, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->n_done, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->n_crossed, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->open_round, range->round, memory_order_release);
    }
}

enum dt_status dt_host_sum_open(struct dt_comm *comm, size_t n_elems, struct dt_host_sum *out)
{
    *out = (struct dt_host_sum){.comm = comm, .n_elems = n_elems};
    if (comm->n_hosts == comm->size) {
        return DT_OK;
    }
    const size_t n_ranks = (size_t)comm->local_size,
                 n_slot_bytes = DT_ALLREDUCE_MAX_SLOTS * sizeof(struct slot);
    const size_t n_array_bytes =
        (n_ranks + 1) * dt_host_array_bytes(n_elems) + n_ranks * dt_host_array_bytes(PIECE_ELEMS);
    DT_TRY(dt_host_memory_open(comm, n_slot_bytes + n_array_bytes, &out->memory));
    if (out->memory.bytes != NULL) {
        out->total = array_of(out, 0);
        out->part = array_of(out, 1 + comm->local_rank);
        dt_host_array_settle(out->part, n_elems);
        if (comm->local_rank == 0) {
            dt_host_array_settle(out->total, n_elems);
        }
    }
    return DT_OK;
}

void dt_host_sum_close(struct dt_host_sum *sum)
{
    dt_host_memory_close(&sum->memory);
    sum->part = sum->total = NULL;
}
