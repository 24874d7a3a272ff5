/* A distributed trainer in one function after another: a small convolutional network learns MNIST,
 * or generated images, on any number of ranks. Each rank has the whole network (mirrored weights)
 * and its share of the samples; gradients are added along a ring. docs/reading.md lists every file
 * that this program is made of, in reading order.
 *
 *   gunzip -r data/mnist
 *   mpirun -np 4 build/release/evening --data data/mnist
 *
 * usage: evening [--data DIR | --images N] [--weights FILE]
 * DIR has raw IDX files. Without --data it generates N images. FILE gets the weights as floats, in
 * PyTorch's order.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "dist/ranks/world.h"
#include "dist/strategy/strategies.h"
#include "model/network.h"

#define SEED 1
#define BATCH 32 /* samples of a rank's step */

/* Conv-Conv-Pool-Dense: 149,418 parameters for images of 28 x 28. */
static const struct dt_model_spec network_spec = {
    .input = {1, 28, 28},
    .n_layers = 6,
    .layers = {{DT_LAYER_CONV2D, .size = 8, .kernel = 3, .stride = 1,
                .activation = DT_ACTIVATION_RELU},
               {DT_LAYER_CONV2D, .size = 16, .kernel = 3, .stride = 1,
                .activation = DT_ACTIVATION_RELU},
               {DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
               {DT_LAYER_FLATTEN},
               {DT_LAYER_DENSE, .size = 64, .activation = DT_ACTIVATION_RELU},
               {DT_LAYER_DENSE, .size = 10}},
    .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};

static const struct dt_optimizer_spec adam = {
    .type = DT_OPTIMIZER_ADAM, .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

/* The parts of dist/ that the program links. */
static const struct dt_strategy_row *const strategies[] = {&dt_mirrored_strategy, NULL};
static const struct dt_allreduce_row *const allreduces[] = {&dt_schedule_allreduce, NULL};
static const struct dt_algorithm algorithms[] = {{.name = "ring",
                                                  .n_rounds = dt_ring_n_rounds,
                                                  .round = dt_ring_round,
                                                  .formula = dt_ring_formula}};
static const struct dt_dist_rows rows = {
    .strategies = strategies,
    .allreduce = {.implementations = allreduces, .algorithms = algorithms, .n_algorithms = 1}};

static const struct dt_dist_spec ring = {.rows = &rows,
                                         .allreduce = DT_ALLREDUCE_RING,
                                         .average = true,
                                         .broadcast = true,
                                         .overlap = true,
                                         .bucket_bytes = 0}; /* a bucket for every block */

/* This rank's samples of a split, and the order in which it goes through them. */
struct part {
    struct dt_dataset data;
    struct dt_loader loader;
    struct dt_bound_samples *samples; /* where the backend finds them */
};

struct evening {
    struct dt_world world;
    struct dt_data_spec data;
    struct dt_model model;
    struct dt_backend *backend;
    struct dt_strategy *strategy; /* has weights, gradients and the optimizer */
    struct dt_network *network;
    struct part train, test;
    uint64_t n_steps; /* of the epoch */
    double lr;        /* for the batch of all ranks */
};

static enum dt_status open_part(struct evening *e, enum dt_split split, struct part *out)
{
    struct dt_shard shard = {.mode = DT_SHARDING_SHARD,
                             .seed = SEED,
                             .global_batch = BATCH * (size_t)e->world.size,
                             .rank = e->world.rank,
                             .size = e->world.size,
                             .shuffle = split == DT_SPLIT_TRAIN};
    DT_TRY(dt_dataset_count(&e->data, split, &shard.n_total));
    DT_TRY(dt_dataset_open(&e->data, split, dt_shard_owned(&shard), &out->data));
    DT_TRY(dt_loader_open(&shard, &out->loader));
    return e->backend->ops->samples_open(e->backend, &out->data.samples, &out->samples);
}

static enum dt_status open_parts(struct evening *e)
{
    const struct dt_backend_options options = {.n_threads = 1};
    DT_TRY(dt_model_lower(&network_spec, &e->model));
    e->data.shape = e->model.spec.input;
    e->data.n_classes = e->model.n_outputs;
    DT_TRY(dt_ref_backend.open(&options, &e->backend));
    DT_TRY(open_part(e, DT_SPLIT_TRAIN, &e->train));
    return open_part(e, DT_SPLIT_TEST, &e->test);
}

/* The strategy owns the weights, the network borrows them. All ranks begin with rank 0's. */
static enum dt_status open_training(struct evening *e)
{
    const struct dt_strategy_spec spec = {.dist = ring,
                                          .optimizer = adam,
                                          .model = &e->model,
                                          .comm = e->world.comm,
                                          .backend = e->backend,
                                          .capacity = BATCH};
    e->n_steps = dt_shard_steps_per_epoch(&e->train.loader.shard);
    e->lr = adam.lr * e->world.size;
    DT_TRY(dt_strategy_open(&spec, &e->strategy));
    DT_TRY(dt_network_open(&e->model, e->backend, BATCH, &e->strategy->memory, &e->network));
    dt_model_init(&e->model, SEED, e->network->params);
    return dt_strategy_broadcast(e->strategy);
}

/* Sums of all ranks. */
static enum dt_status add_metrics(struct evening *e, struct dt_metrics *m)
{
    double sums[] = {m->loss_sum, m->n_correct, m->n_samples};
    DT_TRY(dt_comm_allreduce(e->world.comm, sums, 3, DT_TYPE_F64, DT_REDUCE_SUM, "metrics"));
    *m = (struct dt_metrics){sums[0], sums[1], sums[2]};
    return DT_OK;
}

/* Forward, loss, backward; each bucket of gradients is on its way around the ring as soon as the
 * backward pass has made it. The step is taken with the mean over all ranks' samples. */
static enum dt_status take_step(struct evening *e, uint64_t number, struct dt_metrics *out)
{
    struct part *train = &e->train;
    const struct dt_batch batch = dt_loader_batch(&train->loader, 0, number);
    const size_t n_global = dt_shard_step_samples(&train->loader.shard, number);
    struct dt_update update = dt_strategy_next(e->strategy, e->lr, n_global, (size_t)batch.n);
    struct dt_strategy_step step = dt_strategy_begin(e->strategy, &update);
    struct dt_pass pass = {.batch = &batch, .training = true, .seed = SEED};
    DT_TRY(dt_network_gather(e->network, train->samples, &batch));
    DT_TRY(dt_strategy_forward(&step, e->network, &pass));
    DT_TRY(dt_network_loss(e->network, train->samples, &pass));
    DT_TRY(dt_strategy_backward(&step, e->network, &pass));
    DT_TRY(dt_strategy_wait(&step));
    DT_TRY(e->backend->ops->metrics_take(e->backend, out));
    return add_metrics(e, out);
}

static enum dt_status train_epoch(struct evening *e)
{
    const uint64_t n_steps = e->n_steps;
    const double start_s = dt_clock_s();
    struct dt_metrics m;
    for (uint64_t step = 0; step < n_steps; step++) {
        DT_TRY(take_step(e, step, &m));
        if (e->world.rank == 0 && (step % 100 == 0 || step == n_steps - 1)) {
            printf("step %4llu of %llu  loss %.4f  %.0f s\n", (unsigned long long)step + 1,
                   (unsigned long long)n_steps, m.loss_sum / m.n_samples, dt_clock_s() - start_s);
            fflush(stdout);
        }
    }
    return DT_OK;
}

static enum dt_status test(struct evening *e)
{
    struct part *part = &e->test;
    struct dt_metrics m;
    for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&part->loader.shard); step++) {
        const struct dt_batch batch = dt_loader_batch(&part->loader, 0, step);
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY(dt_network_gather(e->network, part->samples, &batch));
        DT_TRY(dt_network_forward(e->network, &pass));
        DT_TRY(dt_network_loss(e->network, part->samples, &pass));
    }
    DT_TRY(e->backend->ops->metrics_take(e->backend, &m));
    DT_TRY(add_metrics(e, &m));
    if (e->world.rank == 0) {
        printf("test accuracy %.2f %% (%.0f/%.0f)\n", 100 * m.n_correct / m.n_samples, m.n_correct,
               m.n_samples);
    }
    return DT_OK;
}

