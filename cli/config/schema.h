/* Every key of the configuration, once: the parser, --help-config, --print-config and `help --json`
 * follow from this list, and from the last one the JSON Schema and docs/config.md.
 *
 * X(path, kind, field, values, default, when, meaning)
 *
 *   kind: BOOL, INT, REAL, TEXT, ENUM (field is an enum that counts from 0), SHAPE (model.input),
 *   LAYERS (model.layers), NAMES (of blocks or layers), AUTO (a word, of which the first is -1 in
 * the field, the next -2, or an integer), NORMALIZE and AUGMENT (pixels.c)
 *
 *   values: of INT, REAL, AUTO the interval, as mathematicians write it: "[0, 1)" holds 0 and not
 *   1; of ENUM the names, each behind a bar; of AUTO the interval and then its words
 *
 *   default: JSON without quotes; NULL: the key must be given; "": it may be absent, which the
 *   field shows as 0
 *
 *   when: "path=name", "path=name|name" or "path!=name": the key has a meaning only then, and
 *   giving it otherwise is an error; "" always */
#ifndef DT_CLI_CONFIG_SCHEMA_H
#define DT_CLI_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "cli/config/config.h"

#define DT_BAR_NAME(constant, name, ...) "|" name
#define DT_ANY_INT \
    "[0, 9007199254740991]"      /* 2^53 - 1: every integer up to here is exact in JSON's doubles */
#define DT_BETA "[0, 0.9999999]" /* the float next to 1 is 0.99999994 */

#define DT_IMAGES "data.format=idx|synthetic|cifar|npy|images"
#define DT_STOPS_EARLY "train.early_stopping.metric!=none"

