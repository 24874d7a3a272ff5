/* An experiment: can two ranks sum their gradients by NCCL on one GPU? NCCL refuses ranks of one
 * host on one GPU, so dtrain does not try (train/device.h). But NCCL identifies a host by a text
 * that the variable NCCL_HOSTID sets: with a different one for each rank they count as ranks of
 * different hosts, and use the network interface. A value set beforehand stays. Prints "works" with
 * the time of a sum, or "refused: " with NCCL's error text; both exit with 0 unless only one rank
 * was refused. Wrong sums exit with 1, no GPU with 77. */
#include "base/clock.h"
#include "cuda/cuda_backend.h"
#include "cuda/nccl_allreduce.h"
#include "dist/launch/job.h"
#include "tests/lib/comm_values.h"
#include "tests/lib/rig.h"

enum { N_ELEMS = 1199882, N_SUMS = 10 }; /* the parameters of configs/mnist.json */

static enum dt_status sum_once(struct dt_allreduce *nccl, struct dt_backend *backend, float *host,
                               int k, double *ms)
{
    struct dt_request request;
    const int rank = nccl->comm->rank, size = nccl->comm->size;
    for (size_t i = 0; i < N_ELEMS; i++) {
        host[i] = (float)(value_of(rank, i) + k);
    }
    CHECK_OK(backend->ops->copy_in(backend, nccl->part, host, N_ELEMS * sizeof *host));
    const uint64_t start_ns = dt_clock_ns();
    DT_TRY(dt_allreduce_start(nccl, 0, 0, N_ELEMS, "sum on one GPU", &request));
    DT_TRY(dt_comm_wait(nccl->comm, &request));
    *ms += (double)(dt_clock_ns() - start_ns) * 1e-6;
    CHECK_OK(backend->ops->copy_out(backend, host, nccl->total, N_ELEMS * sizeof *host));
    for (size_t i = 0; i < N_ELEMS; i++) {
        CHECK_NEAR(host[i], reduced_value(DT_REDUCE_SUM, size, i) + size * k, 0);
    }
    return DT_OK;
}

/* After a failure of one rank alone the job can only end, with the memory that NCCL still uses. */
static enum dt_status sum_on_one_gpu(struct dt_comm *ranks, struct dt_backend *backend, double *ms)
{
    struct dt_allreduce *nccl;
    const struct dt_allreduce_spec spec = {.type = DT_ALLREDUCE_NCCL,
                                           .comm = ranks,
                                           .backend = backend,
                                           .n_elems = N_ELEMS,
                                           .n_slots = 1};
    float *host = malloc(N_ELEMS * sizeof *host);
    CHECK(host != NULL);
    const enum dt_status s = dt_nccl_open(&spec, &nccl);
    if (s == DT_OK) {
        double first_ms = 0; /* NCCL connects */
        DT_TRY(sum_once(nccl, backend, host, 0, &first_ms));
        for (int k = 1; k <= N_SUMS; k++) {
            DT_TRY(sum_once(nccl, backend, host, k, ms));
        }
        dt_allreduce_close(nccl);
    }
    free(host);
    return s;
}

int main(void)
{
    struct dt_world world;
    struct dt_backend *backend;
    struct dt_device_info gpu;
    int n_gpus;
    char id[32];
    double ms = 0;
    CHECK_OK(dt_world_open(&world));
    snprintf(id, sizeof id, "rank-%d", world.rank);
    setenv("NCCL_HOSTID", id, 0);
    CHECK_OK(dt_cuda_probe(0, &gpu, &n_gpus));
    CHECK_OK(dt_cuda_backend.open(&(struct dt_backend_options){.n_threads = 1}, &backend));
    const enum dt_status s = sum_on_one_gpu(world.comm, backend, &ms);
    if (s != DT_OK && !dt_error_is_agreed()) {
        printf("rank %d: refused: %s\n", world.rank, dt_error_text());
        dt_world_exit(&world, s, false);
    }
    if (s == DT_OK && world.rank == 0) {
        printf("works: %d ranks on one %s, %d floats in %.2f ms\n", world.size, gpu.name, N_ELEMS,
               ms / N_SUMS);
    } else if (world.rank == 0) {
        printf("refused: %s\n", dt_error_text());
    }
    backend->ops->close(backend);
    dt_world_exit(&world, DT_OK, true);
}
