/* Gradient buckets: whole-number gradients must be summed to the bit whatever the buckets, the
 * overlap and the order of polls, by every implementation, whose messages and bytes are counted
 * against the formula. */
#include "tests/lib/rig.h"

#include "dist/allreduce/formula.h"
#include "dist/allreduce/host_sum.h"
#include "dist/launch/job.h"
#include "dist/ranks/comm_private.h"
#include "dist/strategy/grad_sync.h"
#include "dist/strategy/strategy.h"

enum { N_BLOCKS = 6, N_ELEMS = 30000 };
static const size_t ends[N_BLOCKS] = {16, 48, 10048, 10064, 29984, N_ELEMS};
static const size_t bucket_sizes[] = {0, 4, 64, 4000, 40064, 1u << 30};
static float *grads;
static struct dt_allreduce *way;

static float grad_of(int rank, int step, size_t i)
{
    /* The last of several ranks has an empty batch in step 1. */
    return (float)((i * 31 + (size_t)rank * 17 + (size_t)step * 5) % 1000) - 300;
}

static bool is_empty(int rank, int n_ranks, int step)
{
    return step == 1 && n_ranks > 1 && rank == n_ranks - 1;
}

static void fill(int rank, int n_ranks, int step)
{
    for (size_t i = 0; i < N_ELEMS; i++) {
        grads[i] = is_empty(rank, n_ranks, step) ? 0 : grad_of(rank, step, i);
    }
    for (size_t i = N_ELEMS; i < N_ELEMS + 16; i++) {
        grads[i] = -12345;
    }
}

static void check_sums(const float *totals, int n_ranks, int step)
{
    for (size_t i = 0; i < N_ELEMS; i++) {
        float sum = 0;
        for (int rank = 0; rank < n_ranks; rank++) {
            sum += is_empty(rank, n_ranks, step) ? 0 : grad_of(rank, step, i);
        }
        CHECK_MESSAGE(totals[i] == sum, "gradient %zu of step %d is %g, expected %g", i, step,
                      (double)totals[i], (double)sum);
    }
    for (size_t i = N_ELEMS; i < N_ELEMS + 16; i++) {
        CHECK_NEAR(grads[i], -12345, 0);
    }
}

static void check_buckets(const struct dt_grad_sync *sync, size_t bucket_bytes)
{
    size_t begin = 0;
    int block = 0;
    for (int b = 0; b < sync->n_buckets; b++) {
        CHECK_INT(sync->buckets[b].begin, begin);
        while (block < N_BLOCKS && ends[block] < sync->buckets[b].end) {
            CHECK((ends[block] - begin) * sizeof(float) <
                  bucket_bytes); /* else the bucket would have ended here */
            block++;
        }
        CHECK(block < N_BLOCKS);
        CHECK_INT(ends[block++], sync->buckets[b].end);
        begin = sync->buckets[b].end;
    }
    CHECK_INT(begin, N_ELEMS);
}

static enum dt_status wait_for_all(struct dt_grad_sync *sync)
{
    DT_TRY(dt_grad_sync_end(sync));
    for (int i = 0; i < sync->n_buckets; i++) {
        DT_TRY(dt_grad_sync_wait(sync, i));
    }
    return DT_OK;
}

static void test_step(struct dt_grad_sync *sync, int step)
{
    struct dt_comm *comm = sync->allreduce->comm;
    fill(comm->rank, comm->size, step);
    const uint64_t n_before = comm->private->n_started;
    dt_grad_sync_begin(sync);
    size_t begin = 0;
    for (int block = 0; block < N_BLOCKS; block++) {
        for (int k = 0; k < (comm->rank * 7 + block * 3) % 5; k++) {
            dt_grad_sync_poll(sync);
        }
        CHECK_OK(dt_grad_sync_ready(sync, begin, ends[block]));
        begin = ends[block];
        /* All that is full is on its way; without overlap nothing is. */
        int n_full = 0;
        while (n_full < sync->n_buckets && sync->buckets[n_full].end <= begin) {
            n_full++;
        }
        CHECK_INT(comm->private->n_started - n_before, sync->overlap ? n_full : 0);
    }
    CHECK_OK(wait_for_all(sync));
    CHECK_INT(comm->private->n_started - n_before, sync->n_buckets);
    check_sums(sync->allreduce->total, comm->size, step);
}

