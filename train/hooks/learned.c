#include "train/hooks/learned.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/network.h"
#include "train/events.h"
#include "train/trainer.h"

#define MAX_SIDE 64              /* of images and filters that are shown */
#define LOGITS_AT_ONCE (1 << 16) /* that are looked at together, or those of a sample */

/* ---- what is shown */

static bool shows_images(const struct dt_samples *samples)
{
    const struct dt_shape s = samples->shape;
    return samples->pixels != NULL && (s.c == 1 || s.c == 3) && s.h <= MAX_SIDE &&
           s.w <= MAX_SIDE && s.h * s.w > 1;
}

/* They travel as 64-bit numbers. */
static size_t n_image_words(const struct dt_learned *l)
{
    return (DT_LEARNED_WORST * dt_shape_elems(l->shape) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

/* The weights of a convolution, or of a dense layer that sees a grey image, as images. False: they
 * are none. */
static bool find_filters(const struct dt_model *model, struct dt_learned *out)
{
    const struct dt_block *b = &model->blocks[0];
    const struct dt_shape in = model->spec.input;
    const bool conv = b->linear == DT_LINEAR_CONV;
    out->filter_c = in.c;
    out->filter_h = conv ? b->kernel : in.h;
    out->filter_w = conv ? b->kernel : in.w;
    out->n_filters =
        b->linear_out.c < DT_LEARNED_MAX_FILTERS ? b->linear_out.c : DT_LEARNED_MAX_FILTERS;
    return (conv || b->linear == DT_LINEAR_DENSE) && (in.c == 1 || (in.c == 3 && conv)) &&
           out->filter_h > 1 && out->filter_h <= MAX_SIDE && out->filter_w <= MAX_SIDE;
}

static size_t n_filter_elems(const struct dt_learned *l)
{
    return (size_t)l->n_filters * (size_t)(l->filter_c * l->filter_h * l->filter_w);
}

static void *allocate(size_t n, size_t n_bytes, bool *complete)
{
    void *memory = calloc(n, n_bytes);
    *complete = *complete && memory != NULL;
    return memory;
}

/* ---- answers */

static void begin(struct dt_answers *answers)
{
    struct dt_learned *l = (struct dt_learned *)answers;
    l->n_worst = 0;
    l->answers.n_top5 = 0;
    memset(l->worst, 0, sizeof l->worst);
    if (l->confusion != NULL) {
        memset(l->confusion, 0, (size_t)l->n_classes * (size_t)l->n_classes * sizeof *l->confusion);
    }
}

/* As backends count what is right: of equal logits the first is the answer. */
static void answer(const float *logits, int n, int label, uint32_t id, struct dt_answer *out)
{
    DT_ASSERT(label >= 0 && label < n);
    int predicted = 0;
    double sum = 0;
    for (int k = 1; k < n; k++) {
        predicted = logits[k] > logits[predicted] ? k : predicted;
    }
    const double largest = (double)logits[predicted];
    for (int k = 0; k < n; k++) {
        sum += exp((double)logits[k] - largest);
    }
    memset(out, 0, sizeof *out); /* padding too: it travels */
    out->id = id;
    out->label = label;
    out->predicted = predicted;
    out->probability = 1 / sum;
    out->loss = largest + log(sum) - (double)logits[label];
}

/* Of equal logits the first class comes first, as in an answer; a NaN is never among them. */
static bool is_in_top5(const float *logits, int n, int label)
{
    int n_before = 0;
    for (int k = 0; k < n; k++) {
        const bool is_behind =
            logits[k] < logits[label] || (logits[k] == logits[label] && k >= label);
        n_before += !is_behind;
    }
    return n_before < DT_LEARNED_TOP;
}

static bool is_worse(const struct dt_answer *a, const struct dt_answer *b)
{
    return a->loss > b->loss || (a->loss == b->loss && a->id < b->id);
}

/* Among the worst so far, which stay sorted, if it is one of them. */
static void keep_worst(struct dt_learned *l, const struct dt_answer *a)
{
    DT_ASSERT(l->n_worst >= 0 && l->n_worst <= DT_LEARNED_WORST);
    int i = l->n_worst;
    while (i > 0 && is_worse(a, &l->worst[i - 1])) {
        i--;
    }
    if (i == DT_LEARNED_WORST) {
        return;
    }
    l->n_worst += l->n_worst < DT_LEARNED_WORST;
    memmove(&l->worst[i + 1], &l->worst[i], (size_t)(l->n_worst - 1 - i) * sizeof *a);
    l->worst[i] = *a;
    DT_ASSERT(i == 0 || !is_worse(a, &l->worst[i - 1]));
}

static enum dt_status take(struct dt_answers *answers, const struct dt_evaluator *e,
                           const struct dt_batch *batch)
{
    DT_ASSERT(batch->n <= e->network->capacity);
    struct dt_learned *l = (struct dt_learned *)answers;
    struct dt_network *network = e->network;
    const size_t n = (size_t)l->n_classes, n_rows = (size_t)l->n_rows;
    const float *logits = dt_network_logits(network);
    for (size_t i = 0; i < (size_t)batch->n && l->why_not[0] == '\0'; i++) {
        struct dt_answer a;
        if (i % n_rows == 0) {
            const size_t left = (size_t)batch->n - i, now = left < n_rows ? left : n_rows;
            DT_TRY(network->backend->ops->copy_out(network->backend, l->logits, logits + i * n,
                                                   now * n * sizeof *logits));
        }
        answer(l->logits + i % n_rows * n, (int)n, e->set.data.samples.labels[batch->rows[i]],
               batch->ids[i], &a);
        if (l->confusion != NULL) {
            l->confusion[(size_t)a.label * n + (size_t)a.predicted]++;
        }
        keep_worst(l, &a);
        if (dt_learned_has_top5(l)) {
            l->answers.n_top5 += is_in_top5(l->logits + i % n_rows * n, (int)n, a.label);
        }
    }
    return DT_OK;
}

/* ---- of all ranks */

static enum dt_status gather_worst(struct dt_learned *l, struct dt_world *world)
{
    struct dt_answer mine[DT_LEARNED_WORST];
    memcpy(mine, l->worst, sizeof mine);
    for (int i = l->n_worst; i < DT_LEARNED_WORST; i++) {
        mine[i].label = -1; /* none */
    }
    DT_TRY(dt_comm_allgather(world->comm, mine, l->others, sizeof mine,
                             "gathering of the worst test samples"));
    DT_ASSERT(memcmp(mine, l->others + world->rank * DT_LEARNED_WORST, sizeof mine) == 0);
    l->n_worst = 0;
    for (int i = 0; i < world->size * DT_LEARNED_WORST; i++) {
        if (l->others[i].label >= 0) {
            keep_worst(l, &l->others[i]);
        }
    }
    return DT_OK;
}

/* Each is with one rank; what the others add is zeros. */
static enum dt_status share_images(struct dt_learned *l, struct dt_world *world,
                                   const struct dt_samples *samples)
{
    const size_t n = dt_shape_elems(l->shape), n_words = n_image_words(l);
    if (l->images == NULL) {
        return DT_OK;
    }
    memset(l->images, 0, n_words * sizeof(uint64_t));
    for (int i = 0; i < l->n_worst; i++) {
        const uint32_t id = l->worst[i].id, at = id - samples->first_id;
        if (id >= samples->first_id && at % samples->id_stride == 0 &&
            at / samples->id_stride < samples->n) {
            memcpy(l->images + (size_t)i * n, samples->pixels + at / samples->id_stride * n, n);
        }
    }
    return dt_comm_allreduce(world->comm, l->images, n_words, DT_TYPE_U64, DT_REDUCE_SUM,
                             "sum of the worst test samples");
}

static enum dt_status take_filters(struct dt_learned *l, struct dt_network *network)
{
    DT_ASSERT(l->filters == NULL || network->model->blocks[0].weight != DT_NO_PARAM);
    const struct dt_model *model = network->model;
    struct dt_backend *backend = network->backend;
    return l->filters == NULL ? DT_OK
                              : backend->ops->copy_out(
                                    backend, l->filters,
                                    network->params + model->params[model->blocks[0].weight].offset,
                                    n_filter_elems(l) * sizeof *l->filters);
}

static enum dt_status end(struct dt_answers *answers, const struct dt_evaluator *e)
{
    struct dt_learned *l = (struct dt_learned *)answers;
    struct dt_world *world = e->world;
    const size_t n = (size_t)l->n_classes;
    if (l->why_not[0] != '\0') {
        return DT_OK;
    }
    if (l->confusion != NULL) {
        DT_TRY(dt_comm_allreduce(world->comm, l->confusion, n * n, DT_TYPE_F64, DT_REDUCE_SUM,
                                 "sum of the confusion matrices"));
    }
    DT_ASSERT(e->set.loader.shard.n_total >= e->set.data.samples.n);
    if (dt_learned_has_top5(l)) {
        DT_TRY(dt_comm_allreduce(world->comm, &l->answers.n_top5, 1, DT_TYPE_F64, DT_REDUCE_SUM,
                                 "sum of the top five"));
    }
    DT_TRY(gather_worst(l, world));
    DT_TRY(share_images(l, world, &e->set.data.samples));
    return take_filters(l, e->network);
}

/* ---- open and close */

static const struct dt_answers answers_ops = {.begin = begin, .take = take, .end = end};

enum dt_status dt_learned_open(struct dt_evaluator *e, struct dt_learned *out)
{
    const struct dt_model *model = e->network->model;
    const struct dt_samples *samples = &e->set.data.samples;
    const size_t n = (size_t)model->n_outputs;
    bool complete = true;
    *out = (struct dt_learned){
        .answers = answers_ops, .n_classes = model->n_outputs, .shape = samples->shape};
    e->answers = &out->answers;
    if (model->spec.loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY) {
        snprintf(out->why_not, sizeof out->why_not, "the model knows no classes");
        return DT_OK;
    }
    out->n_rows = n < LOGITS_AT_ONCE ? (int)(LOGITS_AT_ONCE / n) : 1;
    out->n_rows = out->n_rows < e->network->capacity ? out->n_rows : e->network->capacity;
    out->logits = allocate((size_t)out->n_rows * n, sizeof *out->logits, &complete);
    out->others =
        allocate((size_t)e->world->size * DT_LEARNED_WORST, sizeof *out->others, &complete);
    if (n <= DT_LEARNED_MAX_CLASSES) {
        out->confusion = allocate(n * n, sizeof *out->confusion, &complete);
    }
    if (shows_images(samples)) {
        out->images = allocate(n_image_words(out), sizeof(uint64_t), &complete);
    }
    if (e->set.data.class_names != NULL) {
        out->class_names = strdup(e->set.data.class_names);
        complete = complete && out->class_names != NULL;
    }
    if (find_filters(model, out)) {
        out->filters = allocate(n_filter_elems(out), sizeof *out->filters, &complete);
    }
    return complete
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "no memory for what the model says of the test samples");
}

void dt_learned_close(struct dt_learned *l)
{
    free(l->class_names);
    free(l->confusion);
    free(l->images);
    free(l->filters);
    free(l->logits);
    free(l->others);
    memset(l, 0, sizeof *l);
}

/* ---- of a training */

struct hook {
    struct dt_hook hook; /* first */
    struct dt_learned learned;
};

static enum dt_status end_epoch(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_epoch_event *event)
{
    (void)t;
    const bool evaluated = event->test.n_samples + event->validation.n_samples > 0;
    event->learned = evaluated ? &((struct hook *)hook)->learned : NULL;
    return DT_OK;
}

static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *event)
{
    (void)t;
    event->learned = status == DT_OK ? &((struct hook *)hook)->learned : NULL;
    return DT_OK;
}

static void close_hook(struct dt_hook *hook)
{
    dt_learned_close(&((struct hook *)hook)->learned);
    free(hook);
}

static const struct dt_hook_ops learned_hook_ops = {
    .epoch_end = end_epoch, .run_end = end_run, .close = close_hook};

enum dt_status dt_learned_hook(struct dt_trainer *t)
{
    struct hook *hook;
    const bool many = t->model.n_outputs > DT_LEARNED_FEW_CLASSES;
    if (!t->config.tensorboard && !t->config.report && !many) {
        return DT_OK;
    }
    DT_TRY(dt_hook_open(t, &learned_hook_ops, sizeof *hook, "answers to the test samples",
                        (void **)&hook));
    return dt_world_agree(t->world, dt_learned_open(&t->evaluator, &hook->learned));
}
