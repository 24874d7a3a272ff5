/* Every key of the configuration, once: the parser, `help config`, --print-config and `help --json`
 * follow from this list, and from the last one the JSON Schema and docs/config.md.
 *
 * X(path, kind, field, values, default, when, meaning)
 *
 *   kind: BOOL, INT, REAL, TEXT, ENUM (field is an enum that counts from 0), SHAPE (model.input),
 *   LAYERS (model.layers), NAMES (of blocks or layers), EPOCHS (ascending numbers), AUTO (an
 * integer or a word; the field has -1 for the first word, -2 for the next), NORMALIZE, AUGMENT and
 * WEIGHTS
 *
 *   values: of INT, REAL, AUTO the interval, as mathematicians write it: "[0, 1)" holds 0 and not
 *   1; of ENUM the names, each behind a bar; of AUTO the interval and then its words
 *
 *   default: JSON without quotes; NULL: the key must be given; "": it may be absent, and the field
 *   is then 0, of REAL -1
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

#define DT_IMAGES "data.format=idx|synthetic|cifar|npy|images|csv"
#define DT_FOLDERS "data.format=images"
#define DT_STOPS_EARLY "train.early_stopping.metric!=none"

#define DT_CONFIG_KEYS(X)                                                                          \
    X("data.format", ENUM, data.format, DT_DATA_FORMAT_LIST(DT_BAR_NAME), NULL, "",                \
      "idx: MNIST's four files; cifar: binary files of CIFAR-10 or CIFAR-100; npy: NumPy arrays; " \
      "images: PNG, JPEG or PPM files, one folder per class; csv: tables; "                        \
      "synthetic: generated images; "                                                              \
      "linear: y = slope * x + intercept")                                                         \
    X("data.dir", TEXT, data.dir, "", "data/mnist", "",                                            \
      "folder of the data files, raw or .gz, relative to the working directory; generated data "   \
      "needs none")                                                                                \
    X("data.normalize", NORMALIZE, data.normalize, "[0, 1]", "", DT_IMAGES,                        \
      "pixels become (pixel / 255 - mean) / std, per channel; dataset: mean and std of the "       \
      "training images, which are stored in the run's config.json and in checkpoints")             \
    X("data.scale", NORMALIZE, data.scale[0], "[-1e300, 1e300]", "", "data.format=npy|csv",        \
      "numbers that are no pixels become (x - mean) / std, per channel or feature; default: of "   \
      "the training set, stored in config.json and in checkpoints")                                \
    X("data.target_scale", NORMALIZE, data.scale[1], "[-1e300, 1e300]", "", "data.format=npy|csv", \
      "the same of targets")                                                                       \
    X("data.augment", AUGMENT, data.augment, "[1, 180]", "", DT_IMAGES,                            \
      "random changes of training images, applied in this order and redrawn every epoch: shift "   \
      "by up to this many pixels, flip left to right, crop after padding with this much black, "   \
      "rotate by up to this many degrees, cutout of a square with this side")                      \
    X("data.resize", ENUM, data.resize, DT_RESIZE_LIST(DT_BAR_NAME), "none", DT_FOLDERS,           \
      "images of another size than model.input: none: an error; stretch: scaled without regard "   \
      "to their proportions; fit: as a whole, on the background; crop: cut to the middle")         \
    X("data.background", AUTO, data.background, "[0, 255]|white|black", "white", DT_FOLDERS,       \
      "behind transparent pixels, and beside an image that is fitted in: a word, or a grey")       \
    X("data.test", REAL, data.test, "[0, 1)", "", DT_FOLDERS,                                      \
      "fraction of each class's images held out as the test set, where there is no folder of it")  \
    X("data.skip_bad", INT, data.skip_bad, "[0, 2147483647]", "0", DT_FOLDERS,                     \
      "images that cannot be read and are left out, at most; they are listed")                     \
    X("data.classes", NAMES, data.classes, "[0, 4096]", "[]",                                      \
      "data.format=idx|synthetic|cifar|npy|csv",                                                   \
      "names of the classes in the order of their numbers, such as [\"cat\", \"dog\"]")            \
    X("data.label", TEXT, data.label, "", "", "data.format=csv",                                   \
      "column of the classes, by name or number")                                                  \
    X("data.target", NAMES, data.target, "[0, 256]", "[]", "data.format=csv",                      \
      "columns of the targets, such as [\"price\"], one for each output of the model")             \
    X("data.features", NAMES, data.features, "[0, 4096]", "[]", "data.format=csv",                 \
      "columns of the inputs, in this order; []: all columns of numbers but label and targets")    \
    X("data.sharding", ENUM, sharding, DT_SHARDING_LIST(DT_BAR_NAME), "shard", "",                 \
      "shard: each rank keeps its own share; global: the same batches at any number of ranks; "    \
      "replicate: every rank uses all samples")                                                    \
    X("data.shuffle", BOOL, shuffle, "", "true", "", "draw a new order in every epoch")            \
    X("data.train_samples", INT, data.n_train, "[0, 2147483647]", "0", "",                         \
      "maximum number of training samples; 0: all, or 6000 generated ones")                        \
    X("data.test_samples", INT, data.n_test, "[0, 2147483647]", "0", "",                           \
      "maximum number of test samples; 0: all, or 1000 generated ones")                            \
    X("data.validation", REAL, data.validation, "[0, 2147483647]", "", "",                         \
      "validation samples, held out of the training samples: a fraction below 1, or a count; "     \
      "early stopping, plateau and the best checkpoint then use them")                             \
    X("data.slope", REAL, data.slope, "[-1e6, 1e6]", "2", "data.format=linear",                    \
      "slope of the generated line")                                                               \
    X("data.intercept", REAL, data.intercept, "[-1e6, 1e6]", "1", "data.format=linear",            \
      "intercept of the generated line")                                                           \
    X("data.noise", REAL, data.noise, "[0, 1e6]", "0.1", "data.format=synthetic|linear",           \
      "standard deviation of the noise added to generated samples")                                \
    X("data.seed", INT, data.seed, DT_ANY_INT, "0", "data.format=synthetic|linear",                \
      "seed of the generated samples")                                                             \
    X("model.input", SHAPE, model.input, "[1, 65536]", NULL, "",                                   \
      "[channels, height, width] of an image, or [n] for n features")                              \
    X("model.layers", LAYERS, model.layers, "[1, 64]", NULL, "",                                   \
      "the layers in order; the last layer gives the outputs")                                     \
    X("model.loss", ENUM, model.loss, DT_LOSS_LIST(DT_BAR_NAME), "softmax_cross_entropy", "",      \
      "softmax_cross_entropy for classes; the others for targets, of a table or format linear")    \
    X("train.epochs", INT, epochs, "[1, 1000000]", "12", "", "passes over the training samples")   \
    X("train.max_steps", INT, max_steps, DT_ANY_INT, "0", "",                                      \
      "stop after this many steps in total; 0: no limit")                                          \
    X("train.seed", INT, seed, DT_ANY_INT, "1", "",                                                \
      "seed of initial weights, batches and dropout")                                              \
    X("train.batch.per_rank", INT, batch_per_rank, "[1, 1048576]", "", "",                         \
      "samples per rank and step; the global batch is this times the number of ranks; 128 if "     \
      "neither key is given")                                                                      \
    X("train.batch.global", INT, batch_global, "[1, 1048576]", "", "",                             \
      "samples per step over all ranks; the learning rate is then not scaled")                     \
    X("train.accumulate", INT, accumulate, "[1, 65536]", "1", "",                                  \
      "gradient accumulation: micro-batches per step, to save memory")                             \
    X("train.freeze", NAMES, freeze, "[0, 64]", "[]", "",                                          \
      "layers whose weights stay as they are, such as [\"conv1\"], by the names in dtrain plan")   \
    X("train.optimizer.type", ENUM, optimizer.type, DT_OPTIMIZER_LIST(DT_BAR_NAME), "adam", "",    \
      "optimizer")                                                                                 \
    X("train.optimizer.lr", REAL, optimizer.lr, "(0, 1e6]", "0.001", "",                           \
      "learning rate, before scaling and schedule")                                                \
    X("train.optimizer.momentum", REAL, optimizer.momentum, "[0, 1)", "0",                         \
      "train.optimizer.type=sgd", "momentum")                                                      \
    X("train.optimizer.nesterov", BOOL, optimizer.nesterov, "", "false",                           \
      "train.optimizer.type=sgd", "Nesterov momentum; needs momentum > 0")                         \
    X("train.optimizer.beta1", REAL, optimizer.beta1, DT_BETA, "0.9",                              \
      "train.optimizer.type=adam|adamw", "decay rate of the running mean of the gradients")        \
    X("train.optimizer.beta2", REAL, optimizer.beta2, DT_BETA, "0.999",                            \
      "train.optimizer.type=adam|adamw",                                                           \
      "decay rate of the running mean of the squared gradients")                                   \
    X("train.optimizer.epsilon", REAL, optimizer.epsilon, "[1e-20, 1]", "1e-8",                    \
      "train.optimizer.type=adam|adamw", "added to the root of the mean square")                   \
    X("train.optimizer.weight_decay", REAL, optimizer.weight_decay, "[0, 1e6]", "0", "",           \
      "L2 penalty in the gradient; decoupled with adamw")                                          \
    X("train.optimizer.clip_norm", REAL, optimizer.clip_norm, "[0, 1e6]", "0", "",                 \
      "clip the averaged gradient to this global L2 norm; 0: off")                                 \
    X("train.lr_scaling", ENUM, lr_scaling, DT_LR_SCALING_LIST(DT_BAR_NAME), "linear", "",         \
      "how train.batch.per_rank scales the learning rate: none; linear: times the number of "      \
      "ranks; sqrt: times its square root")                                                        \
    X("train.warmup_epochs", REAL, warmup_epochs, "[0, 1e6]", "0", "",                             \
      "epochs (fractions allowed) over which the rate grows to its full value")                    \
    X("train.warmup_from", REAL, warmup_from, "[0, 1]", "", "",                                    \
      "fraction of the full rate at which warm-up begins; default: the unscaled rate")             \
    X("train.label_smoothing", REAL, model.label_smoothing, "[0, 1)", "0",                         \
      "model.loss=softmax_cross_entropy",                                                          \
      "fraction of each label that is spread over all classes, as in PyTorch; in the training "    \
      "loss only: the test loss is plain cross-entropy")                                           \
    X("train.class_weights", WEIGHTS, class_weights, "[0, 1e6]", "",                               \
      "model.loss=softmax_cross_entropy",                                                          \
      "weight of each class in the training loss, as in PyTorch: a list, or balanced: inversely "  \
      "to its training samples; the test loss is plain cross-entropy")                             \
    X("train.ema", REAL, ema, "[0, 1)", "0", "",                                                   \
      "decay of an exponential moving average of the weights, such as 0.999, which is evaluated "  \
      "and saved beside the weights; 0: off. Metrics that begin with ema_ are of the average")     \
    X("train.evaluate", ENUM, evaluate, DT_EVALUATE_LIST(DT_BAR_NAME), "epochs", "",               \
      "when the test set is evaluated: after each epoch, or once at the end, which saves time; "   \
      "with data.validation always at the end")                                                    \
    X("train.early_stopping.metric", ENUM, early_stopping.metric,                                  \
      DT_TEST_METRIC_LIST(DT_BAR_NAME), "none", "",                                                \
      "stop when this metric no longer improves from epoch to epoch; none: never")                 \
    X("train.early_stopping.patience", INT, early_stopping.patience, "[1, 1000000]", "3",          \
      DT_STOPS_EARLY, "epochs without improvement before training stops")                          \
    X("train.early_stopping.min_delta", REAL, early_stopping.min_delta, "[0, 1e6]", "0",           \
      DT_STOPS_EARLY, "smallest change over the best value that counts as an improvement")         \
    X("train.schedule.type", ENUM, schedule, DT_SCHEDULE_LIST(DT_BAR_NAME), "constant", "",        \
      "how the learning rate changes; plateau: when a metric no longer improves; one_cycle: it "   \
      "rises to its peak and falls, by cosines, as PyTorch's OneCycleLR")                          \
    X("train.schedule.step_epochs", REAL, schedule_step_epochs, "(0, 1e6]", "1",                   \
      "train.schedule.type=step", "epochs between two reductions")                                 \
    X("train.schedule.milestones", EPOCHS, schedule_milestones, "[0, 16]", "[]",                   \
      "train.schedule.type=step",                                                                  \
      "epochs of the reductions, such as [30, 60], in place of "                                   \
      "step_epochs")                                                                               \
    X("train.schedule.gamma", REAL, schedule_gamma, "(0, 1]", "0.1", "train.schedule.type=step",   \
      "factor of each reduction")                                                                  \
    X("train.schedule.metric", ENUM, plateau.metric, DT_TEST_METRIC_LIST(DT_BAR_NAME),             \
      "test_loss", "train.schedule.type=plateau",                                                  \
      "metric that has to improve from epoch to epoch; the default with data.validation is "       \
      "validation_loss")                                                                           \
    X("train.schedule.factor", REAL, schedule_factor, "(0, 1)", "0.1",                             \
      "train.schedule.type=plateau", "factor by which a plateau reduces the learning rate")        \
    X("train.schedule.patience", INT, plateau.patience, "[1, 1000000]", "10",                      \
      "train.schedule.type=plateau", "epochs without improvement that make a plateau")             \
    X("train.schedule.min_delta", REAL, plateau.min_delta, "[0, 1e6]", "0.0001",                   \
      "train.schedule.type=plateau",                                                               \
      "smallest change over the best value that counts as an improvement")                         \
    X("train.schedule.min_lr", REAL, schedule_min_lr, "[0, 1e6]", "0",                             \
      "train.schedule.type=cosine|plateau",                                                        \
      "cosine: learning rate at the end; plateau: lower limit of the learning rate")               \
    X("train.schedule.peak", REAL, schedule_peak, "[0, 1]", "0.3",                                 \
      "train.schedule.type=one_cycle",                                                             \
      "fraction of the steps at which the rate is at its peak, train.optimizer.lr")                \
    X("train.schedule.from", REAL, schedule_from, "[0, 1]", "0.04",                                \
      "train.schedule.type=one_cycle", "fraction of the peak rate at the begin")                   \
    X("train.schedule.to", REAL, schedule_to, "[0, 1]", "4e-6", "train.schedule.type=one_cycle",   \
      "fraction of the peak rate at the end")                                                      \
    X("distributed.average", BOOL, dist.average, "", "true", "",                                   \
      "average gradients over the ranks; false: replicas drift apart")                             \
    X("distributed.broadcast", BOOL, dist.broadcast, "", "true", "",                               \
      "start with rank 0's weights on every rank")                                                 \
    X("distributed.init_per_rank", BOOL, init_per_rank, "", "false", "",                           \
      "draw different initial weights on each rank, to show what the broadcast is for")            \
    X("distributed.strategy", ENUM, dist.strategy, DT_STRATEGY_LIST(DT_BAR_NAME), "allreduce", "", \
      "allreduce: every rank holds the weights and updates them; parameter_server: server ranks "  \
      "hold and update the weights for the workers; central: rank 0 holds the optimizer and also " \
      "trains; pipeline: each rank holds some of the layers")                                      \
    X("distributed.parameter_server.servers", INT, dist.servers, "[1, 1024]", "1",                 \
      "distributed.strategy=parameter_server",                                                     \
      "number of server ranks, the last ones; each tensor is stored whole on one server; all "     \
      "other ranks are workers")                                                                   \
    X("distributed.parameter_server.mode", ENUM, dist.mode, DT_SERVER_MODE_LIST(DT_BAR_NAME),      \
      "sync", "distributed.strategy=parameter_server",                                             \
      "sync: a server adds the gradients of all workers and updates once per step; async: it "     \
      "updates with each worker's gradient on arrival, which is not reproducible")                 \
    X("distributed.parameter_server.max_staleness", INT, dist.max_staleness, "[0, 64]", "4",       \
      "distributed.strategy=parameter_server",                                                     \
      "async: steps by which a worker may be ahead of the slowest worker")                         \
    X("distributed.pipeline.schedule", ENUM, dist.schedule,                                        \
      DT_PIPELINE_SCHEDULE_LIST(DT_BAR_NAME), "1f1b", "distributed.strategy=pipeline",             \
      "gpipe: all micro-batches forward, then all backward; 1f1b: one forward and one backward "   \
      "in turn, as early as possible")                                                             \
    X("distributed.pipeline.micro_batches", INT, dist.micro_batches, "[1, 1024]", "8",             \
      "distributed.strategy=pipeline",                                                             \
      "micro-batches per batch, on which the ranks work at the same time")                         \
    X("distributed.pipeline.cut", NAMES, dist.cut, "[0, 63]", "[]",                                \
      "distributed.strategy=pipeline",                                                             \
      "first block of each rank after rank 0, such as [\"conv2\", \"fc1\"], by the names in "      \
      "dtrain plan; []: chosen so that the largest part is small")                                 \
    X("distributed.allreduce", ENUM, dist.allreduce, DT_ALLREDUCE_LIST(DT_BAR_NAME), "auto", "",   \
      "how gradients are added over the ranks; auto: nccl on GPUs, else shared_memory if the "     \
      "ranks of a host share memory, else mpi; hierarchical: shared memory inside each host, an "  \
      "algorithm between hosts; staged: from GPUs through host memory")                            \
    X("distributed.across", ENUM, dist.across, DT_ALGORITHM_LIST(DT_BAR_NAME), "ring",             \
      "distributed.allreduce=hierarchical", "algorithm between hosts")                             \
    X("distributed.compression.type", ENUM, dist.compression.type,                                 \
      DT_COMPRESSION_LIST(DT_BAR_NAME), "none", "",                                                \
      "encoding of gradients that are sent: 16 bits (fp16, bf16), 8 bits (int8), signs (onebit; "  \
      "dense layers only), the largest values (topk)")                                             \
    X("distributed.compression.ratio", REAL, dist.compression.ratio, "(0, 1]", "0.01",             \
      "distributed.compression.type=topk", "fraction of the gradient values that is sent")         \
    X("distributed.compression.rounding", ENUM, dist.compression.rounding,                         \
      DT_ROUNDING_LIST(DT_BAR_NAME), "nearest", "distributed.compression.type=int8",               \
      "stochastic: up or down at random, unbiased (QSGD)")                                         \
    X("distributed.compression.error_feedback", BOOL, dist.compression.error_feedback, "", "true", \
      "distributed.compression.type=fp16|bf16|int8|onebit|topk",                                   \
      "add the compression error to the gradients of the next step")                               \
    X("distributed.order", ENUM, dist.order, DT_ORDER_LIST(DT_BAR_NAME), "backward",               \
      "distributed.strategy=allreduce",                                                            \
      "backward: gradients are sent as they are computed, and a step ends when all weights are "   \
      "updated; priority: the first layers' gradients are sent first, and the next forward pass "  \
      "waits per layer")                                                                           \
    X("distributed.deterministic", BOOL, dist.deterministic, "", "false", "",                      \
      "bit-identical weights at any number of ranks: gradients are computed per leaf of the "      \
      "global batch and added as integers; needs data.sharding=global and train.batch.global")     \
    X("distributed.leaf", INT, dist.leaf, "[1, 4096]", "32", "distributed.deterministic=true",     \
      "samples per leaf; one rank computes the gradient of a leaf as one batch")                   \
    X("distributed.overlap", BOOL, dist.overlap, "", "true", "",                                   \
      "send gradients while the backward pass is still running")                                   \
    X("distributed.bucket_mb", REAL, bucket_mb, "[0, 4096]", "1", "",                              \
      "MiB of gradients that are sent together; a bucket ends with a block; 0: each block by "     \
      "itself")                                                                                    \
    X("distributed.check_every", INT, dist.check_every, DT_ANY_INT, "100", "",                     \
      "steps between comparisons of the replicas; 0: never")                                       \
    X("distributed.timeout_s", REAL, timeout_s, "[2, 3600]", "60", "",                             \
      "seconds after which a collective counts as stalled")                                        \
    X("checkpoint.every_epochs", INT, checkpoint_every_epochs, "[0, 1000000]", "1", "",            \
      "epochs between checkpoints; 0: none before the end")                                        \
    X("checkpoint.every_steps", INT, checkpoint_every_steps, DT_ANY_INT, "0", "",                  \
      "steps between checkpoints; 0: only by epochs")                                              \
    X("checkpoint.keep", INT, checkpoint_keep, "[1, 1000000]", "2", "",                            \
      "number of checkpoints to keep; older ones are removed")                                     \
    X("checkpoint.best", ENUM, checkpoint_best, DT_TEST_METRIC_LIST(DT_BAR_NAME), "none", "",      \
      "also keep checkpoints/best.safetensors, from the epoch with the best value of this metric") \
    X("log.every_s", REAL, log_every_s, "[0, 86400]", "10", "",                                    \
      "seconds between progress lines when stderr is not a terminal; 0: none")                     \
    X("log.every_steps", AUTO, log_every_steps, DT_ANY_INT "|auto", "auto", "",                    \
      "steps between \"step\" records in metrics.jsonl; auto: every step at first, some hundreds " \
      "per run; 0: none")                                                                          \
    X("log.audit", BOOL, log_audit, "", "false", "",                                               \
      "write an \"audit\" record of every step to metrics.jsonl: the samples that all ranks used") \
    X("trace.steps", TEXT, trace_steps, "FIRST:LAST, such as 10:30", "", "",                       \
      "FIRST:LAST, such as 10:30: steps whose timeline of all ranks is written to trace.json")     \
    X("device", ENUM, device, DT_DEVICE_LIST(DT_BAR_NAME), "auto", "",                             \
      "cpu: vector kernels; ref: plain loops, slow, for comparison; cuda: a GPU; auto: a GPU if "  \
      "every rank has one, else cpu")                                                              \
    X("precision", ENUM, precision, DT_PRECISION_LIST(DT_BAR_NAME), "f32", "",                     \
      "tf32: products with 10-bit mantissas, on GPUs; bf16: 7-bit mantissas, on GPUs also of "     \
      "activations, on CPUs with AMX in the forward pass of convolutions; weights and sums are "   \
      "always f32")                                                                                \
    X("cuda.graph", BOOL, cuda_graph, "", "true", "",                                              \
      "record a step as a CUDA graph and launch the graph; false: call by call, for debugging "    \
      "and for timing the parts of a step")                                                        \
    X("cuda.deterministic", BOOL, cuda_deterministic, "", "false", "",                             \
      "use cuDNN's first engine for each convolution instead of timing several: the same bits in " \
      "every run, as CPUs always give")                                                            \
    X("report", BOOL, report, "", "true", "",                                                      \
      "write report.html, a page about the run, into its folder at the end")                       \
    X("tensorboard", BOOL, tensorboard, "", "false", "",                                           \
      "write TensorBoard events into the run folder: the metrics, histograms of weights and "      \
      "gradients, the confusion matrix")                                                           \
    X("threads", INT, threads, "[0, 1024]", "0", "",                                               \
      "threads per rank; 0: the available cores, shared among the ranks of the host")

/* Keys of one layer, beside "type" and those of all, by the symbol in DT_LAYER_LIST; field is of
 * struct dt_layer_spec. */