#define DT_CONFIG_KEYS(X)                                                                          \
    X("data.format", ENUM, data.format, DT_DATA_FORMAT_LIST(DT_BAR_NAME), NULL, "",                \
      "idx: MNIST's four files; cifar: CIFAR-10's or -100's binary files; npy: NumPy's arrays; "   \
      "images: PNG, JPEG or PPM, a folder per class; synthetic: generated images; linear: y = "    \
      "slope * x + intercept")                                                                     \
    X("data.dir", TEXT, data.dir, "", "data/mnist", "",                                            \
      "folder of the files, raw or .gz, relative to the working directory; nothing generated "     \
      "reads it")                                                                                  \
    X("data.normalize", NORMALIZE, data.normalize, "[0, 1]", "", DT_IMAGES,                        \
      "pixels become (pixel / 255 - mean) / std, channel by channel; dataset: by the numbers of "  \
      "the training images, which the run's config.json and checkpoints then have")                \
    X("data.augment", AUGMENT, data.augment, "[1, 64]", "", DT_IMAGES,                             \
      "random changes of training images, in this order, other ones in each epoch: moved by up "   \
      "to so many pixels, mirrored left to right, cropped after so much black around them")        \
    X("data.sharding", ENUM, sharding, DT_SHARDING_LIST(DT_BAR_NAME), "shard", "",                 \
      "shard: each rank keeps its share; global: same batches at any -np; replicate: each goes "   \
      "through all")                                                                               \
    X("data.shuffle", BOOL, shuffle, "", "true", "", "a new order in every epoch")                 \
    X("data.train_samples", INT, data.n_train, "[0, 2147483647]", "0", "",                         \
      "use at most so many training samples; 0: all there are, or 6000 generated ones")            \
    X("data.test_samples", INT, data.n_test, "[0, 2147483647]", "0", "",                           \
      "use at most so many test samples; 0: all there are, or 1000 generated ones")                \
    X("data.validation", REAL, data.validation, "[0, 2147483647]", "", "",                         \
      "training samples to hold out, for early stopping, plateaus and the best checkpoint to go "  \
      "by: a share below 1, such as 0.1, or a number")                                             \
    X("data.slope", REAL, data.slope, "[-1e6, 1e6]", "2", "data.format=linear",                    \
      "the slope to be learned")                                                                   \
    X("data.intercept", REAL, data.intercept, "[-1e6, 1e6]", "1", "data.format=linear",            \
      "the intercept to be learned")                                                               \
    X("data.noise", REAL, data.noise, "[0, 1e6]", "0.1", "data.format=synthetic|linear",           \
      "standard deviation of the noise added to generated samples")                                \
    X("data.seed", INT, data.seed, DT_ANY_INT, "0", "data.format=synthetic|linear",                \
      "generated samples are a function of this alone")                                            \
    X("model.input", SHAPE, model.input, "[1, 65536]", NULL, "",                                   \
      "[channels, height, width] of an image, or [n] for n features")                              \
    X("model.layers", LAYERS, model.layers, "[1, 64]", NULL, "",                                   \
      "the layers in order; the last one gives the outputs")                                       \
    X("model.loss", ENUM, model.loss, DT_LOSS_LIST(DT_BAR_NAME), "softmax_cross_entropy", "",      \
      "cross-entropy of the softmax for classes; mean squared error for format linear")            \
    X("train.epochs", INT, epochs, "[1, 1000000]", "12", "", "times through the training samples") \
    X("train.max_steps", INT, max_steps, DT_ANY_INT, "0", "",                                      \
      "stop after so many steps in all; 0: no limit")                                              \
    X("train.seed", INT, seed, DT_ANY_INT, "1", "",                                                \
      "initial weights, batches and dropout are a function of this")                               \
    X("train.batch.per_rank", INT, batch_per_rank, "[1, 1048576]", "", "",                         \
      "samples per rank and step: the batch is this times the ranks; 128 when neither is given")   \
    X("train.batch.global", INT, batch_global, "[1, 1048576]", "", "",                             \
      "samples per step over all ranks, however many there are; the rate is then not scaled")      \
    X("train.accumulate", INT, accumulate, "[1, 65536]", "1", "",                                  \
      "gradient accumulation: micro-batches per step, to save memory")                             \
    X("train.optimizer.type", ENUM, optimizer.type, DT_OPTIMIZER_LIST(DT_BAR_NAME), "adam", "",    \
      "the rule of the update")                                                                    \
    X("train.optimizer.lr", REAL, optimizer.lr, "(0, 1e6]", "0.001", "",                           \
      "learning rate, before scaling and schedule")                                                \
    X("train.optimizer.momentum", REAL, optimizer.momentum, "[0, 1)", "0",                         \
      "train.optimizer.type=sgd", "share of the last update kept")                                 \
    X("train.optimizer.nesterov", BOOL, optimizer.nesterov, "", "false",                           \
      "train.optimizer.type=sgd", "look ahead; needs momentum > 0")                                \
    X("train.optimizer.beta1", REAL, optimizer.beta1, DT_BETA, "0.9",                              \
      "train.optimizer.type=adam|adamw", "decay of the mean of the gradients")                     \
    X("train.optimizer.beta2", REAL, optimizer.beta2, DT_BETA, "0.999",                            \
      "train.optimizer.type=adam|adamw", "decay of the mean of their squares")                     \
    X("train.optimizer.epsilon", REAL, optimizer.epsilon, "[1e-20, 1]", "1e-8",                    \
      "train.optimizer.type=adam|adamw", "added to the root of the mean square")                   \
    X("train.optimizer.weight_decay", REAL, optimizer.weight_decay, "[0, 1e6]", "0", "",           \
      "pull of the weights towards 0: in the gradient, with adamw beside it")                      \
    X("train.optimizer.clip_norm", REAL, optimizer.clip_norm, "[0, 1e6]", "0", "",                 \
      "clip the mean gradient to this global L2 norm; 0: off")                                     \
    X("train.lr_scaling", ENUM, lr_scaling, DT_LR_SCALING_LIST(DT_BAR_NAME), "linear", "",         \
      "the rate when batch is per_rank: none: unchanged; linear: times the ranks; sqrt: times "    \
      "their root")                                                                                \
    X("train.warmup_epochs", REAL, warmup_epochs, "[0, 1e6]", "0", "",                             \
      "epochs, also fractions, over which the rate grows from unscaled to scaled")                 \
    X("train.label_smoothing", REAL, model.label_smoothing, "[0, 1)", "0",                         \
      "model.loss=softmax_cross_entropy",                                                          \
      "share of each label that is spread over all classes, as in PyTorch; of the training loss "  \
      "alone: the test loss is plain cross-entropy")                                               \
    X("train.ema", REAL, ema, "[0, 1)", "0", "",                                                   \
      "decay of an average of the weights, such as 0.999, which is evaluated and saved beside "    \
      "them; 0: none. Metrics are of the weights; those that begin with ema_ are of the average")  \
    X("train.early_stopping.metric", ENUM, early_stopping.metric,                                  \
      DT_TEST_METRIC_LIST(DT_BAR_NAME), "none", "",                                                \
      "stop when this no longer improves from epoch to epoch; none: never")                        \
    X("train.early_stopping.patience", INT, early_stopping.patience, "[1, 1000000]", "3",          \
      DT_STOPS_EARLY, "after so many epochs without improvement")                                  \
    X("train.early_stopping.min_delta", REAL, early_stopping.min_delta, "[0, 1e6]", "0",           \
      DT_STOPS_EARLY, "only what is better than the best by more than this is an improvement")     \
    X("train.schedule.type", ENUM, schedule, DT_SCHEDULE_LIST(DT_BAR_NAME), "constant", "",        \
      "how the rate goes down; plateau: when a metric no longer improves")                         \
    X("train.schedule.step_epochs", REAL, schedule_step_epochs, "(0, 1e6]", "1",                   \
      "train.schedule.type=step", "epochs between two reductions")                                 \
    X("train.schedule.gamma", REAL, schedule_gamma, "(0, 1]", "0.1", "train.schedule.type=step",   \
      "what each multiplies the rate by")                                                          \
    X("train.schedule.metric", ENUM, plateau.metric, DT_TEST_METRIC_LIST(DT_BAR_NAME),             \
      "test_loss", "train.schedule.type=plateau",                                                  \
      "what has to improve from epoch to epoch; with data.validation validation_loss is the "      \
      "default")                                                                                   \
    X("train.schedule.factor", REAL, schedule_factor, "(0, 1)", "0.1",                             \
      "train.schedule.type=plateau", "what a plateau multiplies the rate by")                      \
    X("train.schedule.patience", INT, plateau.patience, "[1, 1000000]", "10",                      \
      "train.schedule.type=plateau", "epochs without improvement that are a plateau")              \
    X("train.schedule.min_delta", REAL, plateau.min_delta, "[0, 1e6]", "0.0001",                   \
      "train.schedule.type=plateau",                                                               \
      "only what is better than the best by more than this is an improvement")                     \
    X("train.schedule.min_lr", REAL, schedule_min_lr, "[0, 1e6]", "0",                             \
      "train.schedule.type=cosine|plateau", "cosine: rate at the end; plateau: it goes no lower")  \
    X("distributed.average", BOOL, dist.average, "", "true", "",                                   \
      "average gradients over the ranks; off: replicas drift apart")                               \
    X("distributed.broadcast", BOOL, dist.broadcast, "", "true", "",                               \
      "begin with rank 0's weights on every rank")                                                 \
    X("distributed.init_per_rank", BOOL, init_per_rank, "", "false", "",                           \
      "each rank draws other initial weights: shows what the broadcast is for")                    \
    X("distributed.strategy", ENUM, dist.strategy, DT_STRATEGY_LIST(DT_BAR_NAME), "allreduce", "", \
      "allreduce: every rank has the weights and steps; parameter_server: some ranks hold the "    \
      "weights and step for the others; "                                                          \
      "central: rank 0 does, and works too; pipeline: each rank has some of the layers")           \
    X("distributed.parameter_server.servers", INT, dist.servers, "[1, 1024]", "1",                 \
      "distributed.strategy=parameter_server",                                                     \
      "the last so many ranks are servers, each tensor whole on one of them; the others are "      \
      "workers")                                                                                   \
    X("distributed.parameter_server.mode", ENUM, dist.mode, DT_SERVER_MODE_LIST(DT_BAR_NAME),      \
      "sync", "distributed.strategy=parameter_server",                                             \
      "sync: a server adds the gradients of all workers and steps once; async: it steps with "     \
      "each worker's when they come, which is "                                                    \
      "not repeatable")                                                                            \
    X("distributed.parameter_server.max_staleness", INT, dist.max_staleness, "[0, 64]", "4",       \
      "distributed.strategy=parameter_server",                                                     \
      "async: steps that a worker may be ahead of the slowest")                                    \
    X("distributed.pipeline.schedule", ENUM, dist.schedule,                                        \
      DT_PIPELINE_SCHEDULE_LIST(DT_BAR_NAME), "1f1b", "distributed.strategy=pipeline",             \
      "gpipe: all micro-batches forward, then all backward; 1f1b: one forward, one backward, as "  \
      "soon as possible")                                                                          \
    X("distributed.pipeline.micro_batches", INT, dist.micro_batches, "[1, 1024]", "8",             \
      "distributed.strategy=pipeline", "parts of a batch, which several ranks work on at once")    \
    X("distributed.pipeline.cut", NAMES, dist.cut, "[0, 63]", "[]",                                \
      "distributed.strategy=pipeline",                                                             \
      "the blocks that the ranks behind the first begin with, such as [\"conv2\", \"fc1\"], by "   \
      "their names in dtrain plan; []: so that the largest part is small")                         \
    X("distributed.allreduce", ENUM, dist.allreduce, DT_ALLREDUCE_LIST(DT_BAR_NAME), "auto", "",   \
      "how gradients are added over the ranks; auto: nccl on GPUs, else shared_memory where a "    \
      "host's ranks have it, else mpi; "                                                           \
      "hierarchical: shared memory in each host, an algorithm between hosts; staged: from GPUs "   \
      "through host memory")                                                                       \
    X("distributed.across", ENUM, dist.across, DT_ALGORITHM_LIST(DT_BAR_NAME), "ring",             \
      "distributed.allreduce=hierarchical", "the algorithm between hosts")                         \
    X("distributed.compression.type", ENUM, dist.compression.type,                                 \
      DT_COMPRESSION_LIST(DT_BAR_NAME), "none", "",                                                \
      "what gradients are sent as: 16 bits (fp16, bf16), 8, the sign (onebit; of dense layers), "  \
      "the largest alone (topk)")                                                                  \
    X("distributed.compression.ratio", REAL, dist.compression.ratio, "(0, 1]", "0.01",             \
      "distributed.compression.type=topk", "share of the gradients that is sent")                  \
    X("distributed.compression.rounding", ENUM, dist.compression.rounding,                         \
      DT_ROUNDING_LIST(DT_BAR_NAME), "nearest", "distributed.compression.type=int8",               \
      "stochastic: up or down by chance, right on average (QSGD)")                                 \
    X("distributed.compression.error_feedback", BOOL, dist.compression.error_feedback, "", "true", \
      "distributed.compression.type=fp16|bf16|int8|onebit|topk",                                   \
      "what compression loses is added to the next step's gradients")                              \
    X("distributed.order", ENUM, dist.order, DT_ORDER_LIST(DT_BAR_NAME), "backward",               \
      "distributed.strategy=allreduce",                                                            \
      "backward: gradients travel as they are made, and a step ends when all weights are new; "    \
      "priority: those of the first layers "                                                       \
      "overtake, and the next forward pass waits for each layer's weights when it comes to it")    \
    X("distributed.deterministic", BOOL, dist.deterministic, "", "false", "",                      \
      "the same bits of weights at any number of ranks: gradients of leaves of the global batch "  \
      "are added as integers; needs data.sharding global and train.batch.global")                  \
    X("distributed.leaf", INT, dist.leaf, "[1, 4096]", "32", "distributed.deterministic=true",     \
      "samples of a leaf, whose gradient one rank computes as one batch")                          \
    X("distributed.overlap", BOOL, dist.overlap, "", "true", "",                                   \
      "send gradients while the backward pass still runs")                                         \
    X("distributed.bucket_mb", REAL, bucket_mb, "[0, 4096]", "1", "",                              \
      "MiB of gradients sent together; a bucket ends with a block; 0: every block by itself")      \
    X("distributed.check_every", INT, dist.check_every, DT_ANY_INT, "100", "",                     \
      "steps between comparisons of the replicas; 0: never")                                       \
    X("distributed.timeout_s", REAL, timeout_s, "[2, 3600]", "60", "",                             \
      "seconds until a collective counts as stalled")                                              \
    X("checkpoint.every_epochs", INT, checkpoint_every_epochs, "[0, 1000000]", "1", "",            \
      "epochs between checkpoints; 0: none before the end")                                        \
    X("checkpoint.every_steps", INT, checkpoint_every_steps, DT_ANY_INT, "0", "",                  \
      "steps between checkpoints; 0: only by epochs")                                              \
    X("checkpoint.keep", INT, checkpoint_keep, "[1, 1000000]", "2", "",                            \
      "how many of them stay; older ones are removed")                                             \
    X("checkpoint.best", ENUM, checkpoint_best, DT_TEST_METRIC_LIST(DT_BAR_NAME), "none", "",      \
      "keep checkpoints/best.safetensors, too: of the epoch in which this was best")               \
    X("log.every_s", REAL, log_every_s, "[0, 86400]", "10", "",                                    \
      "seconds between progress lines when stderr is no terminal; 0: none")                        \
    X("log.every_steps", AUTO, log_every_steps, DT_ANY_INT "|auto", "auto", "",                    \
      "steps between \"step\" records in metrics.jsonl; auto: every step at first, some hundreds " \
      "in a run; 0: none")                                                                         \
    X("log.audit", BOOL, log_audit, "", "false", "",                                               \
      "an \"audit\" record of every step in metrics.jsonl: which samples all ranks together used") \
    X("trace.steps", TEXT, trace_steps, "", "", "",                                                \
      "first:last, such as 10:30: steps of which trace.json tells what every rank did when")       \
    X("device", ENUM, device, DT_DEVICE_LIST(DT_BAR_NAME), "auto", "",                             \
      "cpu: vector kernels; ref: plain loops, slow, to compare with; cuda: a GPU; auto: a GPU if " \
      "every rank has one, else cpu")                                                              \
    X("precision", ENUM, precision, DT_PRECISION_LIST(DT_BAR_NAME), "f32", "",                     \
      "tf32: products of numbers with 10 bits of fraction, on GPUs; bf16: 7 bits, of activations " \
      "too on GPUs, and of the inputs of "                                                         \
      "convolutions forward on CPUs with AMX; weights and sums are always f32")                    \
    X("cuda.graph", BOOL, cuda_graph, "", "true", "",                                              \
      "record a step as a CUDA graph and launch that; off: call by call, to debug and to time "    \
      "its parts")                                                                                 \
    X("cuda.deterministic", BOOL, cuda_deterministic, "", "false", "",                             \
      "take cuDNN's first engine for a convolution instead of timing a few: the same bits in "     \
      "every run, which CPUs always give")                                                         \
    X("report", BOOL, report, "", "true", "",                                                      \
      "write report.html, a page about the run, into its folder when it ends")                     \
    X("tensorboard", BOOL, tensorboard, "", "false", "",                                           \
      "write events for TensorBoard into its folder: what metrics.jsonl has, histograms of "       \
      "weights and gradients, the confusion")                                                      \
    X("threads", INT, threads, "[0, 1024]", "0", "",                                               \
      "threads per rank; 0: the cores it may use, shared among the ranks of the host")