/* Buckets of a model whose blocks' gradients end at `ends`; n_blocks 0: it has no parameters. */
static void open_sync(int n_blocks, size_t bucket_bytes, bool overlap, struct dt_grad_sync *out)
{
    static struct dt_model model;
    const struct dt_dist_spec dist = {.bucket_bytes = bucket_bytes, .overlap = overlap};
    model.n_blocks = n_blocks;
    model.arena_elems = N_ELEMS;
    for (int b = 0; b < n_blocks; b++) { /* the last block is first in the arena */
        model.blocks[n_blocks - 1 - b].grad_end = ends[b];
    }
    dt_grad_sync_open(way, &model, &dist, out);
}

static void test_sync(size_t bucket_bytes, bool overlap)
{
    struct dt_grad_sync sync;
    open_sync(N_BLOCKS, bucket_bytes, overlap, &sync);
    check_buckets(&sync, bucket_bytes);
    for (int step = 0; step < 3; step++) {
        test_step(&sync, step);
    }
}

static void test_numbers_of_buckets(void)
{
    struct dt_grad_sync sync;
    open_sync(N_BLOCKS, 0, true, &sync);
    CHECK_INT(sync.n_buckets, N_BLOCKS);
    open_sync(N_BLOCKS, (size_t)128 << 20, true, &sync);
    CHECK_INT(sync.n_buckets, 1);
    open_sync(N_BLOCKS, 40000, true, &sync); /* 10000 floats: ends at 10048 and 29984 */
    CHECK_INT(sync.n_buckets, 3);
    open_sync(0, 40000, true, &sync); /* a model without parameters */
    CHECK_INT(sync.n_buckets, 0);
    dt_grad_sync_begin(&sync);
    CHECK_OK(wait_for_all(&sync));
}

static void test_wrong_order(void)
{
    struct dt_grad_sync sync;
    open_sync(N_BLOCKS, (size_t)1 << 30, true, &sync);
    dt_grad_sync_begin(&sync);
    CHECK_FAILS(dt_grad_sync_ready(&sync, 16, 48), DT_INTERNAL, "");
    CHECK_OK(dt_grad_sync_ready(&sync, 0, 16));
    CHECK_FAILS(wait_for_all(&sync), DT_INTERNAL, ""); /* the rest never came */
    dt_error_clear();
}

static void test_all(void)
{
    for (size_t s = 0; s < sizeof bucket_sizes / sizeof bucket_sizes[0]; s++) {
        test_sync(bucket_sizes[s], true);
        test_sync(bucket_sizes[s], false);
    }
    test_numbers_of_buckets();
    test_wrong_order();
}

/* Each slice crosses by itself, over as many ranks as there are hosts. */
static struct dt_traffic expected_between_hosts(const struct dt_comm *comm)
{
    struct dt_traffic all = {0};
    const int n = dt_allreduce_n_slices(comm, N_ELEMS);
    for (int i = 0; i < n; i++) {
        const size_t n_elems = dt_piece_begin(N_ELEMS, i + 1, n) - dt_piece_begin(N_ELEMS, i, n);
        dt_traffic_add(&all, way->algorithm->formula(comm->n_hosts, n_elems));
    }
    CHECK((all.messages > 0) == (comm->n_hosts > 1));
    return all;
}

/* The wire's counters over one sum of everything, against the formula; of all ranks together. */
static void check_traffic(struct dt_comm *comm)
{
    struct dt_wire_sent before, after;
    struct dt_request request;
    if (way->algorithm == NULL) {
        return;
    }
    CHECK(dt_allreduce_sent(way, &before));
    CHECK_OK(dt_allreduce_start(way, 0, 0, N_ELEMS, "counted sum", &request));
    CHECK_OK(dt_comm_wait(comm, &request));
    CHECK(dt_allreduce_sent(way, &after));
    double sent[] = {(double)(after.all.messages - before.all.messages),
                     (double)(after.all.bytes - before.all.bytes),
                     (double)after.between_hosts.bytes};
    CHECK((after.between_hosts.bytes == after.all.bytes) || way->shared == NULL);
    CHECK_OK(dt_comm_allreduce(comm, sent, 3, DT_TYPE_F64, DT_REDUCE_SUM, "sum of what was sent"));
    const struct dt_traffic expected = way->shared != NULL
                                           ? expected_between_hosts(comm)
                                           : way->algorithm->formula(comm->size, N_ELEMS);
    CHECK_NEAR(sent[0], expected.messages, 0);
    CHECK_NEAR(sent[1], expected.bytes, 0);
    CHECK((sent[2] > 0) == (comm->n_hosts > 1));
}