#define DT_EXTENT "[1, 65536]"
#define DT_PLACE_KEYS(X)                                                           \
    X("name", TEXT, name, "", "", "", "name for later layers; also used in files") \
    X("input", TEXT, input, "", "", "", "name of the input layer; default: the previous layer")
#define DT_ACTIVATION_KEY(X)                                                       \
    X("activation", ENUM, activation, DT_ACTIVATION_LIST(DT_BAR_NAME), "none", "", \
      "function applied to the outputs")
#define DT_LR_KEY(X) \
    X("lr", REAL, lr, "(0, 1000]", "", "", "factor of the learning rate for this layer; default: 1")
#define DT_WEIGHTS_KEYS(X)                                                  \
    DT_ACTIVATION_KEY(X)                                                    \
    X("init", ENUM, init, DT_INIT_LIST(DT_BAR_NAME), "auto", "",            \
      "initial weights; auto: he_uniform before relu, else glorot_uniform") \
    DT_LR_KEY(X)
#define DT_KEYS_conv2d(X)                                                                      \
    X("filters", INT, size, DT_EXTENT, NULL, "", "output channels")                            \
    X("kernel", INT, kernel, "[1, 1024]", NULL, "", "height and width of the window")          \
    X("stride", INT, stride, DT_EXTENT, "1", "", "step of the window")                         \
    X("padding", AUTO, padding, "[0, 512]|valid|same", "valid", "",                            \
      "valid: none; same: zeros as in TensorFlow, so that stride 1 keeps the size; a number: " \
      "this many zeros on each side, as in PyTorch")                                           \
    DT_WEIGHTS_KEYS(X)