/* Keys of one layer, beside "type" and those of all, by the symbol in DT_LAYER_LIST; field is of
 * struct dt_layer_spec. */
#define DT_EXTENT "[1, 65536]"
#define DT_PLACE_KEYS(X)                                             \
    X("name", TEXT, name, "", "", "",                                \
      "for later layers to read; its tensors have it in files, too") \
    X("input", TEXT, input, "", "", "", "name of the layer that it reads; default: the one before")
#define DT_ACTIVATION_KEY(X)                                                       \
    X("activation", ENUM, activation, DT_ACTIVATION_LIST(DT_BAR_NAME), "none", "", \
      "function applied to the outputs")
#define DT_WEIGHTS_KEYS(X)                                       \
    DT_ACTIVATION_KEY(X)                                         \
    X("init", ENUM, init, DT_INIT_LIST(DT_BAR_NAME), "auto", "", \
      "initial weights; auto: he_uniform before relu, else glorot_uniform")
#define DT_KEYS_conv2d(X)                                                              \
    X("filters", INT, size, DT_EXTENT, NULL, "", "output channels")                    \
    X("kernel", INT, kernel, "[1, 1024]", NULL, "", "height and width of the window")  \
    X("stride", INT, stride, DT_EXTENT, "1", "", "step of the window")                 \
    X("padding", AUTO, padding, "[0, 512]|valid|same", "valid", "",                    \
      "valid: none; same: zeros as in TensorFlow, so that stride 1 keeps the size; a " \
      "number: so many zeros on each side, as in PyTorch")                             \
    DT_WEIGHTS_KEYS(X)
