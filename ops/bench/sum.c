#include "ops/bench/bench.h"

enum dt_status dt_bench_sum(const struct dt_bench_sum *sum, size_t n_elems, const char *name)
{
    struct dt_request request;
    DT_TRY(dt_allreduce_start(sum->allreduce, 0, 0, n_elems, name, &request));
    DT_TRY(dt_comm_wait(sum->allreduce->comm, &request));
    return sum->backend != NULL ? sum->backend->ops->sync(sum->backend) : DT_OK;
}

float *dt_bench_sum_input(const struct dt_bench_sum *sum)
{
    return sum->backend != NULL ? sum->host : sum->allreduce->part;
}

enum dt_status dt_bench_sum_put(const struct dt_bench_sum *sum, size_t n_elems)
{
    struct dt_backend *backend = sum->backend;
    return backend != NULL ? backend->ops->copy_in(backend, sum->allreduce->part, sum->host,
                                                   n_elems * sizeof *sum->host)
                           : DT_OK;
}

enum dt_status dt_bench_sum_check(const struct dt_bench_sum *sum, size_t n_elems, unsigned round,
                                  const char *name, size_t *n_wrong)
{
    const struct dt_comm *comm = sum->allreduce->comm;
    struct dt_backend *backend = sum->backend;
    float *x = dt_bench_sum_input(sum);
    dt_bench_fill(x, n_elems, comm->rank, round);
    DT_TRY(dt_bench_sum_put(sum, n_elems));
    DT_TRY(dt_bench_sum(sum, n_elems, name));
    if (backend != NULL) {
        DT_TRY(backend->ops->copy_out(backend, x, sum->allreduce->total, n_elems * sizeof *x));
    }
    *n_wrong += dt_bench_count_wrong(backend != NULL ? x : sum->allreduce->total, n_elems,
                                     comm->size, round);
    return DT_OK;
}
