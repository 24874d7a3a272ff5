/* The commands of the program, and `--version`, for which the build defines DTRAIN_BUILD_TYPE,
 * DTRAIN_COMPILER and DTRAIN_TOPOLOGY. */
#include "base/status.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/sinks/fields.h"
#include "cli/sinks/protobuf.h"
#include "cpu/isa.h"
#include "dist/launch/launch.h"
#include "report/run.h"
#include "train/device.h"

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

static enum dt_status version(const struct dt_args *args)
{
    const struct dt_device_module *module = NULL;
    const bool found = dt_device_load(&module) == DT_OK;
    (void)args;
    printf("dtrain %s (commit %s)\n", dt_version, dt_commit);
    printf("  build     %s, %s %s\n", DTRAIN_BUILD_TYPE, DTRAIN_COMPILER, __VERSION__);
    printf("  MPI       %s\n", dt_mpi_version());
    printf("  CPU       %s\n", dt_cpu_isa());
    printf("  topology  %s\n", DTRAIN_TOPOLOGY);
    printf("  protobuf  %s\n", dt_protobuf_library());
    dt_text_print(stdout, "  GPU       %s", found ? module->versions() : dt_error_text());
    printf("  devices   cpu, ref%s\n  searched  %s\n", found ? ", cuda" : "", dt_device_libraries);
    dt_error_clear();
    return DT_OK;
}

const struct dt_command dt_command_version = {
    .word = "--version",
    .informative = true,
    .alone = version,
};
