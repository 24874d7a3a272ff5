/* A distributed trainer in one function after another: a small convolutional network learns MNIST
 * on any number of ranks. Each rank has the whole network (mirrored weights) and its share of the
 * samples; gradients are added along a ring. docs/reading.md lists every file that this program is
 * made of, in reading order.
 *
 *   mpirun -np 4 build/release/evening data/mnist
 *
 * usage: evening DIR [WEIGHTS]
 * DIR has MNIST's four files, raw or gzip (scripts/get-data fetches them). The file WEIGHTS gets
 * the weights as floats, in PyTorch's order. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "data/shard.h"
#include "dist/strategy/strategy.h"

#define SEED 1
#define BATCH 32 /* samples of a rank's step */
#define SIDE 28  /* pixels of an image, in each direction */
#define N_CLASSES 10
#define N_METRICS (sizeof(struct dt_metrics) / sizeof(double))

/* The configuration: at the end of this file. */
static struct dt_model model;
static const struct dt_optimizer_spec adam;
static const struct dt_dist_spec dist;

/* A rank's share of the training or of the test samples. */
struct sample_set {
    struct dt_samples samples;
    struct dt_bound_samples *bound; /* the same, as the backend reads them */
    struct dt_loader loader;        /* selects the samples of each step */
};

static struct dt_comm *comm;         /* between the ranks */
static struct dt_backend *backend;   /* computes: here with plain loops */
static struct dt_strategy *strategy; /* has weights, gradients and the optimizer */
static struct dt_network *network;   /* borrows them */
static struct sample_set train_set, test_set;

static enum dt_status open_all(const char *dir);
static enum dt_status train_epoch(void);
static enum dt_status take_step(uint64_t number, struct dt_metrics *train);
static enum dt_status test_all(void);
static enum dt_status write_weights(const char *path);
static void close_all(void);

/* Rank 0 speaks for all. */
#define TELL(...) (void)(comm->rank == 0 && printf(__VA_ARGS__) > 0)

static enum dt_status run(const char *dir, const char *weights)
{
    DT_TRY(open_all(dir));
    DT_TRY(train_epoch());
    DT_TRY(test_all());
    return comm->rank == 0 && weights != NULL ? write_weights(weights) : DT_OK;
}

/* An error of one rank ends all ranks. */
int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* each line as it comes */
    MPI_Init(&argc, &argv);
    const enum dt_status s = argc > 1 ? run(argv[1], argc > 2 ? argv[2] : NULL)
                                      : dt_error(DT_USAGE, "usage: evening DIR [WEIGHTS]");
    if (s != DT_OK) {
        fprintf(stderr, "evening: %s\n", dt_error_text());
        MPI_Abort(MPI_COMM_WORLD, (int)s);
    }
    close_all();
    MPI_Finalize();
    return 0;
}

/* ---- an epoch */

/* A bucket has the gradients of one block. For each bucket a rank sends 2 (n - 1) messages around
 * the ring in a step. */
static enum dt_status train_epoch(void)
{
    const int n = comm->size, n_steps = (int)dt_shard_steps_per_epoch(&train_set.loader.shard);
    int n_buckets = 0;
    struct dt_wire_sent sent;
    struct dt_metrics train;
    for (int b = 0; b < model.n_blocks; b++) {
        n_buckets += model.blocks[b].grad_end > model.blocks[b].grad_begin;
    }
    TELL("%d ranks x %d = %d images a step, %d steps for %zu images\n", n, BATCH, n * BATCH,
         n_steps, train_set.samples.n_total);
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
    (void)dt_allreduce_sent(strategy->allreduce, &sent);
    TELL("messages of rank 0: %.0f, by the formula 2 (%d - 1) x %d buckets x %d steps = %d\n",
         (double)sent.all.messages, n, n_buckets, n_steps, 2 * (n - 1) * n_buckets * n_steps);
    return DT_OK;
}

/* ---- a step */

/* Reads the metrics since the last call, added over all ranks. */
static enum dt_status take_metrics(struct dt_metrics *out)
{
    DT_TRY(backend->ops->metrics_take(backend, out));
    return dt_comm_allreduce(comm, out, N_METRICS, DT_TYPE_F64, DT_REDUCE_SUM, "sum of the loss");
}

/* Forward, loss, backward; each bucket of gradients begins its way around the ring as soon as the
 * backward pass has made it. dt_strategy_finish waits for the sums and changes the weights, with
 * the mean over all ranks' samples and at a rate for that many. */
static enum dt_status take_step(uint64_t number, struct dt_metrics *train)
{
    const struct dt_batch batch = dt_loader_batch(&train_set.loader, 0, number);
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = SEED};
    const size_t n_global = dt_shard_step_samples(&train_set.loader.shard, number);
    const struct dt_update update =
        dt_strategy_next_update(strategy, adam.lr * comm->size, n_global, (size_t)batch.n);
    struct dt_strategy_step step = dt_strategy_start(strategy, &update);
    DT_TRY(dt_network_gather(network, train_set.bound, &batch));
    DT_TRY(dt_strategy_forward(&step, network, &pass));
    DT_TRY(dt_network_loss(network, train_set.bound, &pass));
    DT_TRY(dt_strategy_backward(&step, network, &pass));
    DT_TRY(dt_strategy_finish(&step));
    return take_metrics(train);
}

