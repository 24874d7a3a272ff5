#include "train/evaluate.h"

#include <stdlib.h>
#include <string.h>

enum dt_status dt_evaluator_open(struct dt_world *world, const struct dt_data_spec *spec, struct dt_network *network,
                                 struct dt_evaluator *out)
{
    *out = (struct dt_evaluator){.world = world, .network = network};
    struct dt_shard shard = {.mode = DT_SHARDING_SHARD,
                             .global_batch = (size_t)network->capacity * (size_t)world->size,
                             .rank = world->rank,
                             .size = world->size};
    enum dt_status s;
    DT_TRY_GOTO(s, dt_dataset_count(spec, DT_SPLIT_TEST, &shard.n_total), fail);
    DT_TRY_GOTO(s, dt_dataset_open(spec, DT_SPLIT_TEST, dt_shard_owned(&shard), &out->data), fail);
    DT_TRY_GOTO(s, dt_loader_open(&shard, &out->loader), fail);
    DT_TRY_GOTO(s, network->backend->ops->samples_open(network->backend, &out->data.samples, &out->samples), fail);
    return DT_OK;
fail:
    dt_evaluator_close(out);
    return s;
}

enum dt_status dt_evaluator_count_answers(struct dt_evaluator *e)
{
    const struct dt_model *model = e->network->model;
    const size_t n = (size_t)model->n_outputs;
    if (model->spec.loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY || n > DT_EVALUATOR_MAX_CLASSES) {
        return DT_OK;
    }
    e->confusion = calloc(n * n, sizeof *e->confusion);
    e->logits = calloc((size_t)e->network->capacity * n, sizeof *e->logits);
    return e->confusion != NULL && e->logits != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for the confusion matrix");
}

void dt_evaluator_close(struct dt_evaluator *e)
{
    free(e->confusion);
    free(e->logits);
    e->confusion = NULL;
    e->logits = NULL;
    if (e->samples != NULL) {
        e->network->backend->ops->samples_close(e->network->backend, e->samples);
        e->samples = NULL;
    }
    dt_loader_close(&e->loader);
    dt_dataset_close(&e->data);
}

/* As backends count what is right: of equal logits the first is the answer. */
static enum dt_status count_answers(struct dt_evaluator *e, const struct dt_batch *batch)
{
    const size_t n = (size_t)e->network->model->n_outputs;
    if (e->confusion == NULL) {
        return DT_OK;
    }
    DT_TRY(e->network->backend->ops->copy_out(e->network->backend, e->logits, dt_network_logits(e->network),
                                              (size_t)batch->n * n * sizeof *e->logits));
    for (int i = 0; i < batch->n; i++) {
        const float *logits = e->logits + (size_t)i * n;
        size_t answer = 0;
        for (size_t k = 1; k < n; k++) {
            answer = logits[k] > logits[answer] ? k : answer;
        }
        e->confusion[e->data.samples.labels[batch->rows[i]] * n + answer]++;
    }
    return DT_OK;
}

static enum dt_status sum_answers(struct dt_evaluator *e)
{
    const size_t n = (size_t)e->network->model->n_outputs;
    return e->confusion == NULL ? DT_OK
                                : dt_comm_allreduce(e->world->comm, e->confusion, n * n, DT_TYPE_F64, DT_REDUCE_SUM,
                                                    "sum of the confusion matrices");
}

enum dt_status dt_evaluator_run(struct dt_evaluator *e, struct dt_metrics *out)
{
    struct dt_backend *backend = e->network->backend;
    const uint64_t n_steps = dt_shard_steps_per_epoch(&e->loader.shard);
    dt_comm_phase(e->world->comm, "evaluation");
    DT_TRY(backend->ops->metrics_take(backend, out)); /* whatever was left there is not ours */
    if (e->confusion != NULL) {
        memset(e->confusion, 0, (size_t)e->network->model->n_outputs * (size_t)e->network->model->n_outputs * sizeof *e->confusion);
    }
    for (uint64_t step = 0; step < n_steps; step++) {
        const struct dt_batch batch = dt_loader_batch(&e->loader, 0, step);
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY(dt_network_gather(e->network, e->samples, &batch));
        DT_TRY(dt_network_forward(e->network, &pass));
        DT_TRY(dt_network_loss(e->network, e->samples, &pass));
        DT_TRY(count_answers(e, &batch));
    }
    DT_TRY(backend->ops->metrics_take(backend, out));
    double sums[] = {out->loss_sum, out->n_correct, out->n_samples};
    DT_TRY(dt_comm_allreduce(e->world->comm, sums, 3, DT_TYPE_F64, DT_REDUCE_SUM, "sum of the test results"));
    *out = (struct dt_metrics){sums[0], sums[1], sums[2]};
    return sum_answers(e);
}
