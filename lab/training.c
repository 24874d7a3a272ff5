#include "lab/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/network.h"

enum dt_status dt_lab_need_ranks(const struct dt_world *world, const char *lesson, int n)
{
    if (world->size == n) {
        return DT_OK;
    }
    return dt_error_agreed(
        dt_error(DT_CONFIG, "lab %s: it takes %d ranks, not %d (mpirun -np %d dtrain lab %s)",
                 lesson, n, world->size, n, lesson));
}

static enum dt_status open_parts(const struct dt_lab_network_spec *spec, struct dt_lab_network *out)
{
    struct dt_strategy_spec strategy = {.dist = {.average = spec->average,
                                                 .broadcast = true,
                                                 .overlap = true,
                                                 .bucket_bytes = 1 << 20},
                                        .optimizer = spec->optimizer,
                                        .model = &out->model,
                                        .comm = spec->comm};
    strategy.dist = spec->dist != NULL ? *spec->dist : strategy.dist;
    strategy.dist.rows = &dt_all_entries;
    DT_TRY(dt_model_lower(spec->model, &out->model));
    DT_TRY(dt_cpu_backend.open(&(struct dt_backend_options){.n_threads = 1}, &out->backend));
    strategy.backend = out->backend;
    DT_TRY(dt_strategy_open(&strategy, &out->strategy));
    if (out->strategy == NULL) { /* another rank failed: dt_world_agree tells this one */
        return DT_OK;
    }
    DT_TRY(dt_network_open(&out->model, out->backend, spec->capacity, &out->strategy->memory, false,
                           &out->network));
    return out->backend->ops->samples_open(out->backend, spec->samples, &out->bound);
}

enum dt_status dt_lab_network_open(const struct dt_lab_network_spec *spec,
                                   struct dt_lab_network *out)
{
    *out = (struct dt_lab_network){.backend = NULL};
    const enum dt_status s = open_parts(spec, out);
    if (s != DT_OK) {
        dt_lab_network_close(out);
    }
    return s;
}

void dt_lab_network_close(struct dt_lab_network *n)
{
    if (n->backend == NULL) {
        return;
    }
    if (n->bound != NULL) {
        n->backend->ops->samples_close(n->backend, n->bound);
    }
    dt_network_close(n->network);
    dt_strategy_close(n->strategy);
    n->backend->ops->close(n->backend);
    *n = (struct dt_lab_network){.backend = NULL};
}

static size_t offset_of(const struct dt_lab_network *n, const char *name)
{
    int i = 0;
    while (strcmp(n->model.params[i].name, name) != 0) {
        i++;
    }
    return n->model.params[i].offset;
}

float *dt_lab_param(struct dt_lab_network *n, const char *name)
{
    return n->network->params + offset_of(n, name);
}

const float *dt_lab_grad(const struct dt_lab_network *n, const char *name)
{
    const struct dt_allreduce *allreduce = n->strategy->allreduce;
    return (allreduce != NULL ? allreduce->total : n->network->grads) + offset_of(n, name);
}

enum dt_status dt_lab_pass(struct dt_lab_network *n, const struct dt_batch *batch, bool accumulate,
                           struct dt_strategy_step *step)
{
    struct dt_pass pass = {.batch = batch, .training = true, .accumulate = accumulate, .seed = 1};
    DT_TRY(dt_network_gather(n->network, n->bound, batch));
    DT_TRY(dt_network_forward(n->network, &pass));
    DT_TRY(dt_network_loss(n->network, n->bound, &pass));
    return step != NULL ? dt_strategy_backward(step, n->network, &pass)
                        : dt_network_backward(n->network, &pass, NULL, NULL);
}

