/* Checks every allreduce implementation, in host memory and, if the training uses GPUs, in theirs,
 * on integers, whose sums do not depend on the order of addition. */
#include "dist/allreduce/types.h"
#include "dist/strategy/strategies.h"
#include "ops/accept/rows.h"
#include "ops/measure.h"

#define N_ELEMS 100003 /* no number of ranks divides it */

/* Fails the ranks with wrong sums. */
static enum dt_status judge(struct dt_acceptance *a, enum dt_allreduce_type type, size_t n_wrong,
                            struct dt_accept_row *row)
{
    double *all, sum = 0;
    const double mine = (double)n_wrong;
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "wrong sums", (void **)&all));
    for (int r = 0; r < a->world->size; r++) {
        a->cells[r].failed |= all[r] > 0;
        sum += all[r];
    }
    if (sum > 0) {
        dt_accept_say(row, DT_ACCEPT_FAIL, "%s: %.0f of %d sums are wrong on some rank",
                      dt_allreduce_names[type], sum, N_ELEMS);
    }
    return DT_OK;
}

static enum dt_status try_impl(struct dt_acceptance *a, enum dt_allreduce_type type,
                               struct dt_backend *backend, float *host, struct dt_accept_row *row)
{
    struct dt_measure_sum sum = {.backend = backend, .host = host};
    const struct dt_allreduce_spec spec = {
        .rows = dt_all_rows.allreduce,
        .type = type,
        .comm = a->world->comm,
        .backend = backend != NULL ? backend : &dt_program_memory,
        .device_open = type == DT_ALLREDUCE_NCCL ? a->device.allreduce_open : NULL,
        .n_elems = N_ELEMS,
        .n_slots = 1};
    size_t n_wrong = 0;
    DT_TRY(dt_world_agree(a->world, dt_allreduce_open(&spec, &sum.allreduce)));
    enum dt_status s =
        dt_measure_sum_check(&sum, N_ELEMS, (unsigned)type + 1, "a sum that is checked", &n_wrong);
    s = s == DT_OK ? judge(a, type, n_wrong, row) : s;
    if (s != DT_STALLED) { /* other ranks may still use it */
        dt_allreduce_close(sum.allreduce);
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
    float *host;
    DT_TRY(dt_accept_alloc(a, N_ELEMS, sizeof *host, "sums", (void **)&host));
    row->verdict = DT_ACCEPT_PASS;
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES && row->verdict == DT_ACCEPT_PASS; type++) {
        if (is_here(a, type)) {
            DT_TRY(try_impl(a, type, dt_allreduce_is_for_gpus(type) ? backend : NULL, host, row));
            n_impls++;
        }
    }
    if (row->verdict == DT_ACCEPT_PASS) {
        dt_accept_say(row, DT_ACCEPT_PASS, "%d implementations%s%s, %d floats each, all exact",
                      n_impls, is_here(a, DT_ALLREDUCE_NCCL) ? ", nccl" : "",
                      is_here(a, DT_ALLREDUCE_STAGED) ? ", staged" : "", N_ELEMS);
    }
    return DT_OK;
}

enum dt_status dt_accept_sums(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct dt_backend *backend = NULL;
    if (a->device.module != NULL) {
        DT_TRY(dt_world_agree(a->world, dt_accept_backend_open(a, &backend)));
    }
    const enum dt_status s = try_all(a, backend, row);
    if (backend != NULL && s != DT_STALLED) {
        backend->ops->close(backend);
    }
    return s;
}
