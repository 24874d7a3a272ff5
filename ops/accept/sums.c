/* Checks every allreduce implementation, in host memory and, if the training uses GPUs, in theirs,
 * on integers, whose sums do not depend on the order of addition. */
#include <stdio.h>
#include <stdlib.h>

#include "dist/strategy/strategies.h"
#include "ops/accept/rows.h"
#include "ops/bench/bench.h"

#define N_ELEMS 100003 /* no number of ranks divides it */

/* An implementation, on memory of `backend`, or on the program's if that is NULL. */
struct impl {
    struct dt_allreduce *allreduce;
    struct dt_backend *backend;
    float *host; /* N_ELEMS, with a backend: source and destination of copies */
};

static enum dt_status add(struct impl *impl)
{
    struct dt_request request;
    DT_TRY(dt_allreduce_start(impl->allreduce, 0, 0, N_ELEMS, "a sum that is checked", &request));
    DT_TRY(dt_comm_wait(impl->allreduce->comm, &request));
    return impl->backend != NULL ? impl->backend->ops->sync(impl->backend) : DT_OK;
}

static enum dt_status sum_wrong(struct dt_acceptance *a, struct impl *impl, unsigned round,
                                size_t *n_wrong)
{
    const struct dt_allreduce *sum = impl->allreduce;
    const size_t n_bytes = N_ELEMS * sizeof(float);
    const bool device = impl->backend != NULL;
    dt_bench_fill(device ? impl->host : sum->part, N_ELEMS, a->world->rank, round);
    DT_TRY(device ? impl->backend->ops->copy_in(impl->backend, sum->part, impl->host, n_bytes)
                  : DT_OK);
    DT_TRY(add(impl));
    DT_TRY(device ? impl->backend->ops->copy_out(impl->backend, impl->host, sum->total, n_bytes)
                  : DT_OK);
    *n_wrong =
        dt_bench_count_wrong(device ? impl->host : sum->total, N_ELEMS, a->world->size, round);
    return DT_OK;
}

/* Fails the ranks with wrong sums. */
static enum dt_status judge(struct dt_acceptance *a, enum dt_allreduce_type type, size_t n_wrong,
                            struct dt_accept_row *row)
{
    double *all, sum = 0;
    const double mine = (double)n_wrong;
    DT_TRY(dt_world_alloc(a->world, (size_t)a->world->size, sizeof *all, "counts of wrong sums",
                          (void **)&all));
    const enum dt_status s =
        dt_comm_allgather(a->world->comm, &mine, all, sizeof mine, "exchange of wrong sums");
    for (int r = 0; s == DT_OK && r < a->world->size; r++) {
        a->cells[r].failed |= all[r] > 0;
        sum += all[r];
    }
    free(all);
    row->verdict = dt_accept_verdict(sum <= 0);
    if (sum > 0) {
        snprintf(row->text, sizeof row->text, "%s: %.0f of %d sums are wrong on some rank",
                 dt_allreduce_names[type], sum, N_ELEMS);
    }
    return s;
}

static enum dt_status try_impl(struct dt_acceptance *a, enum dt_allreduce_type type,
                               struct dt_backend *backend, struct dt_accept_row *row)
{
    struct impl impl = {.backend = backend};
    const struct dt_allreduce_spec spec = {
        .rows = dt_all_rows.allreduce,
        .type = type,
        .comm = a->world->comm,
        .backend = backend,
        .device_open = type == DT_ALLREDUCE_NCCL ? a->device.allreduce_open : NULL,
        .n_elems = N_ELEMS,
        .n_slots = 1};
    size_t n_wrong;
    enum dt_status s;
    DT_TRY_GOTO(
        s, dt_world_alloc(a->world, N_ELEMS, sizeof *impl.host, "sums", (void **)&impl.host), done);
    DT_TRY_GOTO(s, dt_world_agree(a->world, dt_allreduce_open(&spec, &impl.allreduce)), done);
    s = sum_wrong(a, &impl, (unsigned)type + 1, &n_wrong);
    s = s == DT_OK ? judge(a, type, n_wrong, row) : s;
done:
    if (s != DT_STALLED) { /* other ranks may still use it */
        dt_allreduce_close(impl.allreduce);
        free(impl.host);
    }
    return s;
}

static bool is_here(const struct dt_acceptance *a, enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_NCCL     ? a->device.allreduce_open != NULL
           : type == DT_ALLREDUCE_STAGED ? a->device.module != NULL && a->world->size > 1
                                         : type != DT_ALLREDUCE_AUTO;
}

static enum dt_status try_all(struct dt_acceptance *a, struct dt_backend *backend,
                              struct dt_accept_row *row)
{
    int n_impls = 0;
    row->verdict = DT_ACCEPT_PASS;
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES && row->verdict == DT_ACCEPT_PASS; type++) {
        if (is_here(a, type)) {
            DT_TRY(try_impl(a, type, dt_allreduce_is_for_gpus(type) ? backend : NULL, row));
            n_impls++;
        }
    }
    if (row->verdict == DT_ACCEPT_PASS) {
        snprintf(row->text, sizeof row->text, "%d implementations%s%s, %d floats each, all exact",
                 n_impls, is_here(a, DT_ALLREDUCE_NCCL) ? ", nccl" : "",
                 is_here(a, DT_ALLREDUCE_STAGED) ? ", staged" : "", N_ELEMS);
    }
    return DT_OK;
}

enum dt_status dt_accept_sums(struct dt_acceptance *a, struct dt_accept_row *row)
{
    const struct dt_backend_options options = {.n_threads = 1, .local_rank = a->world->local_rank};
    struct dt_backend *backend = NULL;
    if (a->device.module != NULL) {
        DT_TRY(dt_world_agree(a->world, a->device.backend->open(&options, &backend)));
    }
    const enum dt_status s = try_all(a, backend, row);
    if (backend != NULL && s != DT_STALLED) {
        backend->ops->close(backend);
    }
    return s;
}