enum dt_status dt_lab_pass_sum(struct dt_lab_network *n, const struct dt_batch *batch,
                               struct dt_strategy_step *step)
{
    const struct dt_block *last = &n->model.blocks[n->model.n_blocks - 1];
    struct dt_pass pass = {.batch = batch, .training = true};
    DT_TRY(dt_network_gather(n->network, n->bound, batch));
    DT_TRY(dt_network_forward(n->network, &pass));
    for (size_t i = 0; i < (size_t)batch->n * dt_shape_elems(last->out); i++) {
        dt_network_dlogits(n->network)[i] = 1;
    }
    return dt_strategy_backward(step, n->network, &pass);
}

static enum dt_status evaluate(struct dt_lab_network *n, struct dt_bound_samples *bound,
                               uint32_t n_samples, uint32_t *rows)
{
    for (uint32_t begin = 0; begin < n_samples; begin += (uint32_t)n->network->capacity) {
        struct dt_batch batch = {.n = 0, .rows = rows, .ids = rows};
        while (batch.n < n->network->capacity && begin + (uint32_t)batch.n < n_samples) {
            rows[batch.n] = begin + (uint32_t)batch.n;
            batch.n++;
        }
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY(dt_network_gather(n->network, bound, &batch));
        DT_TRY(dt_network_forward(n->network, &pass));
        DT_TRY(dt_network_loss(n->network, bound, &pass));
    }
    return DT_OK;
}

enum dt_status dt_lab_evaluate(struct dt_lab_network *n, const struct dt_samples *samples,
                               struct dt_metrics *out)
{
    const struct dt_backend_ops *ops = n->backend->ops;
    struct dt_bound_samples *bound = NULL;
    uint32_t *rows = calloc((size_t)n->network->capacity, sizeof *rows);
    if (rows == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a batch");
    }
    enum dt_status s;
    DT_TRY_GOTO(s, ops->metrics_take(n->backend, out), done);
    DT_TRY_GOTO(s, ops->samples_open(n->backend, samples, &bound), done);
    s = evaluate(n, bound, (uint32_t)samples->n, rows);
    ops->samples_close(n->backend, bound);
    DT_TRY_GOTO(s, s, done);
    s = ops->metrics_take(n->backend, out);
done:
    free(rows);
    return s;
}

/* ---- images */

#define SIDE 28

const struct dt_model_spec dt_lab_softmax_regression = {
    .input = {1, SIDE, SIDE},
    .n_layers = 2,
    .layers = {{.type = DT_LAYER_FLATTEN}, {.type = DT_LAYER_DENSE, .size = DT_LAB_CLASSES}},
    .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};

enum dt_status dt_lab_images_open(int n_test, uint64_t seed, struct dt_lab_images *out)
{
    const struct dt_data_spec spec = {.row = &dt_synthetic_data,
                                      .n_train = DT_LAB_N_TRAIN,
                                      .n_test = (size_t)n_test,
                                      .noise = 0.5,
                                      .seed = seed,
                                      .shape = {1, SIDE, SIDE},
                                      .n_classes = DT_LAB_CLASSES};
    *out = (struct dt_lab_images){0};
    DT_TRY(dt_dataset_open(&spec, DT_SPLIT_TRAIN,
                           (struct dt_owned){.n = DT_LAB_N_TRAIN, .stride = 1}, &out->train));
    const enum dt_status s = dt_dataset_open(
        &spec, DT_SPLIT_TEST, (struct dt_owned){.n = (size_t)n_test, .stride = 1}, &out->test);
    if (s != DT_OK) {
        dt_lab_images_close(out);
    }
    return s;
}

void dt_lab_images_close(struct dt_lab_images *images)
{
    dt_dataset_close(&images->train);
    dt_dataset_close(&images->test);
    *images = (struct dt_lab_images){0};
}

/* ---- a training */

static enum dt_status open_loaders(struct dt_lab_run *run)
{
    for (int rank = 0; rank < run->training.shard.size; rank++) {
        struct dt_shard shard = run->training.shard;
        shard.rank = rank;
        DT_TRY(dt_loader_open(&shard, &run->loaders[rank]));
    }
    return DT_OK;
}