#define DT_KEYS_dense(X)                                  \
    X("units", INT, size, DT_EXTENT, NULL, "", "outputs") \
    DT_WEIGHTS_KEYS(X)
#define DT_KEYS_pool(X)                                                              \
    X("size", INT, size, DT_EXTENT, NULL, "",                                        \
      "height and width of the window; of max_pool2d at most 255 on the device cpu") \
    X("stride", INT, stride, DT_EXTENT, "", "", "step of the window; default: its size")
#define DT_KEYS_dropout(X) \
    X("rate", REAL, rate, "[0, 1)", NULL, "", "share of the units set to 0 in training")
#define DT_KEYS_global_pool(X)
#define DT_KEYS_flatten(X)
#define DT_KEYS_nonlinear(X)
#define DT_KEYS_batch_norm(X)                                                                \
    X("momentum", REAL, momentum, "(0, 1]", "0.1", "",                                       \
      "share of a batch in the running statistics, which replace the batch's in evaluation") \
    X("epsilon", REAL, epsilon, "(0, 1]", "1e-5", "", "added to the variance")               \
    X("sync", BOOL, sync, "", "false", "",                                                   \
      "statistics of all ranks' samples in training, not of each rank's own")                \
    DT_ACTIVATION_KEY(X)
#define DT_KEYS_add(X)                                                      \
    X("inputs", NAMES, inputs, "[1, 2]", "", "",                            \
      "names of two layers, or of one, which is added to the layer before") \
    DT_ACTIVATION_KEY(X)
