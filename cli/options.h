/* The options of the command line, for its parser and its help. */
#ifndef DT_CLI_OPTIONS_H
#define DT_CLI_OPTIONS_H

#include "cli/args.h"

enum takes { TAKES_NOTHING, TAKES_VALUE, TAKES_OPTIONAL_VALUE };

#define ON(command) (1u << DT_COMMAND_##command)
#define ON_RUNS                                                                                   \
    (ON(TRAIN) | ON(PLAN) | ON(PRINT_CONFIG) | ON(BENCH_BLOCKS) | ON(BENCH_SCALING) | ON(SLURM) | \
     ON(SWEEP))
#define ON_USES (ON(EVAL) | ON(PREDICT) | ON(EXPORT))
#define ON_SUMS ON(BENCH_ALLREDUCE)
#define ON_PATHS \
    (ON(PREDICT) | ON(REPORT) | ON(COMPARE) | ON(WATCH)) /* take names of files or folders, too */
#define ON_ALL 0xFFFFFFFFu
#define ON_LESSON(constant, ...) | (1u << constant)
#define ON_PAGES ((0u DT_LESSON_LIST(ON_LESSON)) | ON(BENCH_SCALING))

/* X(constant, name, letter or 0, value, takes, commands, meaning). Those of `bench allreduce` are
 * called as nccl-tests call them.
 */