static int largest_batch(const struct dt_shard *shard)
{
    int most = 1;
    for (int rank = 0; rank < shard->size; rank++) {
        struct dt_shard other = *shard;
        other.rank = rank;
        const int n = dt_shard_capacity(&other);
        most = n > most ? n : most;
    }
    return most;
}

enum dt_status dt_lab_run_open(const struct dt_lab_training *training, struct dt_lab_run *out)
{
    enum dt_status s;
    *out = (struct dt_lab_run){.training = *training};
    DT_TRY(dt_comm_open_self(&out->self));
    const struct dt_lab_network_spec spec = {
        .model = &dt_lab_softmax_regression,
        .samples = training->samples,
        .comm = out->self,
        .capacity = largest_batch(&training->shard),
        .optimizer = {.type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}};
    DT_TRY_GOTO(s, open_loaders(out), fail);
    DT_TRY_GOTO(s, dt_lab_network_open(&spec, &out->net), fail);
    return DT_OK;
fail:
    dt_lab_run_close(out);
    return s;
}

void dt_lab_run_close(struct dt_lab_run *run)
{
    dt_lab_network_close(&run->net);
    for (int rank = 0; rank < DT_LAB_MAX_RANKS; rank++) {
        dt_loader_close(&run->loaders[rank]);
    }
    if (run->self != NULL) {
        dt_comm_close(run->self);
    }
    *run = (struct dt_lab_run){.self = NULL};
}

/* All samples are in memory, so a sample's row is its number. */
static struct dt_batch batch_of(struct dt_lab_run *run, int rank, uint32_t epoch, uint64_t step)
{
    struct dt_batch batch = dt_loader_batch(&run->loaders[rank], epoch, step);
    batch.rows = batch.ids;
    return batch;
}

enum dt_status dt_lab_run_step(struct dt_lab_run *run, uint32_t epoch, uint64_t step,
                               size_t *n_samples)
{
    const int only = run->training.only, first = only >= 0 ? only : 0,
              last = only >= 0 ? only : run->training.shard.size - 1;
    const size_t all = dt_shard_step_samples(&run->training.shard, step);
    const struct dt_batch own = batch_of(run, first, epoch, step);
    *n_samples = only >= 0 ? (size_t)own.n : all;
    const double rate = dt_lr_schedule_at(&run->training.schedule,
                                          epoch * run->training.schedule.steps_per_epoch + step);
    const struct dt_update update =
        dt_strategy_next_update(run->net.strategy, rate, *n_samples, *n_samples);
    struct dt_strategy_step under_way = dt_strategy_start(run->net.strategy, &update);
    for (int rank = first; rank <= last; rank++) {
        const struct dt_batch batch = batch_of(run, rank, epoch, step);
        DT_TRY(dt_lab_pass(&run->net, &batch, rank > first, rank == last ? &under_way : NULL));
    }
    return dt_strategy_finish(&under_way);
}

/* Counts a rank's uses of each sample; returns how many labels it sees. */
static int count_uses(struct dt_lab_run *run, int rank, int *times)
{
    bool seen[DT_LAB_CLASSES] = {false};
    int n_labels = 0;
    for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&run->training.shard); step++) {
        const struct dt_batch batch = dt_loader_batch(&run->loaders[rank], 0, step);
        for (int i = 0; i < batch.n; i++) {
            const int label = run->training.samples->labels[batch.ids[i]];
            times[batch.ids[i]]++;
            n_labels += !seen[label];
            seen[label] = true;
        }
    }
    return n_labels;
}

void dt_lab_run_uses(struct dt_lab_run *run, struct dt_lab_uses *out)
{
    int times[DT_LAB_N_TRAIN] = {0};
    *out = (struct dt_lab_uses){.n_labels = 0};
    for (int rank = 0; rank < run->training.shard.size; rank++) {
        const int n_labels = count_uses(run, rank, times);
        out->n_labels = n_labels > out->n_labels ? n_labels : out->n_labels;
    }
    out->least = out->most = times[0];
    for (int i = 1; i < DT_LAB_N_TRAIN; i++) {
        out->least = times[i] < out->least ? times[i] : out->least;
        out->most = times[i] > out->most ? times[i] : out->most;
    }
}

