/* Measures the training set: means and deviations, and how many samples each class has. */
#include <stdlib.h>
#include <string.h>

#include "data/formats/labelled.h"
#include "data/transform.h"
#include "train/parts.h"

/* ---- scales of inputs */

/* Whether this rank's samples count: ranks have shares, or each has all samples. */
static bool counts(const struct dt_trainer *t)
{
    return t->world->rank == 0 ||
           (t->config.sharding == DT_SHARDING_SHARD && t->roles.n_workers > 1);
}

/* The text has what the configuration said before ranks and model filled in their parts. */
static enum dt_status rewrite(struct dt_trainer *t)
{
    struct dt_config *config = malloc(sizeof *config);
    if (config == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    }
    char *text = NULL;
    enum dt_status s = t->written.format->read(t->config.name, t->written.text, config);
    if (s == DT_OK) {
        config->data.normalize = t->config.data.normalize;
        if (t->set.data.found != NULL) {
            dt_found_take(t->set.data.found, &config->data);
        }
        text = t->written.format->write(config);
        s = text != NULL ? DT_OK
                         : dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    }
    free(config);
    if (s == DT_OK) {
        free(t->written.text);
        t->written.text = text;
    }
    return s;
}

static enum dt_status take(struct dt_trainer *t, const struct dt_channel_sums *sums)
{
    DT_ASSERT(t->config.data.normalize.of_dataset);
    struct dt_dataset *data = &t->set.data;
    DT_TRY(dt_normalize_of(sums, data->samples.shape.c, &t->config.data.normalize));
    DT_TRY(rewrite(t));
    free(data->transform);
    data->samples.transform = data->transform = NULL;
    DT_TRY(dt_transform_open(&t->config.data, DT_SPLIT_TRAIN, &data->transform));
    data->samples.transform = data->transform;
    return DT_OK;
}

enum dt_status dt_trainer_normalize(struct dt_trainer *t)
{
    const struct dt_samples *samples = &t->set.data.samples;
    struct dt_channel_sums sums[DT_MOST_CHANNELS] = {{0}};
    if (t->set.data.found != NULL) {
        dt_found_take(t->set.data.found, &t->config.data);
        DT_TRY(dt_world_agree(t->world, rewrite(t)));
    }
    if (!t->config.data.normalize.of_dataset) {
        return DT_OK;
    }
    if (counts(t)) {
        dt_channel_sums_add(samples, sums);
    }
    DT_TRY(dt_comm_allreduce(t->world->comm, sums, 3 * (size_t)samples->shape.c, DT_TYPE_U64,
                             DT_REDUCE_SUM, "sum of the training images' pixels"));
    return dt_world_agree(t->world, take(t, sums));
}

/* ---- weights of classes: losses are divided by the sum of the weights over the samples of all
 * ranks, as PyTorch's CrossEntropyLoss(weight=...) does */

/* t->class_weights: the weight of each class; then its samples in this step; then, as floats, the
 * factor of its losses in this step. */
enum dt_status dt_class_weights_open(struct dt_trainer *t)
{
    const struct dt_class_weights *of = &t->config.class_weights;
    const struct dt_samples *samples = &t->set.data.samples;
    const size_t n = (size_t)t->model.n_outputs, n_total = samples->n_total;
    if (of->n != DT_AUTO && of->n != t->model.n_outputs) {
        return dt_error_agreed(dt_error(
            DT_CONFIG,
            "train.class_weights: %d weights, the model has %zu classes (give one for each)", of->n,
            n));
    }
    DT_TRY(dt_world_alloc(t->world, 3 * n, sizeof *t->class_weights, "weights of classes",
                          (void **)&t->class_weights));
    for (size_t i = 0; counts(t) && i < samples->n; i++) {
        t->class_weights[samples->labels[i]]++;
    }
    DT_TRY(dt_comm_allreduce(t->world->comm, t->class_weights, n, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of the classes' samples"));
    for (size_t k = 0; k < n; k++) {
        double *w = &t->class_weights[k];
        *w = of->n > 0 ? of->of[k] : *w > 0 ? (double)n_total / ((double)n * *w) : 0;
    }
    return DT_OK;
}

enum dt_status dt_class_weights_of(struct dt_trainer *t, size_t n_global, struct dt_batch *batch)
{
    const size_t n = (size_t)t->model.n_outputs;
    const bool averages = t->config.dist.average && !t->roles.whole;
    double *weights = t->class_weights, *counts = weights + n, sum = 0,
           n_used = averages ? (double)n_global : batch->n;
    float *factors = (float *)(counts + n);
    memset(counts, 0, n * sizeof *counts);
    for (int i = 0; i < batch->n; i++) {
        counts[t->set.data.samples.labels[batch->rows[i]]]++;
    }
    if (averages) {
        DT_TRY(dt_comm_allreduce(t->world->comm, counts, n, DT_TYPE_F64, DT_REDUCE_SUM,
                                 "sum of the batch's classes"));
    }
    for (size_t k = 0; k < n; k++) {
        sum += counts[k] * weights[k];
    }
    for (size_t k = 0; k < n; k++) {
        factors[k] = sum > 0 ? (float)(weights[k] * n_used / sum) : 0;
    }
    batch->class_weights = factors;
    return DT_OK;
}
