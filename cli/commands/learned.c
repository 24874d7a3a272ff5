#include "cli/commands/learned.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/eval.h"
#include "model/checkpoint_dir.h"
#include "train/data_spec.h"
#include "train/evaluate.h"

#define BATCH 256
#define MAX_SIDE 64 /* of images and filters that are shown */

static enum dt_status no_memory(void)
{
    return dt_error(DT_NO_MEMORY, "no memory for what the model says of the test samples");
}

static enum dt_status find_checkpoint(const struct dt_record *r, char path[DT_CHECKPOINT_PATH_SIZE])
{
    char dir[DT_PATH_SIZE + 16];
    uint64_t *steps = NULL;
    size_t n = 0;
    snprintf(dir, sizeof dir, "%s/checkpoints", r->path);
    DT_TRY(dt_checkpoint_list(dir, &steps, &n));
    const enum dt_status s = n > 0 ? dt_checkpoint_path(dir, steps[0], path) : dt_error(DT_NO_INPUT, "there is no checkpoint");
    free(steps);
    return s;
}

/* ---- answers */

static struct dt_answer answer_of(const float *logits, int n, int label)
{
    struct dt_answer a = {.label = label};
    double sum = 0;
    for (int k = 1; k < n; k++) {
        a.said = logits[k] > logits[a.said] ? k : a.said;
    }
    const double largest = (double)logits[a.said];
    for (int k = 0; k < n; k++) {
        sum += exp((double)logits[k] - largest);
    }
    a.probability = 1 / sum;
    a.loss = largest + log(sum) - (double)logits[label];
    return a;
}

/* Among the worst so far, which stay sorted, if it is one of them. */
static void keep_worst(struct dt_learned *l, const struct dt_answer *a)
{
    int i = l->n_worst;
    while (i > 0 && l->worst[i - 1].loss < a->loss) {
        i--;
    }
    if (i == DT_LEARNED_WORST) {
        return;
    }
    l->n_worst += l->n_worst < DT_LEARNED_WORST;
    memmove(&l->worst[i + 1], &l->worst[i], (size_t)(l->n_worst - 1 - i) * sizeof *a);
    l->worst[i] = *a;
}

static enum dt_status take_answers(struct dt_evaluator *e, float *logits, struct dt_learned *out)
{
    const struct dt_backend_ops *ops = e->network->backend->ops;
    const uint64_t n_steps = dt_shard_steps_per_epoch(&e->loader.shard);
    for (uint64_t step = 0; step < n_steps; step++) {
        const struct dt_batch batch = dt_loader_batch(&e->loader, 0, step);
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY(dt_network_gather(e->network, e->samples, &batch));
        DT_TRY(dt_network_forward(e->network, &pass));
        DT_TRY(ops->copy_out(e->network->backend, logits, dt_network_logits(e->network),
                             (size_t)batch.n * (size_t)out->n_classes * sizeof *logits));
        for (int i = 0; i < batch.n; i++) {
            struct dt_answer a =
                answer_of(logits + (size_t)i * (size_t)out->n_classes, out->n_classes, e->data.samples.labels[batch.rows[i]]);
            a.id = batch.rows[i];
            out->confusion[(size_t)a.label * (size_t)out->n_classes + (size_t)a.said]++;
            keep_worst(out, &a);
        }
    }
    return DT_OK;
}

static enum dt_status take_images(const struct dt_samples *samples, struct dt_learned *out)
{
    const struct dt_shape s = samples->shape;
    const size_t n = dt_shape_elems(s);
    out->shape = s;
    if (samples->pixels == NULL || (s.c != 1 && s.c != 3) || s.h > MAX_SIDE || s.w > MAX_SIDE || s.h * s.w == 1) {
        return DT_OK;
    }
    out->images = malloc((size_t)out->n_worst * n + 1);
    for (int i = 0; i < out->n_worst && out->images != NULL; i++) {
        memcpy(out->images + (size_t)i * n, samples->pixels + out->worst[i].id * n, n);
    }
    return out->images != NULL ? DT_OK : no_memory();
}