/* Each bucket (here the gradients of a block) takes a rank 2 (n - 1) messages around the ring. */
static enum dt_status compare_messages(struct evening *e)
{
    const double n = e->world.size, n_steps = (double)e->n_steps;
    struct dt_wire_sent sent = {0};
    int n_buckets = 0;
    for (int b = 0; b < e->model.n_blocks; b++) {
        n_buckets += e->model.blocks[b].grad_end > e->model.blocks[b].grad_begin;
    }
    (void)dt_allreduce_sent(e->strategy->allreduce, &sent);
    double counted = (double)sent.all.messages;
    DT_TRY(dt_comm_allreduce(e->world.comm, &counted, 1, DT_TYPE_F64, DT_REDUCE_SUM, "messages"));
    if (e->world.rank == 0) {
        printf("messages %.0f, by the formula %.0f ranks x 2 (%.0f - 1) x %d buckets x %.0f steps"
               " = %.0f\n",
               counted, n, n, n_buckets, n_steps, n * 2 * (n - 1) * n_buckets * n_steps);
    }
    return DT_OK;
}

/* Tensor after tensor in PyTorch's order. */
static enum dt_status write_weights(const struct evening *e, const char *path)
{
    FILE *file = path != NULL && e->world.rank == 0 ? fopen(path, "wb") : NULL;
    for (int p = 0; file != NULL && p < e->model.n_params; p++) {
        const struct dt_param *param = &e->model.params[p];
        for (size_t i = 0; i < param->n_elems; i++) {
            fwrite(e->network->params + param->offset + dt_param_at(param, i), 4, 1, file);
        }
    }
    return file != NULL && fclose(file) != 0 ? dt_error_errno(DT_IO, "%s", path) : DT_OK;
}

