#include "train/hooks/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "dist/strategy/summary/summary.h"
#include "train/trainer.h"

struct inspect {
    struct dt_hook hook; /* first */
    struct dt_inspection inside;
    float *weights, *gradients; /* of the arena's size, where they have to be copies */
};

static enum dt_status copy_weights(const struct dt_trainer *t, struct inspect *inspect)
{
    return inspect->weights == NULL || t->world->rank > 0
               ? DT_OK
               : t->backend->ops->copy_out(t->backend, inspect->weights, t->network->params,
                                           t->model.arena_elems * sizeof(float));
}

/* A dt_sums_fn; context: a copy of the arena. */
static enum dt_status copy_sums(void *context, size_t begin, size_t end, const float *sums)
{
    DT_ASSERT(begin <= end);
    memcpy((float *)context + begin, sums, (end - begin) * sizeof *sums);
    return DT_OK;
}

static enum dt_status add_gradients(struct dt_trainer *t, float *sums)
{
    const size_t n = t->model.arena_elems;
    memset(sums, 0, n * sizeof *sums);
    DT_TRY(dt_strategy_each_sum(t->strategy, copy_sums, sums));
    return dt_comm_allreduce(t->world->comm, sums, n, DT_TYPE_F32, DT_REDUCE_SUM,
                             "sum of the gradients to look at");
}

static enum dt_status end_epoch(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_epoch_event *epoch)
{
    struct inspect *inspect = (struct inspect *)hook;
    const bool stepped = epoch->step_samples > 0;
    epoch->inside = &inspect->inside;
    inspect->inside.n_samples = epoch->step_samples;
    inspect->inside.learned = epoch->learned;
    inspect->inside.gradients = stepped ? inspect->gradients : NULL;
    DT_TRY(dt_world_agree(t->world, copy_weights(t, inspect)));
    return inspect->inside.gradients != NULL ? add_gradients(t, inspect->gradients) : DT_OK;
}

static void close_inspect(struct dt_hook *hook)
{
    struct inspect *inspect = (struct inspect *)hook;
    free(inspect->weights);
    free(inspect->gradients);
    free(inspect);
}

static const struct dt_hook_ops inspect_ops = {.epoch_end = end_epoch, .close = close_inspect};

/* The gradients that a GPU keeps are not in the arena's order. */
enum dt_status dt_inspect_open(struct dt_trainer *t)
{
    const bool host = t->backend->host_memory;
    const size_t n = t->model.arena_elems;
    struct inspect *inspect;
    if (!t->config.tensorboard) {
        return DT_OK;
    }
    DT_TRY(dt_hook_open(t, &inspect_ops, sizeof *inspect, "a look inside", (void **)&inspect));
    if (host && dt_strategy_has_gradient(t->strategy)) {
        DT_TRY(dt_world_alloc(t->world, n, sizeof(float), "the sum of the gradients",
                              (void **)&inspect->gradients));
    }
    if (!host) {
        DT_TRY(dt_world_alloc(t->world, t->world->rank == 0 ? n : 1, sizeof(float),
                              "a copy of the weights", (void **)&inspect->weights));
    }
    inspect->inside = (struct dt_inspection){
        .model = &t->model, .weights = host ? t->network->params : inspect->weights};
    return DT_OK;
}