#define DT_OPTION_LIST(X)                                                                        \
    X(OPTION_CONFIG, "config", 0, "FILE", TAKES_VALUE,                                           \
      ON_RUNS | ON_USES | ON(LAB_MODEL_PARALLEL) | ON(DOCTOR),                                   \
      "the configuration, JSON (see --help-config)")                                             \
    X(OPTION_DATA, "data", 0, "DIR", TAKES_VALUE, ON_RUNS | ON(EVAL) | ON(REPORT) | ON(DOCTOR),  \
      "folder of the IDX files, in place of data.dir")                                           \
    X(OPTION_RUN, "run", 0, "DIR", TAKES_VALUE,                                                  \
      ON(TRAIN) | ON(DOCTOR) | ON(ACCEPT) | ON(SLURM) | ON(SWEEP),                               \
      "the run's files; default runs/<config name>/<UTC time>")                                  \
    X(OPTION_RESUME, "resume", 0, "CHECKPOINT", TAKES_OPTIONAL_VALUE, ON(TRAIN) | ON(SWEEP),     \
      "resume from this file or run, or from the newest checkpoint in --run; fresh start if it " \
      "has none")                                                                                \
    X(OPTION_SET, "set", 0, "KEY.PATH=VALUE", TAKES_VALUE,                                       \
      ON_RUNS | ON_USES | ON_SUMS | ON(DOCTOR),                                                  \
      "change a key of the configuration; may be given many times")                              \
    X(OPTION_INJECT, "inject", 0, "FAULT", TAKES_VALUE, ON(TRAIN) | ON(ACCEPT),                  \
      "inject a fault to see how the run reacts (see docs/distributed.md); may be given many "   \
      "times")                                                                                   \
    X(OPTION_CHECKPOINT, "checkpoint", 0, "FILE", TAKES_VALUE, ON_USES,                          \
      "a .safetensors file of an earlier run, or its folder: the best checkpoint or the newest") \
    X(OPTION_WEIGHTS, "weights", 0, "FILE", TAKES_VALUE, ON(TRAIN) | ON_USES,                    \
      "load weights from this .safetensors file (e.g. saved by PyTorch with matching names and " \
      "shapes)")                                                                                 \
    X(OPTION_INVERT, "invert", 0, "auto|yes|no", TAKES_VALUE, ON(PREDICT),                       \
      "invert the image; auto: only if its background differs from the training images'")        \
    X(OPTION_ONNX, "onnx", 0, "FILE", TAKES_VALUE, ON(EXPORT),                                   \
      "write the model to this file, which other runtimes load")                                 \
    X(OPTION_JSON, "json", 0, "FILE", TAKES_VALUE,                                               \
      ON(BENCH_BLOCKS) | ON(BENCH_SCALING) | ON_SUMS | ON(ACCEPT),                               \
      "also write the measurements to this file")                                                \
    X(OPTION_JUNIT, "junit", 0, "FILE", TAKES_VALUE, ON(ACCEPT),                                 \
      "also write the rows to this file, as JUnit XML")                                          \
    X(OPTION_BASELINE, "baseline", 0, "FILE", TAKES_VALUE, ON(ACCEPT),                           \
      "compare with an earlier run's --json FILE: a tenth worse fails")                          \
    X(OPTION_SHORT, "short", 0, "", TAKES_NOTHING, ON(ACCEPT),                                   \
      "measure for about ten seconds in all")                                                    \
    X(OPTION_ALGORITHMS, "algorithms", 0, "NAMES", TAKES_VALUE, ON_SUMS,                         \
      "allreduce algorithms, such as ring,tree; default all")                                    \
    X(OPTION_MIN_BYTES, "minbytes", 'b', "BYTES", TAKES_VALUE, ON_SUMS,                          \
      "the smallest allreduce, default 8; K, M and G are powers of 1024")                        \
    X(OPTION_MAX_BYTES, "maxbytes", 'e', "BYTES", TAKES_VALUE, ON_SUMS,                          \
      "the largest, default 32M, at most 1G")                                                    \
    X(OPTION_FACTOR, "stepfactor", 'f', "N", TAKES_VALUE, ON_SUMS,                               \
      "each size is N times the one before, default 2")                                          \
    X(OPTION_ITERS, "iters", 'n', "N", TAKES_VALUE, ON_SUMS,                                     \
      "timed allreduces of each size, default 20")                                               \
    X(OPTION_WARMUP, "warmup_iters", 'w', "N", TAKES_VALUE, ON_SUMS,                             \
      "untimed ones before them, default 5")                                                     \
    X(OPTION_CHECK, "check", 'c', "N", TAKES_VALUE, ON_SUMS,                                     \
      "allreduces of each size whose values are checked, default 1")                             \
    X(OPTION_LATENCY, "latency", 0, "US", TAKES_VALUE, ON_SUMS,                                  \
      "as if each message took so many microseconds; algorithms alone")                          \
    X(OPTION_BANDWIDTH, "bandwidth", 0, "GBS", TAKES_VALUE, ON_SUMS,                             \
      "as if a rank's link carried so many GB/s; algorithms alone")                              \
    X(OPTION_ALGORITHM, "algorithm", 0, "NAME", TAKES_VALUE, ON(LAB_ALLREDUCE),                  \
      "the allreduce algorithm, default ring; any of the table that it prints")                  \
    X(OPTION_RANKS, "ranks", 0, "N", TAKES_VALUE,                                                \
      ON(LAB_ALLREDUCE) | ON(LAB_SHARDS) | ON(LAB_MODEL_PARALLEL) | ON(LAB_PIPELINE),            \
      "how many ranks, default 4, at most 8")                                                    \
    X(OPTION_ELEMENTS, "elements", 0, "N", TAKES_VALUE, ON(LAB_ALLREDUCE),                       \
      "floats on each rank, default as many as ranks")                                           \
    X(OPTION_BATCH, "batch", 0, "1|16|all", TAKES_VALUE, ON(LAB_LINEAR),                         \
      "samples of a rank's step, default all that it has")                                       \
    X(OPTION_HTML, "html", 0, "FILE", TAKES_VALUE, ON_PAGES | ON(REPORT) | ON(ACCEPT),           \
      "write a page with pictures to this file")                                                 \
    X(OPTION_NODES, "nodes", 0, "N", TAKES_VALUE, ON(SLURM), "nodes of the job, default 1")      \
    X(OPTION_NTASKS_PER_NODE, "ntasks-per-node", 0, "N", TAKES_VALUE, ON(SLURM),                 \
      "ranks on each, default 4, or one for each GPU")                                           \
    X(OPTION_CPUS_PER_TASK, "cpus-per-task", 0, "N", TAKES_VALUE, ON(SLURM),                     \
      "cores, and so threads, of a rank, default 1")                                             \
    X(OPTION_GPUS_PER_NODE, "gpus-per-node", 0, "N", TAKES_VALUE, ON(SLURM),                     \
      "GPUs of each node, default none")                                                         \
    X(OPTION_TIME, "time", 0, "[D-]HH:MM:SS", TAKES_VALUE, ON(SLURM),                            \
      "the job's time limit, default 01:00:00")                                                  \
    X(OPTION_PARTITION, "partition", 0, "NAME", TAKES_VALUE, ON(SLURM),                          \
      "partition to run in, default the cluster's")                                              \
    X(OPTION_ACCOUNT, "account", 0, "NAME", TAKES_VALUE, ON(SLURM),                              \
      "account to charge, default the cluster's")                                                \
    X(OPTION_SCRIPT, "script", 0, "FILE", TAKES_VALUE, ON(SLURM),                                \
      "write the script to this new file, default stdout")                                       \
    X(OPTION_HELP, "help", 'h', "", TAKES_NOTHING, ON_ALL,                                       \
      "print the commands, or the options and examples of one")                                  \
    X(OPTION_VERSION, "version", 0, "", TAKES_NOTHING, ON_ALL,                                   \
      "print version, MPI, instruction set and build")                                           \
    X(OPTION_HELP_CONFIG, "help-config", 0, "", TAKES_NOTHING, ON_ALL,                           \
      "print every key of the configuration")                                                    \
    X(OPTION_PRINT_CONFIG, "print-config", 0, "", TAKES_NOTHING, ON(TRAIN) | ON(PRINT_CONFIG),   \
      "print the configuration with all defaults filled in")

