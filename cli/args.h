/* The command line: `dtrain [command] [options]`. The options are listed once, in DT_OPTION_LIST; the parser and --help use it. */
#ifndef DT_CLI_ARGS_H
#define DT_CLI_ARGS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* X(constant, word or NULL, meaning): what the program is to do. Those without a word are asked for by an option. */
#define DT_COMMAND_LIST(X)                                                                                               \
    X(DT_COMMAND_TRAIN, "train", "train the model; what happens when no command is given")                               \
    X(DT_COMMAND_EVAL, "eval", "measure a checkpoint on the test samples")                                               \
    X(DT_COMMAND_PREDICT, "predict", "classify PNG images with a checkpoint")                                            \
    X(DT_COMMAND_PLAN, "plan", "show layers, parameters, memory and what each rank reads; no training")                  \
    X(DT_COMMAND_BENCH_BLOCKS, "bench blocks", "time each block of the model in training steps, beside the core's peak") \
    X(DT_COMMAND_BENCH_ALLREDUCE, "bench allreduce", "time sums over the ranks by size, in nccl-tests' columns")         \
    X(DT_COMMAND_HELP, "help", "print this text")                                                                        \
    X(DT_COMMAND_VERSION, NULL, "")                                                                                      \
    X(DT_COMMAND_HELP_CONFIG, NULL, "")                                                                                  \
    X(DT_COMMAND_PRINT_CONFIG, NULL, "")

#define DT_COMMAND_ENUM(constant, word, meaning) constant,
enum dt_command { DT_COMMAND_LIST(DT_COMMAND_ENUM) };
#undef DT_COMMAND_ENUM

struct dt_args {
    enum dt_command command;
    const char *config;      /* train, plan, bench blocks, --print-config: always set; eval, predict: with `weights` */
    const char *data;        /* NULL: what the config says */
    const char *run;         /* NULL: runs/<config name>/<UTC time> */
    bool resume;             /* --resume */
    const char *resume_from; /* --resume=CHECKPOINT; NULL: the newest of the run */
    const char *checkpoint;  /* eval, predict: this or, with `config`, `weights` is set */
    const char *weights;     /* train: initial ones, or NULL */
    const char *invert;      /* predict; NULL: auto */
    const char **sets;       /* owned; texts are argv's */
    int n_sets;
    const char **images; /* predict: at least one; owned; texts are argv's */
    int n_images;
    const char *json;                                                    /* bench; NULL: no file */
    const char *min_bytes, *max_bytes, *factor, *iters, *warmup, *check; /* bench allreduce; NULL: the default */
};

/* DT_USAGE, with the nearest option or command in the text where there is one. A failed parse owes nothing; argv must outlive
 * `out`. */
enum dt_status dt_args_parse(int argc, char *const *argv, struct dt_args *out);
void dt_args_free(struct dt_args *args);

void dt_args_help(FILE *out);

#endif
