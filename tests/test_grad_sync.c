/* Gradient buckets: whole-number gradients must be summed to the bit whatever the buckets, the overlap and the order of polls. */
#include "rig.h"

#include "dist/grad_sync.h"

enum { N_BLOCKS = 6, N_ELEMS = 30000 };
static const size_t ends[N_BLOCKS] = {16, 48, 10048, 10064, 29984, N_ELEMS};
static const size_t bucket_sizes[] = {0, 4, 64, 4000, 40064, 1u << 30};
static float own_grads[N_ELEMS + 16], *grads = own_grads;
static struct dt_host_sum shared;

/* Gradients in the shared memory, where there is one, are summed there. */
static struct dt_host_sum *where(void)
{
    return grads == own_grads ? NULL : &shared;
}

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
        if (!(totals[i] == sum)) {
            CHECK_FAIL("gradient %zu of step %d is %g, expected %g", i, step, (double)totals[i], (double)sum);
        }
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
            CHECK((ends[block] - begin) * sizeof(float) < bucket_bytes); /* else the bucket would have ended here */
            block++;
        }
        CHECK(block < N_BLOCKS);
        CHECK_INT(ends[block++], sync->buckets[b].end);
        begin = sync->buckets[b].end;
    }
    CHECK_INT(begin, N_ELEMS);
}

static void test_step(struct dt_grad_sync *sync, int step)
{
    struct dt_comm *comm = sync->comm;
    fill(comm->rank, comm->size, step);
    const uint64_t n_before = comm->n_started;
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
        CHECK_INT(comm->n_started - n_before, sync->overlap ? n_full : 0);
    }
    CHECK_OK(dt_grad_sync_wait(sync));
    CHECK_INT(comm->n_started - n_before, sync->n_buckets);
    check_sums(sync->totals, comm->size, step);
}

static void test_sync(struct dt_comm *comm, size_t bucket_bytes, bool overlap)
{
    struct dt_grad_sync sync;
    CHECK_OK(dt_grad_sync_open(comm, grads, where(), ends, N_BLOCKS, bucket_bytes, overlap, &sync));
    check_buckets(&sync, bucket_bytes);
    for (int step = 0; step < 3; step++) {
        test_step(&sync, step);
    }
}

static void test_numbers_of_buckets(struct dt_comm *comm)
{
    struct dt_grad_sync sync;
    CHECK_OK(dt_grad_sync_open(comm, grads, where(), ends, N_BLOCKS, 0, true, &sync));
    CHECK_INT(sync.n_buckets, N_BLOCKS);
    CHECK_OK(dt_grad_sync_open(comm, grads, where(), ends, N_BLOCKS, (size_t)128 << 20, true, &sync));
    CHECK_INT(sync.n_buckets, 1);
    CHECK_OK(
        dt_grad_sync_open(comm, grads, where(), ends, N_BLOCKS, 40000, true, &sync)); /* 10000 floats: ends at 10048 and 29984 */
    CHECK_INT(sync.n_buckets, 3);
    CHECK_OK(dt_grad_sync_open(comm, grads, where(), NULL, 0, 40000, true, &sync)); /* a model without parameters */
    CHECK_INT(sync.n_buckets, 0);
    dt_grad_sync_begin(&sync);
    CHECK_OK(dt_grad_sync_wait(&sync));
}

static void test_wrong_order(struct dt_comm *comm)
{
    struct dt_grad_sync sync;
    CHECK_OK(dt_grad_sync_open(comm, grads, where(), ends, N_BLOCKS, (size_t)1 << 30, true, &sync));
    dt_grad_sync_begin(&sync);
    CHECK_STATUS(dt_grad_sync_ready(&sync, 16, 48), DT_INTERNAL);
    CHECK_OK(dt_grad_sync_ready(&sync, 0, 16));
    CHECK_STATUS(dt_grad_sync_wait(&sync), DT_INTERNAL); /* the rest never came */
    dt_error_clear();
}

static void test_all(struct dt_comm *comm)
{
    for (size_t s = 0; s < sizeof bucket_sizes / sizeof bucket_sizes[0]; s++) {
        test_sync(comm, bucket_sizes[s], true);
        test_sync(comm, bucket_sizes[s], false);
    }
    test_numbers_of_buckets(comm);
    test_wrong_order(comm);
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    test_all(world.comm);
    CHECK_OK(dt_host_sum_open(world.comm, N_ELEMS + 16, &shared));
    CHECK((shared.part != NULL) == (world.comm->n_hosts < world.size));
    if (shared.part != NULL) {
        grads = shared.part;
        test_all(world.comm);
    }
    dt_world_exit(&world, DT_OK, true);
}
