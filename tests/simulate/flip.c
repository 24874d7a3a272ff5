/* Bits that turn over in gradients, and whether what is told of the replicas is true: what the
 * comparison of replicas takes for equal is compared here, bit by bit and by other means. */
#include <string.h>

#include "dist/allreduce/allreduce.h"
#include "dist/strategy/replica_check.h"
#include "tests/lib/wrap.h"
#include "tests/simulate/sim.h"

#define MOST_WEIGHTS 192
#define N_KEPT 2 /* no rank is a whole comparison ahead of another */

static struct weights {
    uint64_t comparison; /* the rank's how manieth, from 1 */
    float values[MOST_WEIGHTS];
} weights[N_KEPT][SIM_MAX_RANKS];
static uint64_t n_comparisons[SIM_MAX_RANKS];

void sim_flip_begin(void)
{
    memset(n_comparisons, 0, sizeof n_comparisons);
    memset(weights, 0, sizeof weights);
}

void sim_flip(enum sim_flip what, void *bytes, size_t n_bytes)
{
    if (sim.now != NULL && sim.now->flip == what && n_bytes > 0) {
        const uint64_t bit = sim_below(&sim.random, 8 * n_bytes);
        ((unsigned char *)bytes)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        sim.now->flip = SIM_FLIP_NOTHING;
        sim_trace("bit %llu of %zu bytes turns over", (unsigned long long)bit, n_bytes);
    }
}

WRAP(enum dt_status, dt_allreduce_start, struct dt_allreduce *a, int slot, size_t begin, size_t end,
     const char *name, struct dt_request *request)
{
    sim_flip(SIM_FLIP_OWN, a->part + begin, (end - begin) * sizeof *a->part);
    return __real_dt_allreduce_start(a, slot, begin, end, name, request);
}

/* ---- the comparison of replicas */

static void keep(const struct dt_model *model, const float *params, struct weights *out)
{
    size_t n = 0;
    for (int i = 0; i < model->n_params; i++) {
        const struct dt_param *param = &model->params[i];
        if (n + param->n_elems > MOST_WEIGHTS) {
            sim_wrong("more than %d weights", MOST_WEIGHTS);
            return;
        }
        memcpy(out->values + n, params + param->offset, param->n_elems * sizeof(float));
        n += param->n_elems;
    }
}

WRAP(enum dt_status, dt_replica_check_run, struct dt_replica_check *check,
     struct dt_network *network)
{
    const uint64_t comparison = ++n_comparisons[sim.now->number];
    struct weights *all = weights[comparison % N_KEPT], *mine = &all[sim.now->number];
    mine->comparison = comparison;
    keep(check->model, network->params, mine);
    const enum dt_status s = __real_dt_replica_check_run(check, network);
    for (int r = 0; r < check->comm->size && s == DT_OK; r++) {
        if (all[r].comparison != comparison ||
            memcmp(all[r].values, mine->values, sizeof mine->values) != 0) {
            sim_wrong("replicas are told to be equal, and that of rank %d is not", r);
        }
    }
    return s;
}
