#include "train/watch/inspect.h"

#include <stdlib.h>
#include <string.h>

static enum dt_status take_weights(const struct dt_trainer *t, struct dt_inspection *out)
{
    const size_t n = t->model.arena_elems;
    out->weights = t->network->params;
    if (t->backend->host_memory) {
        return DT_OK;
    }
    out->weights = out->copies[0] = calloc(n, sizeof(float));
    return out->weights != NULL ? t->backend->ops->copy_out(t->backend, out->copies[0],
                                                            t->network->params, n * sizeof(float))
                                : dt_error(DT_NO_MEMORY, "out of memory for a copy of the weights");
}

/* A dt_sums_fn; context: a copy of the arena. */
static enum dt_status copy_sums(void *context, size_t begin, size_t end, const float *sums)
{
    memcpy((float *)context + begin, sums, (end - begin) * sizeof *sums);
    return DT_OK;
}

/* What a GPU keeps of its gradients is not in the arena's order. */
static enum dt_status take_gradients(struct dt_trainer *t, struct dt_inspection *out)
{
    const size_t n = t->model.arena_elems;
    if (!dt_strategy_has_gradient(t->strategy) || !t->backend->host_memory || out->n_samples == 0) {
        return DT_OK;
    }
    DT_TRY(dt_world_alloc(t->world, n, sizeof(float), "the sum of the gradients",
                          (void **)&out->copies[1]));
    DT_TRY(dt_strategy_each_sum(t->strategy, copy_sums, out->copies[1]));
    out->gradients = out->copies[1];
    return dt_comm_allreduce(t->world->comm, out->copies[1], n, DT_TYPE_F32, DT_REDUCE_SUM,
                             "sum of the gradients to look at");
}

enum dt_status dt_inspect(struct dt_trainer *t, double n_samples, struct dt_inspection *out)
{
    *out = (struct dt_inspection){
        .model = &t->model, .n_samples = n_samples, .confusion = t->evaluator.learned.confusion};
    DT_TRY(dt_world_agree(t->world, t->world->rank == 0 ? take_weights(t, out) : DT_OK));
    return take_gradients(t, out);
}

void dt_inspection_close(struct dt_inspection *inspection)
{
    free(inspection->copies[0]);
    free(inspection->copies[1]);
}