/* ---- by priority */

/* Sums are asked for bucket by bucket, the last one first; those of earlier ones may be there or
 * not. */
static void test_needs(struct dt_grad_sync *sync, int step)
{
    struct dt_comm *comm = sync->allreduce->comm;
    fill(comm->rank, comm->size, step);
    dt_grad_sync_begin(sync);
    for (int block = 0; block < N_BLOCKS; block++) {
        CHECK_OK(dt_grad_sync_ready(sync, block == 0 ? 0 : ends[block - 1], ends[block]));
    }
    CHECK_OK(dt_grad_sync_end(sync));
    for (int k = 0; k < (comm->rank * 7 + step * 3) % 5; k++) {
        dt_grad_sync_poll(sync);
    }
    for (int i = sync->n_buckets - 1; i >= 0; i--) {
        CHECK_OK(dt_grad_sync_wait(sync, i));
    }
    check_sums(sync->allreduce->total, comm->size, step);
}

static void test_priority(struct dt_comm *comm, enum dt_allreduce_type type, int across)
{
    const struct dt_allreduce_spec spec = {.rows = dt_all_entries.allreduce,
                                           .type = type,
                                           .across = across,
                                           .comm = comm,
                                           .backend = &dt_program_memory,
                                           .n_elems = N_ELEMS + 16,
                                           .n_slots = N_BLOCKS};
    CHECK_OK(dt_allreduce_open(&spec, &way));
    grads = way->part;
    for (size_t i = 0; i < sizeof bucket_sizes / sizeof bucket_sizes[0]; i += 3) {
        struct dt_grad_sync sync;
        open_sync(N_BLOCKS, bucket_sizes[i], i == 0, &sync);
        for (int step = 0; step < 3; step++) {
            test_needs(&sync, step);
        }
    }
    dt_allreduce_close(way);
}

static void test_way(struct dt_comm *comm, enum dt_allreduce_type type, int across)
{
    const struct dt_allreduce_spec spec = {.rows = dt_all_entries.allreduce,
                                           .type = type,
                                           .across = across,
                                           .comm = comm,
                                           .backend = &dt_program_memory,
                                           .n_elems = N_ELEMS + 16,
                                           .n_slots = N_BLOCKS};
    const bool shares = comm->n_hosts < comm->size;
    CHECK_OK(dt_allreduce_open(&spec, &way));
    if (type == DT_ALLREDUCE_AUTO) {
        CHECK_INT(way->type, shares ? DT_ALLREDUCE_SHARED_MEMORY : DT_ALLREDUCE_MPI);
    } else if (type == DT_ALLREDUCE_MPI || (shares && type == DT_ALLREDUCE_HIERARCHICAL)) {
        CHECK_INT(way->type, type);
    } else if (type == DT_ALLREDUCE_HIERARCHICAL && comm->size > 1) {
        CHECK_INT(way->type, DT_ALLREDUCE_OF_ALGORITHM(across));
    }
    if (type == DT_ALLREDUCE_HIERARCHICAL && comm->size > 1) {
        CHECK(way->algorithm == &dt_algorithms[across]);
    }
    grads = way->part;
    test_all();
    check_traffic(comm);
    dt_allreduce_close(way);
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        if (!dt_allreduce_is_for_gpus(type)) {
            test_way(world.comm, type, 0);
            test_priority(world.comm, type, 0);
        }
    }
    for (int across = 1; across < DT_N_ALGORITHMS; across++) {
        test_way(world.comm, DT_ALLREDUCE_HIERARCHICAL, across);
        test_priority(world.comm, DT_ALLREDUCE_HIERARCHICAL, across);
    }
    dt_world_exit(&world, DT_OK, true);
}
