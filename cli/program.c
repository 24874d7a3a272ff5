/* The commands of the program. */
#include "cli/args.h"
#include "report/run.h"

/* X(name): the row is dt_command_<name>, in the file of the command. In the order of the help. */
#define COMMAND_LIST(X)   \
    X(train)              \
    X(init)               \
    X(plan)               \
    X(eval)               \
    X(predict)            \
    X(export)             \
    X(report)             \
    X(runs)               \
    X(doctor)             \
    X(accept)             \
    X(bench_model)        \
    X(bench_allreduce)    \
    X(bench_scaling)      \
    X(sweep)              \
    X(slurm)              \
    X(lab)                \
    X(lab_gradtape)       \
    X(lab_linear)         \
    X(lab_reduce)         \
    X(lab_allreduce)      \
    X(lab_lr)             \
    X(lab_shards)         \
    X(lab_batch)          \
    X(lab_bits)           \
    X(lab_server)         \
    X(lab_compression)    \
    X(lab_stragglers)     \
    X(lab_model_parallel) \
    X(lab_pipeline)       \
    X(help)               \
    X(version)            \
    X(print_config)

#define DECLARE(name) extern const struct dt_command dt_command_##name;
COMMAND_LIST(DECLARE)

#define ROW(name) &dt_command_##name,
static const struct dt_command *const commands[] = {COMMAND_LIST(ROW) NULL};

const struct dt_program dt_program = {.commands = commands, .reader = &dt_run_reader};