/* ---- the test */

/* Each rank counts the hits among its own test samples; the counts are added. */
static enum dt_status test_all(void)
{
    const uint64_t n_steps = dt_shard_steps_per_epoch(&test_set.loader.shard);
    struct dt_metrics test;
    for (uint64_t step = 0; step < n_steps; step++) {
        const struct dt_batch batch = dt_loader_batch(&test_set.loader, 0, step);
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY(dt_network_gather(network, test_set.bound, &batch));
        DT_TRY(dt_network_forward(network, &pass));
        DT_TRY(dt_network_loss(network, test_set.bound, &pass));
    }
    DT_TRY(take_metrics(&test));
    TELL("test accuracy %.2f %% (%.0f/%.0f)\n", 100 * test.n_correct / test.n_samples,
         test.n_correct, test.n_samples);
    return DT_OK;
}

/* ---- the samples */

/* An IDX file has a magic number, the number of items, and for images their rows and columns, as
 * big-endian numbers of 4 bytes; then the items. Reads this rank's, one after the other: rank r has
 * the items r, r + n, r + 2n, ... of n ranks. */
static enum dt_status read_items(const char *dir, const char *name, size_t n_item_bytes,
                                 size_t *n_total, uint8_t **items)
{
    uint8_t header[16], other[SIDE * SIDE];
    const int n_header = n_item_bytes > 1 ? 16 : 8, n_item = (int)n_item_bytes;
    const size_t rank = (size_t)comm->rank, size = (size_t)comm->size;
    char path[1024];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    gzFile file = gzopen(path, "rb"); /* which reads raw files, too */
    if (file == NULL) {
        snprintf(path, sizeof path, "%s/%s.gz", dir, name);
        file = gzopen(path, "rb");
    }
    if (file == NULL) {
        return dt_error_errno(DT_NO_INPUT, "%s", path);
    }
    if (gzread(file, header, (unsigned)n_header) == n_header) {
        n = (size_t)header[4] << 24 | (size_t)header[5] << 16 | (size_t)header[6] << 8 | header[7];
    }
    *n_total = n;
    *items = calloc(n / size + 1, n_item_bytes);
    bool whole = n > 0 && *items != NULL;
    for (size_t i = 0; whole && i < n; i++) {
        uint8_t *item = i % size == rank ? *items + i / size * n_item_bytes : other;
        whole = gzread(file, item, (unsigned)n_item) == n_item;
    }
    gzclose(file);
    return whole ? DT_OK : dt_error(DT_BAD_DATA, "%s: not a whole IDX file of MNIST", path);
}

static enum dt_status open_set(const char *dir, const char *images, const char *labels,
                               bool shuffle, struct sample_set *out)
{
    struct dt_shard shard = {.seed = SEED,
                             .global_batch = BATCH * (size_t)comm->size,
                             .rank = comm->rank,
                             .size = comm->size,
                             .shuffle = shuffle};
    uint8_t *pixels = NULL, *bytes = NULL;
    size_t n_labels = 0;
    DT_TRY(read_items(dir, images, SIDE * SIDE, &shard.n_total, &pixels));
    DT_TRY(read_items(dir, labels, 1, &n_labels, &bytes));
    const struct dt_owned owned = dt_shard_owned(&shard);
    uint16_t *classes = calloc(owned.n + 1, sizeof *classes);
    bool good = classes != NULL && n_labels == shard.n_total;
    for (size_t i = 0; good && i < owned.n; i++) {
        classes[i] = bytes[i];
        good = bytes[i] < N_CLASSES;
    }
    if (!good) {
        return dt_error(DT_BAD_DATA, "%s: %zu images, and %zu labels that do not fit them", dir,
                        shard.n_total, n_labels);
    }
    free(bytes);
    out->samples = (struct dt_samples){.n = owned.n,
                                       .shape = model.spec.input,
                                       .pixels = pixels,
                                       .scale = 1.0f / 255.0f,
                                       .labels = classes,
                                       .n_classes = N_CLASSES,
                                       .n_total = shard.n_total,
                                       .first_id = owned.first,
                                       .id_stride = owned.stride};
    DT_TRY(dt_loader_open(&shard, &out->loader));
    return backend->ops->samples_open(backend, &out->samples, &out->bound);
}

static void close_set(struct sample_set *set)
{
    backend->ops->samples_close(backend, set->bound);
    dt_loader_close(&set->loader);
    free((void *)set->samples.pixels);
    free((void *)set->samples.labels);
}

/* ---- begin and end */

