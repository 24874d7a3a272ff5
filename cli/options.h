/* The options of the command line, one row each, for its parser, the help, the manual page and the
 * completions. A command says in its row (cli/args.h) which of them it takes. */
#ifndef DT_CLI_OPTIONS_H
#define DT_CLI_OPTIONS_H

enum dt_value { DT_TAKES_NOTHING, DT_TAKES_VALUE, DT_TAKES_OPTIONAL_VALUE };
/* DT_COMMON: every command takes it. DT_OF_KEY: it has the name of a key (dt_config_key_of). */
enum dt_use { DT_ONCE, DT_REPEATED, DT_OF_KEY, DT_COMMON };

/* X(constant, name, letter or 0, name of the value, value, use, meaning, more for the manual page).
 * Those of `bench allreduce` are called as nccl-tests call them. `code` stands between backticks.
 */
#define DT_OPTION_LIST(X)                                                                          \
    X(DT_OPTION_CONFIG, "config", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                              \
      "the configuration, JSON (see dtrain help config)", "")                                      \
    X(DT_OPTION_DATA, "data", 0, "DIR", DT_TAKES_VALUE, DT_ONCE,                                   \
      "folder of the IDX files, in place of data.dir", "Files are raw or compressed by gzip.")     \
    X(DT_OPTION_RUN, "run", 0, "DIR", DT_TAKES_VALUE, DT_ONCE,                                     \
      "the run's files; default runs/<config name>/<UTC time>", "")                                \
    X(DT_OPTION_RESUME, "resume", 0, "RUN", DT_TAKES_OPTIONAL_VALUE, DT_ONCE,                      \
      "resume from this run's newest checkpoint, RUN:best or a checkpoint file; alone from the "   \
      "newest in --run, or from step 0 if there is none",                                          \
      "A job that is queued again needs no other command.")                                        \
    X(DT_OPTION_SET, "set", 0, "KEY.PATH=VALUE", DT_TAKES_VALUE, DT_REPEATED,                      \
      "change a key of the configuration; may be repeated",                                        \
      "The value is JSON, else a string; a later value wins. A number in the path is an index of " \
      "a list, as in `model.layers.1.filters=16`.")                                                \
    X(DT_OPTION_EPOCHS, "epochs", 0, "N", DT_TAKES_VALUE, DT_OF_KEY,                               \
      "short for --set train.epochs=N", "")                                                        \
    X(DT_OPTION_BATCH, "batch", 0, "N", DT_TAKES_VALUE, DT_OF_KEY,                                 \
      "short for --set train.batch.per_rank=N", "")                                                \
    X(DT_OPTION_LR, "lr", 0, "X", DT_TAKES_VALUE, DT_OF_KEY,                                       \
      "short for --set train.optimizer.lr=X", "")                                                  \
    X(DT_OPTION_INJECT, "inject", 0, "FAULT", DT_TAKES_VALUE, DT_REPEATED,                         \
      "inject a fault to see how the run reacts (see docs/operating.md); may be repeated",         \
      "Steps count from 1, over the whole run. A fault is not part of the configuration: a run "   \
      "that is resumed without it is a normal run. Faults need `cuda.graph=false` where a GPU "    \
      "runs recorded steps.")                                                                      \
    X(DT_OPTION_WEIGHTS, "weights", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                            \
      "load weights from this .safetensors file (e.g. saved by PyTorch with matching names and "   \
      "shapes)",                                                                                   \
      "The tensors are float32 with the names and shapes of the model's checkpoints: "             \
      "`conv1.weight`, `conv1.bias`, `fc1.weight` and so on, numbered in the order of the "        \
      "layers. A checkpoint is accepted, too; its optimizer state is not used. Training uses the " \
      "weights if there is nothing to resume; `eval` and `predict` need the model's `--config` "   \
      "with it.")                                                                                  \
    X(DT_OPTION_EMA, "ema", 0, "", DT_TAKES_NOTHING, DT_ONCE,                                      \
      "use the averaged (EMA) weights of the checkpoint (train.ema)", "")                          \
    X(DT_OPTION_INVERT, "invert", 0, "auto|yes|no", DT_TAKES_VALUE, DT_ONCE,                       \
      "invert the image; auto: only if its background differs from the training images'",          \
      "`auto`, the default, inverts a grey image whose border is bright if the borders of all "    \
      "training images are dark, and vice versa. A checkpoint knows these borders; with weights "  \
      "alone nothing is inverted.")                                                                \
    X(DT_OPTION_FOLLOW, "follow", 0, "", DT_TAKES_NOTHING, DT_ONCE,                                \
      "a live view of the run until it ends", "")                                                  \
    X(DT_OPTION_JSON, "json", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                                  \
      "write the result as JSON to this file; - is standard output", "")                           \
    X(DT_OPTION_CSV, "csv", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                                    \
      "write the result's table as CSV to this file; - is standard output", "")                    \
    X(DT_OPTION_PREDICT, "predict", 0, "N", DT_TAKES_VALUE, DT_ONCE,                               \
      "predict up to this many ranks, default 1024, at most 1024", "")                             \
    X(DT_OPTION_NETWORK, "network", 0, "NAME", DT_TAKES_VALUE, DT_ONCE,                            \
      "network between hosts: 10gbe, 25gbe, hdr, nvlink, or microseconds per message and GB/s, "   \
      "such as 10,1.25; default: links like this host's",                                          \
      "")                                                                                          \
    X(DT_OPTION_JUNIT, "junit", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                                \
      "write the verdicts as JUnit XML to this file; - is standard output", "")                    \
    X(DT_OPTION_BASELINE, "baseline", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                          \
      "compare with an earlier result, its --json FILE: fail if a figure is more than 10 % worse", \
      "")                                                                                          \
    X(DT_OPTION_TOLERANCE, "tolerance", 0, "PERCENT", DT_TAKES_VALUE, DT_ONCE,                     \
      "how much worse than the baseline a figure may be, in percent, default 10", "")              \
    X(DT_OPTION_SHORT, "short", 0, "", DT_TAKES_NOTHING, DT_ONCE,                                  \
      "measure for about ten seconds in total", "")                                                \
    X(DT_OPTION_ALGORITHMS, "algorithms", 0, "NAMES", DT_TAKES_VALUE, DT_ONCE,                     \
      "allreduce algorithms, such as ring,tree; default all", "")                                  \
    X(DT_OPTION_MIN_BYTES, "minbytes", 'b', "BYTES", DT_TAKES_VALUE, DT_ONCE,                      \
      "size of the smallest allreduce, default 8; K, M and G are powers of 1024", "")              \
    X(DT_OPTION_MAX_BYTES, "maxbytes", 'e', "BYTES", DT_TAKES_VALUE, DT_ONCE,                      \
      "size of the largest, default 32M, at most 1G", "")                                          \
    X(DT_OPTION_FACTOR, "stepfactor", 'f', "N", DT_TAKES_VALUE, DT_ONCE,                           \
      "ratio of successive sizes, default 2", "")                                                  \
    X(DT_OPTION_ITERS, "iters", 'n', "N", DT_TAKES_VALUE, DT_ONCE,                                 \
      "timed allreduces per size, default 20", "")                                                 \
    X(DT_OPTION_WARMUP, "warmup_iters", 'w', "N", DT_TAKES_VALUE, DT_ONCE,                         \
      "untimed allreduces before them, default 5", "")                                             \
    X(DT_OPTION_CHECK, "check", 'c', "N", DT_TAKES_VALUE, DT_ONCE,                                 \
      "allreduces per size whose values are checked, default 1", "")                               \
    X(DT_OPTION_LATENCY, "latency", 0, "US", DT_TAKES_VALUE, DT_ONCE,                              \
      "simulate this latency per message (algorithms only)",                                       \
      "The latency is added to the time of a real message. With `hierarchical`, only messages "    \
      "between hosts are slow.")                                                                   \
    X(DT_OPTION_BANDWIDTH, "bandwidth", 0, "GBS", DT_TAKES_VALUE, DT_ONCE,                         \
      "simulate links of this many GB/s (algorithms only)",                                        \
      "Messages queue on the links of their two ranks. Only algorithms whose messages dtrain "     \
      "sends itself are measured.")                                                                \
    X(DT_OPTION_ALGORITHM, "algorithm", 0, "NAME", DT_TAKES_VALUE, DT_ONCE,                        \
      "allreduce algorithm, default ring; any name of the table that the lesson prints", "")       \
    X(DT_OPTION_RANKS, "ranks", 0, "N", DT_TAKES_VALUE, DT_ONCE,                                   \
      "number of ranks, default 4, at most 8", "")                                                 \
    X(DT_OPTION_ELEMENTS, "elements", 0, "N", DT_TAKES_VALUE, DT_ONCE,                             \
      "floats on each rank, default: the number of ranks", "")                                     \
    X(DT_OPTION_HTML, "html", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                                  \
      "write the result as a page to this file; - is standard output",                             \
      "The page is one file that needs no network.")                                               \
    X(DT_OPTION_FORCE, "force", 0, "", DT_TAKES_NOTHING, DT_ONCE,                                  \
      "replace files that are not earlier results of dtrain", "")                                  \
    X(DT_OPTION_NODES, "nodes", 0, "N", DT_TAKES_VALUE, DT_ONCE, "number of nodes, default 1", "") \
    X(DT_OPTION_NTASKS_PER_NODE, "ntasks-per-node", 0, "N", DT_TAKES_VALUE, DT_ONCE,               \
      "ranks per node, default 4, or one per GPU", "")                                             \
    X(DT_OPTION_CPUS_PER_TASK, "cpus-per-task", 0, "N", DT_TAKES_VALUE, DT_ONCE,                   \
      "cores, and so threads, per rank, default 1", "")                                            \
    X(DT_OPTION_GPUS_PER_NODE, "gpus-per-node", 0, "N", DT_TAKES_VALUE, DT_ONCE,                   \
      "GPUs per node, default none", "")                                                           \
    X(DT_OPTION_TIME, "time", 0, "[D-]HH:MM:SS", DT_TAKES_VALUE, DT_ONCE,                          \
      "time limit of the job, default 01:00:00", "")                                               \
    X(DT_OPTION_PARTITION, "partition", 0, "NAME", DT_TAKES_VALUE, DT_ONCE,                        \
      "partition to run in, default the cluster's", "")                                            \
    X(DT_OPTION_ACCOUNT, "account", 0, "NAME", DT_TAKES_VALUE, DT_ONCE,                            \
      "account to charge, default the cluster's", "")                                              \
    X(DT_OPTION_SCRIPT, "script", 0, "FILE", DT_TAKES_VALUE, DT_ONCE,                              \
      "write the script to this new file, default stdout", "")                                     \
    X(DT_OPTION_HELP, "help", 'h', "", DT_TAKES_NOTHING, DT_COMMON,                                \
      "print the commands, or the options and examples of one", "")                                \
    X(DT_OPTION_VERSION, "version", 0, "", DT_TAKES_NOTHING, DT_COMMON,                            \
      "print version, MPI, instruction set and build", "")                                         \
    X(DT_OPTION_PRINT_CONFIG, "print-config", 0, "", DT_TAKES_NOTHING, DT_ONCE,                    \
      "print the configuration with all defaults filled in", "")

enum dt_option { DT_OPTION_LIST(DT_NAMED_ENUM) DT_N_OPTIONS };

struct dt_option_row {
    const char *name;
    char letter;
    const char *value;
    enum dt_value takes;
    enum dt_use use;
    const char *meaning, *more;
};
extern const struct dt_option_row dt_options[DT_N_OPTIONS];

#endif
