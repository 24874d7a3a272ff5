/* A distributed trainer in one function after another: a small convolutional network learns MNIST,
 * or generated images, on any number of ranks. Each rank has the whole network (mirrored weights)
 * and its share of the samples; gradients are added along a ring. docs/reading.md lists every file
 * that this program is made of, in reading order.
 *
 *   mpirun -np 4 build/release/evening --data data/mnist
 *
 * usage: evening [--data DIR | --images N] [--weights FILE]
 * DIR has IDX files, raw or gzip. Without --data it generates N images. FILE gets the weights as
 * floats, in PyTorch's order. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/strategy/strategies.h"
#include "train/evaluate.h"

#define SEED 1
#define BATCH 32 /* samples of a rank's step */

/* ---- the configuration */

static const struct dt_model_spec layers = {
    .input = {1, 28, 28},
    .n_layers = 9,
    .layers = {{DT_LAYER_CONV2D, .size = 8, .kernel = 3, .stride = 1},
               {DT_LAYER_RELU},
               {DT_LAYER_CONV2D, .size = 16, .kernel = 3, .stride = 1},
               {DT_LAYER_RELU},
               {DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
               {DT_LAYER_FLATTEN},
               {DT_LAYER_DENSE, .size = 64},
               {DT_LAYER_RELU},
               {DT_LAYER_DENSE, .size = 10}},
    .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
static const struct dt_optimizer_spec adam = {
    .type = DT_OPTIMIZER_ADAM, .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
static struct dt_data_spec data = {
    .row = &dt_synthetic_data, .n_train = 2000, .n_test = 500, .noise = 0.1};

/* Gradients are added by a schedule of messages, which is the ring's. */
static const struct dt_allreduce_entry *const allreduces[] = {&dt_scheduled_allreduce, NULL};
static const struct dt_algorithm ring = {"ring", .n_rounds = dt_ring_n_rounds,
                                         .round = dt_ring_round, .formula = dt_ring_formula};
static const struct dt_dist_entries rows = {.allreduce = {allreduces, &ring, .n_algorithms = 1}};
/* A bucket for every block, on its way while the backward pass goes on. */
static const struct dt_dist_spec dist = {
    .rows = &rows, .allreduce = DT_ALLREDUCE_RING, .average = true, .overlap = true};

/* ---- the training */

static struct dt_world world;
static struct dt_model model;
static struct dt_backend *backend;
static struct dt_strategy *strategy; /* has weights, gradients and the optimizer */
static struct dt_network *network;   /* borrows them */
static struct dt_sample_set set;     /* to train with: this rank's share */
static struct dt_evaluator evaluator;

/* Rank 0 speaks for all. */
#define TELL(...) (void)(world.rank == 0 && printf(__VA_ARGS__) > 0)

/* What reads files is agreed on, so that all ranks end with one error. All begin with rank 0's
 * weights. */
static enum dt_status open_all(void)
{
    const struct dt_backend_options options = {.n_threads = 1};
    const struct dt_shard share = {.seed = SEED,
                                   .global_batch = BATCH * (size_t)world.size,
                                   .rank = world.rank,
                                   .size = world.size,
                                   .shuffle = true};
    struct dt_strategy_spec spec = {
        .dist = dist, .optimizer = adam, .model = &model, .comm = world.comm, .capacity = BATCH};
    DT_TRY(dt_model_lower(&layers, &model));
    data.shape = model.spec.input;
    data.n_classes = model.n_outputs;
    DT_TRY(dt_ref_backend.open(&options, &backend));
    DT_TRY(
        dt_world_agree(&world, dt_sample_set_open(&data, DT_SPLIT_TRAIN, &share, backend, &set)));
    spec.backend = backend;
    DT_TRY(dt_mirrored_strategy.open(&spec, &strategy));
    DT_TRY(dt_network_open(&model, backend, BATCH, &strategy->memory, false, &network));
    DT_TRY(dt_world_agree(&world, dt_evaluator_open(&world, &data, network, &evaluator)));
    dt_model_init(&model, SEED, network->params);
    return dt_strategy_broadcast(strategy);
}

/* Forward, loss, backward; each bucket of gradients is on its way around the ring as soon as the
 * backward pass has made it. The step is taken with the mean over all ranks' samples, at a rate for
 * that many. */
static enum dt_status take_step(uint64_t number, struct dt_metrics *train)
{
    const struct dt_batch batch = dt_loader_batch(&set.loader, 0, number);
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = SEED};
    const size_t n_global = dt_shard_step_samples(&set.loader.shard, number);
    const struct dt_update update =
        dt_strategy_next_update(strategy, adam.lr * world.size, n_global, (size_t)batch.n);
    struct dt_strategy_step step = dt_strategy_start(strategy, &update);
    DT_TRY(dt_network_gather(network, set.samples, &batch));
    DT_TRY(dt_strategy_forward(&step, network, &pass));
    DT_TRY(dt_network_loss(network, set.samples, &pass));
    DT_TRY(dt_strategy_backward(&step, network, &pass));
    DT_TRY(dt_strategy_finish(&step));
    DT_TRY(backend->ops->metrics_take(backend, train));
    return dt_comm_allreduce(world.comm, train, 3, DT_TYPE_F64, DT_REDUCE_SUM, "sum of the loss");
}

/* Each bucket, here weight and bias of a block, takes a rank 2 (n - 1) messages around
 * the ring in a step. */
static enum dt_status train_epoch(void)
{
    const int n = world.size, n_buckets = model.n_params / 2,
              n_steps = (int)dt_shard_steps_per_epoch(&set.loader.shard);
    struct dt_wire_sent sent;
    struct dt_metrics train, test;
    TELL("%d ranks x %d = %d images a step, %d steps for %zu images\n", n, BATCH, n * BATCH,
         n_steps, set.loader.shard.n_total);
    TELL("rate %g x %d = %g, because a step has %d times as many images\n", adam.lr, n, adam.lr * n,
         n);
    TELL("%zu parameters on every rank\n", model.n_parameters);
    for (int step = 0; step < n_steps; step++) {
        DT_TRY(take_step((uint64_t)step, &train));
        if (step % 100 == 0 || step == n_steps - 1) {
            TELL("step %4d of %d  loss %.4f\n", step + 1, n_steps,
                 train.loss_sum / train.n_samples);
        }
    }
    DT_TRY(dt_evaluator_run(&evaluator, &test));
    TELL("test accuracy %.2f %% (%.0f/%.0f)\n", 100 * test.n_correct / test.n_samples,
         test.n_correct, test.n_samples);
    (void)dt_allreduce_sent(strategy->allreduce, &sent);
    TELL("messages of rank 0: %.0f, by the formula 2 (%d - 1) x %d buckets x %d steps = %d\n",
         (double)sent.all.messages, n, n_buckets, n_steps, 2 * (n - 1) * n_buckets * n_steps);
    return DT_OK;
}

static enum dt_status write_weights(const char *path)
{
    FILE *file = fopen(path, "wb");
    for (int p = 0; file != NULL && p < model.n_params; p++) {
        const struct dt_param *param = &model.params[p];
        for (size_t i = 0; i < param->n_elems; i++) {
            fwrite(&network->params[param->offset + dt_param_at(param, i)], 4, 1, file);
        }
    }
    return file != NULL && fclose(file) == 0 ? DT_OK : dt_error_errno(DT_IO, "%s", path);
}

int main(int argc, char **argv)
{
    const char *weights = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--data") == 0) {
            data = (struct dt_data_spec){.row = &dt_idx_data};
            snprintf(data.dir, sizeof data.dir, "%s", argv[i + 1]);
        } else if (strcmp(argv[i], "--images") == 0) {
            data.n_train = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--weights") == 0) {
            weights = argv[i + 1];
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* each line as it comes */
    MPI_Init(&argc, &argv);
    enum dt_status s = dt_world_join(&world, dt_comm_open_mpi);
    s = s == DT_OK ? open_all() : s;
    s = s == DT_OK ? train_epoch() : s;
    s = s == DT_OK && world.rank == 0 && weights != NULL ? write_weights(weights) : s;
    if (s != DT_OK) {
        fprintf(stderr, "evening: %s\n", dt_error_text());
        MPI_Abort(MPI_COMM_WORLD, (int)s);
    }
    dt_evaluator_close(&evaluator);
    dt_network_close(network);
    dt_strategy_close(strategy);
    dt_sample_set_close(&set, backend);
    backend->ops->close(backend);
    dt_world_leave(&world);
    MPI_Finalize();
    return 0;
}
