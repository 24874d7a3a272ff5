/* Sums by NCCL inside a recorded CUDA graph, from start to end, over two ranks or more: one rank
 * has nothing to add, and NCCL then does nothing. Each has its own GPU; or, started as
 * "nccl_in_graph one_gpu", all use the first, as ranks of different hosts (NCCL_HOSTID), connected
 * by the network interface. Each step copies the same numbers to the device and sums them in two
 * concurrent buckets. The first step goes call by call, the others are a graph. Prints "works" with
 * the time of a step; wrong sums exit with 1, no GPU with 77. */
#include "base/clock.h"
#include "cuda/cuda_backend.h"
#include "data/shard.h"
#include "dist/launch/job.h"
#include "tests/fakecuda/fake.h"
#include "tests/lib/comm_values.h"
#include "tests/lib/rig.h"

enum {
    N_ELEMS = 1199882,
    HALF = N_ELEMS / 2,
    BATCH = 16,
    N_STEPS = 20
}; /* the parameters of configs/mnist.json */

struct sums {
    struct dt_backend *backend;
    struct dt_allreduce *nccl;
    void *numbers; /* device; (N_ELEMS), this rank's */
};

static enum dt_status sum_in_two(void *context, const struct dt_batch *batch,
                                 const struct dt_update *update)
{
    struct sums *sums = context;
    struct dt_request requests[2];
    (void)batch, (void)update;
    CHECK_INT(cudaMemcpyAsync(sums->nccl->part, sums->numbers, N_ELEMS * sizeof(float),
                              cudaMemcpyDeviceToDevice, ((struct dt_cuda *)sums->backend)->stream),
              cudaSuccess);
    DT_TRY(dt_allreduce_start(sums->nccl, 0, 0, HALF, "the first half", &requests[0]));
    DT_TRY(dt_allreduce_start(sums->nccl, 1, HALF, N_ELEMS, "the second half", &requests[1]));
    DT_TRY(dt_comm_wait(sums->nccl->comm, &requests[1]));
    return dt_comm_wait(sums->nccl->comm, &requests[0]);
}

/* Microseconds of a step. */
static double take_steps(struct sums *sums, const struct dt_comm *comm)
{
    const struct dt_shard shard = {.mode = DT_SHARDING_SHARD,
                                   .n_total = (uint32_t)(BATCH * N_STEPS * comm->size),
                                   .global_batch = (uint32_t)(BATCH * comm->size),
                                   .rank = comm->rank,
                                   .size = comm->size};
    struct dt_step_graph *graph;
    struct dt_step_input inputs[N_STEPS];
    for (int i = 0; i < N_STEPS; i++) {
        inputs[i] = (struct dt_step_input){.draw = dt_shard_device_draw(&shard, 0, (uint64_t)i)};
    }
    CHECK_OK(dt_step_graph.open(sums->backend, sums->nccl, BATCH, sum_in_two, sums, &graph));
    double start_s = 0;
    for (int round = 0; round < 2; round++) { /* the first round records */
        start_s = dt_clock_s();
        CHECK_OK(dt_step_graph.start(graph, inputs, N_STEPS));
        for (int n_done = 0; n_done < N_STEPS;) {
            CHECK_OK(dt_step_graph.test(graph, &n_done));
        }
    }
    const double us = (dt_clock_s() - start_s) / N_STEPS * 1e6;
    dt_step_graph.close(graph);
    return us;
}

/* Makes the rank a separate host for NCCL. */
static void share_gpu(int rank)
{
    char id[32];
    snprintf(id, sizeof id, "rank-%d", rank);
    setenv("NCCL_HOSTID", id, 0);
}

int main(int argc, char **argv)
{
    struct dt_world world;
    struct sums sums;
    const bool shared = argc > 1 && strcmp(argv[1], "one_gpu") == 0;
    CHECK_OK(dt_world_open(&world));
    const struct dt_comm *comm = world.comm;
    CHECK(comm->size > 1);
    fake_options.devices = shared ? 1 : comm->size;
    if (shared) {
        share_gpu(comm->rank);
    }
    const int local_rank = shared ? 0 : comm->rank;
    CHECK_OK(dt_cuda_backend.open(
        &(struct dt_backend_options){.n_threads = 1, .local_rank = local_rank}, &sums.backend));
    const struct dt_backend_ops *ops = sums.backend->ops;
    const struct dt_allreduce_spec spec = {.type = DT_ALLREDUCE_NCCL,
                                           .comm = world.comm,
                                           .backend = sums.backend,
                                           .n_elems = N_ELEMS,
                                           .n_slots = 2};
    CHECK_OK(dt_nccl_open(&spec, &sums.nccl));
    float *host = malloc(N_ELEMS * sizeof *host);
    CHECK(host != NULL);
    for (size_t i = 0; i < N_ELEMS; i++) {
        host[i] = (float)value_of(comm->rank, i);
    }
    CHECK_OK(ops->alloc(sums.backend, N_ELEMS * sizeof *host, &sums.numbers));
    CHECK_OK(ops->copy_in(sums.backend, sums.numbers, host, N_ELEMS * sizeof *host));
    const double us = take_steps(&sums, comm);
    CHECK_OK(ops->copy_out(sums.backend, host, sums.nccl->total, N_ELEMS * sizeof *host));
    for (size_t i = 0; i < N_ELEMS; i++) {
        CHECK_NEAR(host[i], reduced_value(DT_REDUCE_SUM, comm->size, i), 0);
    }
    free(host);
    ops->free(sums.backend, sums.numbers);
    dt_allreduce_close(sums.nccl);
    ops->close(sums.backend);
    if (comm->rank == 0) {
        printf("works: %d ranks%s, %d floats in two sums in %.1f us\n", comm->size,
               shared ? " on one GPU" : "", N_ELEMS, us);
    }
    dt_world_exit(&world, DT_OK, true);
}