#define DT_KEYS_dense(X)                                  \
    X("units", INT, size, DT_EXTENT, NULL, "", "outputs") \
    DT_WEIGHTS_KEYS(X)
#define DT_KEYS_pool(X)                                                     \
    X("size", INT, size, DT_EXTENT, NULL, "",                               \
      "height and width of the window; max_pool2d on the CPU: at most 255") \
    X("stride", INT, stride, DT_EXTENT, "", "", "step of the window; default: its size")
#define DT_KEYS_dropout(X) \
    X("rate", REAL, rate, "[0, 1)", NULL, "", "fraction of the units set to 0 in training")
#define DT_KEYS_global_pool(X)
#define DT_KEYS_flatten(X)
#define DT_KEYS_nonlinear(X)
#define DT_KEYS_batch_norm(X)                                                            \
    X("momentum", REAL, momentum, "(0, 1]", "0.1", "",                                   \
      "weight of a batch in the running statistics, which evaluation uses")              \
    X("epsilon", REAL, epsilon, "(0, 1]", "1e-5", "", "added to the variance")           \
    X("sync", BOOL, sync, "", "false", "",                                               \
      "use the statistics of all ranks' samples in training instead of each rank's own") \
    DT_LR_KEY(X)                                                                         \
    DT_ACTIVATION_KEY(X)
