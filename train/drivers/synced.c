/* Steps one at a time, as the host driver takes them, of a model that has layers with statistics of
 * all ranks' samples (batch_norm with `sync`). These add by collectives of the world, which begin
 * between those of the gradients. All ranks begin the same ones in the same order: each passes
 * through all layers in every micro-batch, and has as many of these as the others, if need be empty
 * (train/step.c); buckets of gradients begin after the backward pass of the same block on all. */
#include <stdlib.h>

#include "model/layers/layers.h"
#include "train/trainer.h"

struct synced {
    struct dt_rank_sum sum; /* first */
    struct dt_trainer *trainer;
    double values[];
};

/* Counts as communication. */
static enum dt_status add(struct dt_rank_sum *sum, double *values, size_t n, const char *name)
{
    struct dt_trainer *t = ((struct synced *)sum)->trainer;
    const double begin_s = dt_clock_s();
    DT_TRY(dt_comm_allreduce(t->world->comm, values, n, DT_TYPE_F64, DT_REDUCE_SUM, name));
    dt_step_clock_move(&t->clock, DT_PHASE_COMMUNICATION, dt_clock_s() - begin_s);
    return DT_OK;
}

static bool fits(const struct dt_trainer *t)
{
    return t->world->size > 1 && dt_rank_sum_values(&t->model) > 0;
}

static enum dt_status open_synced(struct dt_trainer *t, void **own)
{
    struct synced *s = calloc(1, sizeof *s + dt_rank_sum_values(&t->model) * sizeof *s->values);
    if (s == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the driver of the steps");
    }
    *s = (struct synced){.sum = {.add = add, .values = s->values}, .trainer = t};
    dt_graph_join(t->network, &s->sum);
    *own = s;
    return DT_OK;
}

static void close_synced(struct dt_trainer *t, void *own)
{
    dt_graph_join(t->network, NULL);
    free(own);
}

static enum dt_status take(struct dt_trainer *t, uint64_t limit, struct dt_step_results *out)
{
    return dt_host_driver.take(t, limit, out);
}

const struct dt_driver_ops dt_synced_driver = {
    .fits = fits, .open = open_synced, .close = close_synced, .take = take};
