/* Every way of adding gradients that host memory has, on whole numbers, whose sums no order of addition may change. */
#include <stdio.h>
#include <string.h>

#include "cli/commands/accept/rows.h"
#include "cli/commands/bench.h"
#include "dist/allreduce/ways.h"

#define N_ELEMS 100003 /* no number of ranks divides it */

static enum dt_status sum_wrong(struct dt_acceptance *a, struct dt_allreduce *way, unsigned round, double *n_wrong)
{
    struct dt_request request;
    dt_bench_fill(way->part, N_ELEMS, a->world->rank, round);
    DT_TRY(dt_allreduce_start(way, 0, 0, N_ELEMS, "a sum that is checked", &request));
    DT_TRY(dt_comm_wait(way->comm, &request));
    *n_wrong = (double)dt_bench_count_wrong(way->total, N_ELEMS, a->world->size, round);
    return dt_comm_allreduce(a->world->comm, n_wrong, 1, DT_TYPE_F64, DT_REDUCE_SUM, "count of wrong sums");
}

static enum dt_status try_way(struct dt_acceptance *a, enum dt_allreduce_type type, double *n_wrong)
{
    const struct dt_allreduce_spec spec = {.type = type, .comm = a->world->comm, .n_elems = N_ELEMS, .n_slots = 1};
    struct dt_allreduce *way = NULL;
    DT_TRY(dt_world_agree(a->world, dt_allreduce_open(&spec, &way)));
    const enum dt_status s = sum_wrong(a, way, (unsigned)type + 1, n_wrong);
    dt_allreduce_close(way);
    return s;
}

enum dt_status dt_accept_sums(struct dt_acceptance *a, struct dt_accept_row *row)
{
    int n_ways = 0;
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        double n_wrong = 0;
        if (type == DT_ALLREDUCE_AUTO || dt_allreduce_is_for_gpus(type)) {
            continue;
        }
        DT_TRY(try_way(a, type, &n_wrong));
        n_ways++;
        if (n_wrong > 0) {
            snprintf(row->text, sizeof row->text, "%s: %.0f of %d sums are wrong on some rank", dt_allreduce_names[type], n_wrong,
                     N_ELEMS);
            return DT_OK;
        }
    }
    row->passed = true;
    snprintf(row->text, sizeof row->text, "%d ways, %d floats each, all exact", n_ways, N_ELEMS);
    return DT_OK;
}