/* Block b of the model. Convolutions have filters of 3 x 3 pixels, and none has zeros around it. */
static struct dt_block *set_block(int b, const char *name, enum dt_linear linear,
                                  struct dt_shape in, struct dt_shape out)
{
    struct dt_block *block = &model.blocks[b];
    *block = (struct dt_block){.in = in,
                               .linear = linear,
                               .kernel = linear == DT_LINEAR_CONV ? 3 : 0,
                               .stride = 1,
                               .linear_out = out,
                               .activation = DT_ACTIVATION_RELU,
                               .pool_out = out,
                               .out = out};
    snprintf(block->name, sizeof block->name, "%s", name);
    return block;
}

/* Two convolutions and two dense layers. The second convolution also pools, and flattens its image.
 * dtrain derives such blocks from a configuration's layers (model/lower.c). The first dense layer
 * reads an image, whose pixels lie in the order H W C. */
static enum dt_status open_model(void)
{
    const struct dt_shape image = model.spec.input, wide = {8, 26, 26}, deep = {16, 24, 24},
                          pooled = {16, 12, 12}, row = {16 * 12 * 12, 1, 1}, units = {64, 1, 1},
                          classes = {N_CLASSES, 1, 1};
    set_block(0, "conv1", DT_LINEAR_CONV, image, wide);
    struct dt_block *pool = set_block(1, "conv2", DT_LINEAR_CONV, wide, deep);
    pool->pool = DT_POOL_MAX;
    pool->pool_h = pool->pool_w = pool->pool_stride = 2;
    pool->pool_out = pooled;
    pool->flatten = true;
    pool->out = row;
    set_block(2, "fc1", DT_LINEAR_DENSE, row, units);
    set_block(3, "fc2", DT_LINEAR_DENSE, units, classes)->activation = DT_ACTIVATION_NONE;
    for (int b = 0; b < model.n_blocks; b++) {
        DT_TRY(dt_block_add_params(&model, &model.blocks[b], DT_INIT_AUTO));
    }
    model.params[model.blocks[2].weight].image = pooled;
    dt_model_place(&model);
    return DT_OK;
}

/* All ranks begin with rank 0's weights. */
static enum dt_status open_all(const char *dir)
{
    const struct dt_backend_options options = {.n_threads = 1};
    DT_TRY(dt_comm_open_mpi(&comm));
    DT_TRY(open_model());
    DT_TRY(dt_ref_backend.open(&options, &backend));
    DT_TRY(open_set(dir, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", true, &train_set));
    DT_TRY(open_set(dir, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", false, &test_set));
    const struct dt_strategy_spec spec = {.dist = dist,
                                          .optimizer = adam,
                                          .model = &model,
                                          .comm = comm,
                                          .backend = backend,
                                          .capacity = BATCH,
                                          .elementwise = true};
    DT_TRY(dt_mirrored_strategy.open(&spec, &strategy));
    DT_TRY(dt_network_open(&model, backend, BATCH, &strategy->memory, false, &network));
    dt_model_init(&model, SEED, network->params);
    return dt_strategy_broadcast(strategy);
}

static enum dt_status write_weights(const char *path)
{
    FILE *file = fopen(path, "wb");
    bool whole = file != NULL;
    for (int p = 0; whole && p < model.n_params; p++) {
        const struct dt_param *param = &model.params[p];
        for (size_t i = 0; i < param->n_elems; i++) {
            const float *weight = &network->params[param->offset + dt_param_at(param, i)];
            whole = fwrite(weight, sizeof *weight, 1, file) == 1 && whole;
        }
    }
    whole = file != NULL && fclose(file) == 0 && whole;
    return whole ? DT_OK : dt_error_errno(DT_IO, "%s", path);
}

static void close_all(void)
{
    dt_network_close(network);
    dt_strategy_close(strategy);
    close_set(&train_set);
    close_set(&test_set);
    backend->ops->close(backend);
    dt_comm_close(comm);
}

/* ---- the configuration */

static struct dt_model model = {
    .spec = {.input = {1, SIDE, SIDE}, .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY},
    .n_blocks = 4,
    .n_outputs = N_CLASSES};
static const struct dt_optimizer_spec adam = {
    .type = DT_OPTIMIZER_ADAM, .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

/* Gradients are added by a schedule of messages, which is the ring's. */
static const struct dt_allreduce_entry *const allreduces[] = {&dt_scheduled_allreduce, NULL};
static const struct dt_algorithm ring = {"ring", .n_rounds = dt_ring_n_rounds,
                                         .round = dt_ring_round, .formula = dt_ring_formula};
static const struct dt_dist_entries rows = {.allreduce = {allreduces, &ring, .n_algorithms = 1}};
/* A bucket for every block, on its way while the backward pass goes on. */
static const struct dt_dist_spec dist = {
    .rows = &rows, .allreduce = DT_ALLREDUCE_RING, .average = true, .overlap = true};
