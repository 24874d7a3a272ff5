/* The command line: `dtrain [command] [options]`. The options are listed once, in DT_OPTION_LIST;
 * the parser and --help use it. */
#ifndef DT_CLI_ARGS_H
#define DT_CLI_ARGS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "lab/lessons.h"

#define DT_HELP_USES "(--checkpoint FILE | --config FILE --weights FILE)"
#define DT_HELP_SETS "[--set KEY.PATH=VALUE]..."

/* X(constant, word or NULL, meaning, usage, examples, ...): what the program is to do; lessons have
 * more. Those without a word are asked for by an option. */
#define DT_COMMAND_LIST(X)                                                                        \
    X(DT_COMMAND_TRAIN, "train", "train a model; the word may be left out",                       \
      "mpirun -np 4 dtrain [train] --config FILE [--data DIR] [--run DIR]\n"                      \
      "      [--resume[=CHECKPOINT]] [--weights FILE] " DT_HELP_SETS                              \
      "\n      [--inject FAULT]...",                                                              \
      "  mpirun -np 4 dtrain --config configs/mnist.json --data data/mnist \\\n"                  \
      "      --run runs/night\n"                                                                  \
      "  mpirun -np 2 dtrain --config configs/mnist.json --set train.epochs=1 \\\n"               \
      "      --set 'train.batch={\"global\":384}'\n"                                              \
      "  mpirun -np 2 dtrain --config configs/mnist.json \\\n"                                    \
      "      --set model.layers.1.filters=16\n"                                                   \
      "  srun --mpi=pmi2 dtrain --config configs/mnist.json --run runs/night --resume\n")         \
    X(DT_COMMAND_EVAL, "eval", "measure a checkpoint on the test samples",                        \
      "dtrain eval " DT_HELP_USES "\n      [--data DIR] " DT_HELP_SETS,                           \
      "  dtrain eval --checkpoint runs/night\n  dtrain eval \\\n      --checkpoint "              \
      "runs/night/checkpoints/step-000000001416.safetensors\n")                                   \
    X(DT_COMMAND_PREDICT, "predict", "classify PNG images with a checkpoint",                     \
      "dtrain predict " DT_HELP_USES "\n      [--invert auto|yes|no] " DT_HELP_SETS               \
      " IMAGE.png...",                                                                            \
      "  dtrain predict \\\n      --checkpoint "                                                  \
      "runs/night/checkpoints/step-000000001416.safetensors \\\n      IMAGE.png\n")               \
    X(DT_COMMAND_EXPORT, "export", "write a trained model for other runtimes, as ONNX",           \
      "dtrain export --onnx FILE " DT_HELP_USES "\n      " DT_HELP_SETS,                          \
      "  dtrain export --onnx model.onnx \\\n      --checkpoint "                                 \
      "runs/night/checkpoints/step-000000001416.safetensors\n")                                   \
    X(DT_COMMAND_PLAN, "plan", "show layers, parameters, memory and shards",                      \
      "dtrain plan --config FILE [--data DIR] " DT_HELP_SETS,                                     \
      "  dtrain plan --config configs/mnist.json\n")                                              \
    X(DT_COMMAND_REPORT, "report", "a page about a run, or about several side by side",           \
      "dtrain report RUN... [--html FILE] [--data DIR]", "  dtrain report runs/night\n")          \
    X(DT_COMMAND_COMPARE, "compare", "results of runs, and where their configurations differ",    \
      "dtrain compare RUN RUN...", "  dtrain compare runs/night runs/day\n")                      \
    X(DT_COMMAND_WATCH, "watch", "a run while it is under way, from its folder",                  \
      "dtrain watch RUN", "  dtrain watch runs/night\n")                                          \
    X(DT_COMMAND_DOCTOR, "doctor", "check this allocation and report problems",                   \
      "mpirun -np 4 dtrain doctor [--config FILE] [--data DIR] [--run DIR]\n      " DT_HELP_SETS, \
      "  mpirun -np 4 dtrain doctor\n"                                                            \
      "  srun --mpi=pmi2 dtrain doctor --config configs/mnist.json --run runs/night\n")           \
    X(DT_COMMAND_ACCEPT, "accept", "PASS or FAIL for what a cluster must be able to do",          \
      "mpirun -np 4 dtrain accept [--short] [--run DIR] [--baseline FILE]\n"                      \
      "      [--junit FILE] [--json FILE] [--html FILE] [--inject FAULT]...",                     \
      "  srun --mpi=pmi2 dtrain accept --run runs/acceptance --junit accept.xml\n")               \
    X(DT_COMMAND_SWEEP, "sweep", "a training for each combination of values",                     \
      "mpirun -np 4 dtrain sweep --config FILE [--data DIR] [--run DIR] [--resume]\n"             \
      "      --set KEY.PATH=VALUE,VALUE... [--set ...]",                                          \
      "  mpirun -np 2 dtrain sweep --config configs/mnist-mlp.json \\\n"                          \
      "      --set train.optimizer.lr=0.01,0.001 --set model.layers.1.units=64,256\n")            \
    X(DT_COMMAND_SLURM, "slurm", "write the batch script of a job, and have Slurm check it",      \
      "dtrain slurm --config FILE [--nodes N] [--ntasks-per-node N]\n"                            \
      "      [--cpus-per-task N] [--gpus-per-node N] [--time [D-]HH:MM:SS]\n"                     \
      "      [--partition NAME] [--account NAME] [--data DIR] [--run DIR]\n      " DT_HELP_SETS   \
      " [--script FILE]",                                                                         \
      "  dtrain slurm --config configs/mnist.json --nodes 2 --time 00:20:00 \\\n"                 \
      "      --script night.sbatch\n")                                                            \
    X(DT_COMMAND_BENCH_BLOCKS, "bench blocks", "time each block, beside the core's peak",         \
      "mpirun -np 2 dtrain bench blocks --config FILE [--data DIR]\n      " DT_HELP_SETS          \
      " [--json FILE]",                                                                           \
      "  dtrain bench blocks --config configs/mnist.json --data data/mnist \\\n      --set "      \
      "threads=1\n")                                                                              \
    X(DT_COMMAND_BENCH_SCALING, "bench scaling", "time training steps of 1, 2, 4, ... ranks",     \
      "mpirun -np 4 dtrain bench scaling --config FILE [--data DIR]\n      " DT_HELP_SETS         \
      " [--json FILE] [--html FILE]",                                                             \
      "  mpirun -np 4 dtrain bench scaling --config configs/mnist.json \\\n      --html "         \
      "scaling.html\n")                                                                           \
    X(DT_COMMAND_BENCH_ALLREDUCE, "bench allreduce", "time allreduces, in nccl-tests' columns",   \
      "mpirun -np 4 dtrain bench allreduce [-b BYTES] [-e BYTES] [-f N] [-n N]\n"                 \
      "      [-w N] [-c N] [--algorithms ring,tree] [--latency US] [--bandwidth GBS]\n"           \
      "      " DT_HELP_SETS " [--json FILE]",                                                     \
      "  mpirun -np 2 dtrain bench allreduce\n")                                                  \
    DT_LESSON_LIST(X)                                                                             \
    X(DT_COMMAND_HELP, "help", "list the commands; help COMMAND: its options and examples",       \
      "dtrain help [COMMAND]", "  dtrain help train\n")                                           \
    X(DT_COMMAND_VERSION, NULL, "", "", "")                                                       \
    X(DT_COMMAND_HELP_CONFIG, NULL, "", "", "")                                                   \
    X(DT_COMMAND_PRINT_CONFIG, NULL, "", "", "")