#define DT_KEYS_add(X)                                                        \
    X("inputs", INPUTS, inputs, "[1, 2]", "", "",                             \
      "names of two layers; or of one, which is added to the previous layer") \
    DT_ACTIVATION_KEY(X)
#define DT_KEYS_concat(X)                                                                      \
    X("inputs", INPUTS, inputs, "[1, 4]", "", "",                                              \
      "names of layers whose channels or units are concatenated; with one name, the previous " \
      "layer's output comes first")                                                            \
    DT_ACTIVATION_KEY(X)
#define DT_KEYS_layer_norm(X)                                                  \
    X("epsilon", REAL, epsilon, "(0, 1]", "1e-5", "", "added to the variance") \
    DT_LR_KEY(X)                                                               \
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
    DT_KEY_INPUTS,
    DT_KEY_EPOCHS,
    DT_KEY_AUTO,
    DT_KEY_NORMALIZE,
    DT_KEY_AUGMENT,
    DT_KEY_WEIGHTS
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
/* The key that people mean by a word such as "epochs", "train.epochs", "lr" or "batch-size": its
 * path; NULL: none. */
const char *dt_config_key_of(const char *word);
/* Whether `about` is the key, a group that it is in, such as "train.optimizer", or a word for it.
 */
bool dt_key_is_about(const struct dt_key *key, const char *about);
/* Whether `about` names a key or a group of keys, a layer such as "conv2d", or all keys
 * ("config"). */
bool dt_config_names(const char *about);

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
/* How many items a list of the kinds NORMALIZE, AUGMENT and WEIGHTS may have. */
int dt_key_most(const struct dt_key *key);
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

/* The value as JSON. */
void dt_key_print(FILE *out, const struct dt_key *key, const void *base);
/* The members of a layer's object, without braces. */
void dt_layer_print(FILE *out, const struct dt_layer_spec *layer);
/* Whether the key has a value to show: not when it means nothing here, and not when it was left
 * out. */
bool dt_key_is_shown(const struct dt_key *key, const struct dt_config *config);

#endif