/* What an option means to some of its commands, where that is another thing. X(constant, commands,
 * meaning) */
#define DT_OPTION_MEANING_LIST(X)                                                                \
    X(OPTION_CONFIG, ON_USES, "with --weights: the configuration of their model")                \
    X(OPTION_CONFIG, ON(DOCTOR),                                                                 \
      "also check that every rank can use this configuration and its data")                      \
    X(OPTION_DATA, ON(EVAL), "folder of the test images, in place of the checkpoint's data.dir") \
    X(OPTION_DATA, ON(REPORT),                                                                   \
      "folder of the test images, for the part about what the model learned")                    \
    X(OPTION_RUN, ON(DOCTOR), "folder in which a run is to write")                               \
    X(OPTION_RUN, ON(ACCEPT), "folder for its files; default runs/accept/<UTC time>")            \
    X(OPTION_RUN, ON(SLURM), "the job's run; default runs/<job name>-<job id>")                  \
    X(OPTION_RUN, ON(SWEEP), "folder for all runs; default runs/sweep-<config name>/<UTC time>") \
    X(OPTION_RESUME, ON(SWEEP), "go on with the runs in --run that have not ended; no value")    \
    X(OPTION_SET, ON(SWEEP),                                                                     \
      "values of a key, to be combined with those of the others; may be given many times")       \
    X(OPTION_SET, ON_USES, "with --weights: change a key of --config; may be given many times")  \
    X(OPTION_SET, ON_SUMS, "set a key of distributed, or threads; may be given many times")      \
    X(OPTION_INJECT, ON(ACCEPT),                                                                 \
      "inject a fault into the training (see docs/distributed.md), which must then fail")        \
    X(OPTION_WEIGHTS, ON_USES,                                                                   \
      "a .safetensors file of weights alone, e.g. saved by PyTorch; needs --config")             \
    X(OPTION_JSON, ON(ACCEPT),                                                                   \
      "also write the record to this file, which a later --baseline takes")                      \
    X(OPTION_RANKS, ON(LAB_ALLREDUCE), "how many ranks, default 4, at most 64")                  \
    X(OPTION_HTML, ON(LAB_ALLREDUCE),                                                            \
      "write a page with pictures to this file, of at most 16 ranks")                            \
    X(OPTION_HTML, ON(REPORT),                                                                   \
      "the page's file; default report.html in the run's folder, required for several runs")     \
    X(OPTION_HTML, ON(ACCEPT), "also write the record as a page, to be printed or sent")

#define OPTION_ENUM(constant, name, letter, value, takes, commands, meaning) constant,
enum option { DT_OPTION_LIST(OPTION_ENUM) N_OPTIONS };

/* Those that may be given many times. */
#define REPEATS(option) ((option) == OPTION_SET || (option) == OPTION_INJECT)

struct dt_option {
    const char *name;
    char letter;
    const char *value;
    enum takes takes;
    unsigned commands;
    const char *meaning;
};
extern const struct dt_option dt_options[N_OPTIONS];

/* Row i of DT_OPTION_MEANING_LIST; `text` is NULL behind the last. */
struct dt_option_meaning {
    enum option option;
    unsigned commands;
    const char *text;
};
extern const struct dt_option_meaning dt_option_meanings[];

#endif