static void close_parts(struct evening *e)
{
    dt_network_close(e->network);
    dt_strategy_close(e->strategy);
    struct part *parts[] = {&e->train, &e->test};
    for (int i = 0; i < 2; i++) {
        e->backend->ops->samples_close(e->backend, parts[i]->samples);
        dt_loader_close(&parts[i]->loader);
        dt_dataset_close(&parts[i]->data);
    }
    e->backend->ops->close(e->backend);
    dt_world_leave(&e->world);
}

static void print_plan(const struct evening *e)
{
    const struct dt_shard *shard = &e->train.loader.shard;
    if (e->world.rank == 0) {
        printf("%d ranks x %d = %zu images a step, %llu steps for %zu images\n", shard->size, BATCH,
               shard->global_batch, (unsigned long long)e->n_steps, shard->n_total);
        printf("rate %g x %d = %g, because a step has %d times as many images\n", adam.lr,
               shard->size, e->lr, shard->size);
        printf("%zu parameters on every rank\n", e->model.n_parameters);
    }
}

static enum dt_status run(struct evening *e, const char *weights)
{
    DT_TRY(dt_world_agree(&e->world, open_parts(e)));
    DT_TRY(dt_world_agree(&e->world, open_training(e)));
    print_plan(e);
    DT_TRY(train_epoch(e));
    DT_TRY(test(e));
    DT_TRY(compare_messages(e));
    return dt_world_agree(&e->world, write_weights(e, weights));
}

int main(int argc, char **argv)
{
    struct evening e = {
        .data = {.format = DT_DATA_SYNTHETIC, .n_train = 2000, .n_test = 500, .noise = 0.1}};
    const char *weights = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--data") == 0) {
            e.data = (struct dt_data_spec){.format = DT_DATA_IDX};
            snprintf(e.data.dir, sizeof e.data.dir, "%s", argv[i + 1]);
        } else if (strcmp(argv[i], "--images") == 0) {
            e.data.n_train = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--weights") == 0) {
            weights = argv[i + 1];
        }
    }
    MPI_Init(&argc, &argv);
    enum dt_status s = dt_world_join(&e.world, dt_comm_open_mpi);
    s = s == DT_OK ? run(&e, weights) : s;
    if (s != DT_OK) {
        fprintf(stderr, "evening: %s\n", dt_error_text());
        MPI_Abort(MPI_COMM_WORLD, (int)s);
    }
    close_parts(&e);
    MPI_Finalize();
    return 0;
}