#define DT_COMMAND_ENUM(constant, ...) constant,
enum dt_command { DT_COMMAND_LIST(DT_COMMAND_ENUM) };
#undef DT_COMMAND_ENUM
#define DT_COMMAND_ONE(...) +1
#define DT_N_COMMANDS (0 DT_COMMAND_LIST(DT_COMMAND_ONE))

struct dt_command_row {
    const char *word, *meaning, *usage,
        *examples; /* word: NULL from the first one on that an option asks for */
};
extern const struct dt_command_row dt_commands[DT_N_COMMANDS];

struct dt_args {
    enum dt_command command;
    char *line;              /* all of it, and how it was launched: cli/launch_line.h; owned */
    const char *about;       /* help: of which commands, "train" or "bench"; NULL: of all */
    const char *config;      /* train, plan, bench blocks and scaling, --print-config: always set;
                                elsewhere with `weights` */
    const char *data;        /* NULL: what the config says */
    const char *run;         /* NULL: runs/<config name>/<UTC time> */
    bool resume;             /* --resume */
    const char *resume_from; /* --resume=CHECKPOINT; NULL: the newest of the run */
    const char *checkpoint;  /* eval, predict, export: this or, with `config`, `weights` is set */
    const char *weights;     /* train: initial ones, or NULL */
    const char *invert;      /* predict; NULL: auto */
    const char **sets;       /* owned; texts are argv's */
    int n_sets;
    const char **injects; /* train; owned; texts are argv's */
    int n_injects;
    const char *
        *paths; /* predict: images, report, watch: runs, at least one; owned; texts are argv's */
    int n_paths;
    const char *onnx;       /* export */
    const char *junit;      /* accept; NULL: no file */
    const char *baseline;   /* accept; NULL: none */
    bool quick;             /* accept: --short */
    const char *json;       /* accept, bench; NULL: no file */
    const char *algorithms; /* bench allreduce; NULL: all there are */
    const char *min_bytes, *max_bytes, *factor, *iters, *warmup,
        *check;                               /* bench allreduce; NULL: the default */
    const char *latency, *bandwidth;          /* bench allreduce; NULL: as the network is */
    const char *algorithm, *ranks, *elements; /* lab allreduce; NULL: the default */
    const char *batch;                        /* lab linear; NULL: all */
    const char *html;                         /* NULL: no page */
    const char *nodes, *ntasks_per_node, *cpus_per_task,
        *gpus_per_node;                     /* slurm; NULL: the default */
    const char *time, *partition, *account; /* slurm; NULL: as the template has it */
    const char *script;                     /* slurm; NULL: stdout */
};

#define DT_REPORT_MAX_RUNS 8

/* DT_USAGE, with the nearest option or command in the text where there is one. A failed parse owes
 * nothing; argv must outlive `out`. */
enum dt_status dt_args_parse(int argc, char *const *argv, struct dt_args *out);
void dt_args_free(struct dt_args *args);

/* The value of an option: a whole number in [low, high]; with `unit` also K, M and G. NULL leaves
 * `out` as it is. DT_USAGE. */
enum dt_status dt_args_number(const char *option, const char *text, bool unit, size_t low,
                              size_t high, size_t *out);

/* The same for any number, such as 0.5. */
enum dt_status dt_args_decimal(const char *option, const char *text, double low, double high,
                               double *out);

/* Help in 80 columns: the commands and what holds for all, or usage, options and examples of those
 * that `about` names. */
void dt_args_help(FILE *out, const char *about);

#endif