#define DT_KEYS_concat(X)                                                                   \
    X("inputs", NAMES, inputs, "[1, 4]", "", "",                                            \
      "names of layers whose channels, or units, stand side by side; of one: behind those " \
      "of the layer before")                                                                \
    DT_ACTIVATION_KEY(X)
#define DT_KEYS_layer_norm(X)                                                  \
    X("epsilon", REAL, epsilon, "(0, 1]", "1e-5", "", "added to the variance") \
    DT_ACTIVATION_KEY(X)

enum dt_key_kind {
    DT_KEY_BOOL,
    DT_KEY_INT,
    DT_KEY_REAL,
    DT_KEY_TEXT,
    DT_KEY_ENUM,
    DT_KEY_SHAPE,
    DT_KEY_LAYERS,
    DT_KEY_NAMES,
    DT_KEY_AUTO,
    DT_KEY_NORMALIZE,
    DT_KEY_AUGMENT
};

struct dt_key {
    const char *path;
    enum dt_key_kind kind;
    size_t offset, n_bytes; /* of the field in struct dt_config or struct dt_layer_spec */
    const char *values, *default_text, *when, *meaning;
};

struct dt_key_list {
    const struct dt_key *keys;
    int n;
};

struct dt_key_list dt_config_keys(void);
struct dt_key_list dt_layer_keys(enum dt_layer_type type);
#define DT_ONE(...) +1
enum { DT_N_LAYER_TYPES = 0 DT_LAYER_LIST(DT_ONE) };
const char *dt_key_name(const char *path); /* without its groups: "epochs" of "train.epochs" */
/* The key that people mean by a word such as "epochs", "lr" or "batch-size": "train.epochs"; NULL:
 * none. */
