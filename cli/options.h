/* The options of the command line, one row each, for its parser, the help, the manual page and the
 * completions. A command says in its row (cli/args.h) which of them it takes. */
#ifndef DT_CLI_OPTIONS_H
#define DT_CLI_OPTIONS_H

#include <stdbool.h>

/* DT_COMMON: every command takes it. DT_OF_KEY: it has the name of a key (dt_config_key_of). */
enum dt_use { DT_ONCE, DT_REPEATED, DT_OF_KEY, DT_COMMON };

struct dt_option_entry {
    const char *name;
    const char *value; /* its name, such as FILE; "": the option takes no value */
    const char *meaning;
    const char *more; /* for the manual page, or NULL */
    enum dt_use use;
    char letter;   /* or 0 */
    bool optional; /* the value may be left out */
};

/* X(constant, name, value, meaning, and other members of the row). The options of `bench allreduce`
 * have the names that nccl-tests gives them. `code` stands between backticks. */
#define DT_OPTION_LIST(X)                                                                          \
    X(DT_OPTION_CONFIG, "config", "FILE", "the configuration, JSON (see dtrain help config)")      \
    X(DT_OPTION_DATA, "data", "DIR", "folder of the IDX files, in place of data.dir",              \
      .more = "Files are raw or compressed by gzip.")                                              \
    X(DT_OPTION_RUN, "run", "DIR", "the run's files; default runs/<config name>/<UTC time>")       \
    X(DT_OPTION_RESUME, "resume", "RUN",                                                           \
      "resume from this run's newest checkpoint, RUN:best or a checkpoint file; alone from the "   \
      "newest in --run, or from step 0 if there is none",                                          \
      .more = "A job that is queued again needs no other command.", .optional = true)              \
    X(DT_OPTION_SET, "set", "KEY.PATH=VALUE",                                                      \
      "change a key of the configuration; may be repeated",                                        \
      .more = "The value is JSON, else a string; a later value wins. A number in the path is an "  \
              "index of a list, as in `model.layers.1.filters=16`.",                               \
      .use = DT_REPEATED)                                                                          \
    X(DT_OPTION_EPOCHS, "epochs", "N", "short for --set train.epochs=N", .use = DT_OF_KEY)         \
    X(DT_OPTION_BATCH, "batch", "N", "short for --set train.batch.per_rank=N", .use = DT_OF_KEY)   \
    X(DT_OPTION_LR, "lr", "X", "short for --set train.optimizer.lr=X", .use = DT_OF_KEY)           \
    X(DT_OPTION_INJECT, "inject", "FAULT",                                                         \
      "inject a fault to see how the run reacts (see docs/operating.md); may be repeated",         \
      .more = "Steps count from 1, over the whole run. A fault is not part of the "                \
              "configuration: a run that is resumed without it is a normal run. Faults need "      \
              "`cuda.graph=false` where a GPU runs recorded steps.",                               \
      .use = DT_REPEATED)                                                                          \
    X(DT_OPTION_WEIGHTS, "weights", "FILE",                                                        \
      "load weights from this .safetensors file (e.g. saved by PyTorch with matching names and "   \
      "shapes); a training draws those that it lacks",                                             \
      .more = "The tensors are float32 with the names and shapes of the model's checkpoints: "     \
              "`conv1.weight`, `conv1.bias`, `fc1.weight` and so on, numbered in the order of "    \
              "the layers. A checkpoint is accepted, too; its optimizer state is not used. "       \
              "Training uses the weights if there is nothing to resume; `eval` and `predict` "     \
              "need the model's `--config` with it.")                                              \
    X(DT_OPTION_EMA, "ema", "", "use the averaged (EMA) weights of the checkpoint (train.ema)")    \
    X(DT_OPTION_TOP, "top", "K", "the K likeliest classes; default 5")                             \
    X(DT_OPTION_INVERT, "invert", "auto|yes|no",                                                   \
      "invert the image; auto: only if its background differs from the training images'",          \
      .more = "`auto`, the default, inverts a grey image whose border is bright if the borders "   \
              "of all training images are dark, and vice versa. A checkpoint knows these "         \
              "borders; with weights alone nothing is inverted.")                                  \
    X(DT_OPTION_FOLLOW, "follow", "", "a live view of the run until it ends")                      \
    X(DT_OPTION_JSON, "json", "FILE",                                                              \
      "write the result as JSON to this file; - is standard output")                               \
    X(DT_OPTION_CSV, "csv", "FILE",                                                                \
      "write the result's table as CSV to this file; - is standard output")                        \
    X(DT_OPTION_PREDICT, "predict", "N",                                                           \
      "predict up to this many ranks, default 1024, at most 1024")                                 \
    X(DT_OPTION_NETWORK, "network", "NAME",                                                        \
      "network between hosts: 10gbe, 25gbe, hdr, nvlink, or microseconds per message and GB/s, "   \
      "such as 10,1.25; default: links like this host's")                                          \
    X(DT_OPTION_JUNIT, "junit", "FILE",                                                            \
      "write the verdicts as JUnit XML to this file; - is standard output")                        \
    X(DT_OPTION_BASELINE, "baseline", "FILE",                                                      \
      "compare with an earlier result, its --json FILE: fail if a figure is more than 10 % worse") \
    X(DT_OPTION_TOLERANCE, "tolerance", "PERCENT",                                                 \
      "how much worse than the baseline a figure may be, in percent, default 10")                  \
    X(DT_OPTION_SHORT, "short", "", "measure for about ten seconds in total")                      \
    X(DT_OPTION_ALGORITHMS, "algorithms", "NAMES",                                                 \
      "allreduce algorithms, such as ring,tree; default all")                                      \
    X(DT_OPTION_MIN_BYTES, "minbytes", "BYTES",                                                    \
      "size of the smallest allreduce, default 8; K, M and G are powers of 1024", .letter = 'b')   \
    X(DT_OPTION_MAX_BYTES, "maxbytes", "BYTES", "size of the largest, default 32M, at most 1G",    \
      .letter = 'e')                                                                               \
    X(DT_OPTION_FACTOR, "stepfactor", "N", "ratio of successive sizes, default 2", .letter = 'f')  \
    X(DT_OPTION_ITERS, "iters", "N", "timed allreduces per size, default 20", .letter = 'n')       \
    X(DT_OPTION_WARMUP, "warmup_iters", "N", "untimed allreduces before them, default 5",          \
      .letter = 'w')                                                                               \
    X(DT_OPTION_CHECK, "check", "N", "allreduces per size whose values are checked, default 1",    \
      .letter = 'c')                                                                               \
    X(DT_OPTION_LATENCY, "latency", "US", "simulate this latency per message (algorithms only)",   \
      .more = "The latency is added to the time of a real message. With `hierarchical`, only "     \
              "messages between hosts are slow.")                                                  \
    X(DT_OPTION_BANDWIDTH, "bandwidth", "GBS",                                                     \
      "simulate links of this many GB/s (algorithms only)",                                        \
      .more = "Messages queue on the links of their two ranks. Only algorithms whose messages "    \
              "dtrain sends itself are measured.")                                                 \
    X(DT_OPTION_ALGORITHM, "algorithm", "NAME",                                                    \
      "allreduce algorithm, default ring; any name of the table that the lesson prints")           \
    X(DT_OPTION_RANKS, "ranks", "N", "number of ranks, default 4, at most 8")                      \
    X(DT_OPTION_ELEMENTS, "elements", "N", "floats on each rank, default: the number of ranks")    \
    X(DT_OPTION_HTML, "html", "FILE",                                                              \
      "write the result as a page to this file; - is standard output",                             \
      .more = "The page is one file that needs no network.")                                       \
    X(DT_OPTION_FORCE, "force", "", "replace files that are not earlier results of dtrain")        \
    X(DT_OPTION_NODES, "nodes", "N", "number of nodes, default 1")                                 \
    X(DT_OPTION_NTASKS_PER_NODE, "ntasks-per-node", "N",                                           \
      "ranks per node, default 4, or one per GPU")                                                 \
    X(DT_OPTION_CPUS_PER_TASK, "cpus-per-task", "N", "cores, and so threads, per rank, default 1") \
    X(DT_OPTION_GPUS_PER_NODE, "gpus-per-node", "N", "GPUs per node, default none")                \
    X(DT_OPTION_TIME, "time", "[D-]HH:MM:SS", "time limit of the job, default 01:00:00")           \
    X(DT_OPTION_PARTITION, "partition", "NAME", "partition to run in, default the cluster's")      \
    X(DT_OPTION_ACCOUNT, "account", "NAME", "account to charge, default the cluster's")            \
    X(DT_OPTION_SCRIPT, "script", "FILE", "write the script to this new file, default stdout")     \
    X(DT_OPTION_HELP, "help", "", "print the commands, or the options and examples of one",        \
      .letter = 'h', .use = DT_COMMON)                                                             \
    X(DT_OPTION_VERSION, "version", "", "print version, MPI, instruction set and build",           \
      .use = DT_COMMON)                                                                            \
    X(DT_OPTION_PRINT_CONFIG, "print-config", "",                                                  \
      "print the configuration with all defaults filled in")

enum dt_option { DT_OPTION_LIST(DT_NAMED_ENUM) DT_N_OPTIONS };
extern const struct dt_option_entry dt_options[DT_N_OPTIONS];

#endif