/* ---- filters: of a convolution, or of a dense layer that sees a grey image */

static bool find_filters(const struct dt_model *model, struct dt_learned *out)
{
    const struct dt_block *b = &model->blocks[0];
    const struct dt_shape in = model->spec.input;
    if (b->linear == DT_LINEAR_CONV) {
        out->filter_c = in.c;
        out->filter_h = out->filter_w = b->kernel;
    } else if (b->linear == DT_LINEAR_DENSE) {
        out->filter_c = in.c;
        out->filter_h = in.h;
        out->filter_w = in.w;
    }
    const bool shown = (out->filter_c == 1 || (out->filter_c == 3 && b->linear == DT_LINEAR_CONV)) && out->filter_h > 1 &&
                       out->filter_h <= MAX_SIDE && out->filter_w <= MAX_SIDE;
    const int n = b->linear_out.c;
    out->n_filters = n < DT_LEARNED_MAX_FILTERS ? n : DT_LEARNED_MAX_FILTERS;
    return shown;
}

static enum dt_status take_filters(const struct dt_inference *inference, struct dt_learned *out)
{
    const struct dt_model *model = &inference->model;
    if (!find_filters(model, out)) {
        return DT_OK;
    }
    const size_t n = (size_t)out->n_filters * (size_t)(out->filter_c * out->filter_h * out->filter_w);
    const float *weights = inference->network->params + model->params[model->blocks[0].weight].offset;
    out->filters = calloc(n, sizeof(float));
    return out->filters != NULL ? inference->backend->ops->copy_out(inference->backend, out->filters, weights, n * sizeof(float))
                                : no_memory();
}

static enum dt_status ask(struct dt_world *world, struct dt_inference *inference, const char *data, struct dt_learned *out)
{
    struct dt_evaluator evaluator = {0};
    if (inference->config.model.loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY) {
        return dt_error(DT_CONFIG, "the model knows no classes");
    }
    out->n_classes = inference->model.n_outputs;
    DT_TRY(dt_data_spec_set_dir(&inference->config.data, data));
    DT_TRY(dt_evaluator_open(world, &inference->config.data, inference->network, &evaluator));
    float *logits = calloc((size_t)BATCH * (size_t)out->n_classes, sizeof *logits);
    out->confusion = calloc((size_t)out->n_classes * (size_t)out->n_classes, sizeof *out->confusion);
    enum dt_status s = logits != NULL && out->confusion != NULL ? take_answers(&evaluator, logits, out) : no_memory();
    s = s == DT_OK ? take_images(&evaluator.data.samples, out) : s;
    s = s == DT_OK ? take_filters(inference, out) : s;
    free(logits);
    dt_evaluator_close(&evaluator);
    return s;
}

static enum dt_status find(const struct dt_record *r, const char *data, struct dt_learned *out)
{
    struct dt_world alone = {.size = 1, .local_size = 1};
    struct dt_inference inference;
    char path[DT_CHECKPOINT_PATH_SIZE];
    DT_TRY(find_checkpoint(r, path));
    DT_TRY(dt_inference_open(&alone, &(struct dt_trained){.file = path}, 1, BATCH, &inference));
    const enum dt_status s = ask(&alone, &inference, data, out);
    dt_inference_close(&inference);
    return s;
}

enum dt_status dt_learned_find(const struct dt_record *r, const char *data, struct dt_learned *out)
{
    *out = (struct dt_learned){.why_not = ""};
    const enum dt_status s = find(r, data, out);
    if (s == DT_OK || s == DT_NO_MEMORY || data != NULL) {
        return s;
    }
    snprintf(out->why_not, sizeof out->why_not, "%s", dt_error_text());
    dt_error_clear();
    return DT_OK;
}