const char *dt_config_key_of(const char *word);

/* Name i of a list of names behind bars ("|idx|linear"), clipped to 31 bytes; false past the end.
 */
#define DT_NAME_SIZE 32
bool dt_names_get(const char *names, int i, char out[DT_NAME_SIZE]);
int dt_names_find(const char *names, const char *name); /* -1: not there */

/* An interval such as "(0, 1]". */
struct dt_range {
    double low, high;
    bool low_open, high_open;
};
struct dt_range dt_range_parse(const char *text);
bool dt_range_holds(const struct dt_range *range, double x); /* false for NaN */

/* "an integer 1..64", "a number > 0 and <= 1", "one of idx, linear": what a message says was
 * expected. */
#define DT_EXPECTED_SIZE 160
void dt_key_expected(const struct dt_key *key, char out[DT_EXPECTED_SIZE]);
/* The same in a table: "integer 1..64", "> 0 and <= 1", "idx, linear". */
void dt_key_values(const struct dt_key *key, char out[DT_EXPECTED_SIZE]);

/* The shortest decimal text that reads back as the same double. */
#define DT_NUMBER_SIZE 40
void dt_number_text(double x, char out[DT_NUMBER_SIZE]);

/* The field behind a key; `base` is the struct. */
static inline const void *dt_key_field(const struct dt_key *key, const void *base)
{
    return (const unsigned char *)base + key->offset;
}