enum dt_status dt_lab_run_accuracy(struct dt_lab_run *run, const struct dt_samples *samples,
                                   double *out)
{
    struct dt_metrics metrics;
    DT_TRY(dt_lab_evaluate(&run->net, samples, &metrics));
    *out = metrics.n_correct / metrics.n_samples;
    return DT_OK;
}

/* ---- several seeds */

enum { MOST_POINTS = 16 }; /* of a line of means */

struct dt_lab_mean dt_lab_mean(int n, const double *results)
{
    static const double t[DT_LAB_MOST_SEEDS + 1] = {[2] = 12.706, 4.303, 3.182, 2.776, 2.571,
                                                    2.447,        2.365, 2.306, 2.262};
    double mean = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        mean += results[i] / n;
    }
    for (int i = 0; i < n; i++) {
        squares += (results[i] - mean) * (results[i] - mean);
    }
    return (struct dt_lab_mean){mean, t[n] * sqrt(squares / (n - 1) / n)};
}

int dt_lab_compare(int n, const double *a, const double *b)
{
    double differences[DT_LAB_MOST_SEEDS];
    for (int i = 0; i < n; i++) {
        differences[i] = a[i] - b[i];
    }
    const struct dt_lab_mean d = dt_lab_mean(n, differences);
    return d.mean > d.margin ? 1 : d.mean < -d.margin ? -1 : 0;
}

void dt_lab_plot(struct dt_part *series, const char *name, int n, const double *x,
                 const struct dt_lab_mean *means)
{
    double y[MOST_POINTS], low[MOST_POINTS], high[MOST_POINTS];
    for (int i = 0; i < n; i++) {
        y[i] = means[i].mean;
        low[i] = means[i].mean - means[i].margin;
        high[i] = means[i].mean + means[i].margin;
    }
    dt_doc_line(series, &(struct dt_line){name, DT_LINE_AND_DOTS, (size_t)n, x, y, low, high, 0});
}

/* ---- points of a line */

const struct dt_model_spec dt_lab_line_model = {.input = {1, 1, 1},
                                                .n_layers = 1,
                                                .layers = {{.type = DT_LAYER_DENSE, .size = 1}},
                                                .loss = DT_LOSS_MEAN_SQUARED_ERROR};

enum dt_status dt_lab_points_open(struct dt_owned owned, struct dt_dataset *out)
{
    const struct dt_data_spec spec = {.row = &dt_linear_data,
                                      .n_train = DT_LAB_N_POINTS,
                                      .n_test = 1,
                                      .slope = 2,
                                      .intercept = 2.4,
                                      .noise = 0.75,
                                      .seed = 157,
                                      .shape = {1, 1, 1},
                                      .n_targets = 1};
    return dt_dataset_open(&spec, DT_SPLIT_TRAIN, owned, out);
}

enum dt_status dt_lab_line_run(enum dt_status (*use)(struct dt_lab_network *network,
                                                     const struct dt_samples *points,
                                                     void *context),
                               void *context)
{
    struct dt_dataset points;
    struct dt_lab_network network;
    struct dt_comm *self;
    enum dt_status s;
    DT_TRY(dt_lab_points_open((struct dt_owned){.n = DT_LAB_N_POINTS, .stride = 1}, &points));
    DT_TRY_GOTO(s, dt_comm_open_self(&self), close_points);
    const struct dt_lab_network_spec spec = {.model = &dt_lab_line_model,
                                             .samples = &points.samples,
                                             .comm = self,
                                             .capacity = DT_LAB_N_POINTS};
    DT_TRY_GOTO(s, dt_lab_network_open(&spec, &network), close_comm);
    s = use(&network, &points.samples, context);
    dt_lab_network_close(&network);
close_comm:
    dt_comm_close(self);
close_points:
    dt_dataset_close(&points);
    return s;
}