/* The value of a key of kind INT, AUTO or ENUM. */
int64_t dt_key_int(const struct dt_key *key, const void *base);
void dt_key_store_int(const struct dt_key *key, void *base, int64_t value);

/* Whether its value is a string in JSON, and so its default. */
static inline bool dt_key_is_word(const struct dt_key *key)
{
    return key->kind == DT_KEY_TEXT || key->kind == DT_KEY_ENUM || key->kind == DT_KEY_AUTO;
}

/* Those of AUTO, for dt_names_get; word i is -1 - i in the field. */
static inline const char *dt_key_words(const struct dt_key *key)
{
    return strchr(key->values, '|');
}

/* Whether `key` means something in this config; needs the keys before it to be filled in. */
bool dt_key_applies(const struct dt_key *key, const struct dt_config *config);

/* data.normalize and data.augment as JSON (pixels.c). */
void dt_config_print_normalize(FILE *out, const struct dt_normalize *normalize);
void dt_config_print_augment(FILE *out, const struct dt_augment *augment);

/* The value as JSON. */
void dt_key_print(FILE *out, const struct dt_key *key, const void *base);
/* The members of a layer's object, without braces. */
void dt_layer_print(FILE *out, const struct dt_layer_spec *layer);
/* Whether the key has a value to show: not when it means nothing here, and not when it was left
 * out. */
bool dt_key_is_shown(const struct dt_key *key, const struct dt_config *config);

#endif
