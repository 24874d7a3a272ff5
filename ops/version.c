/* --version: several lines about the program, the MPI it is linked with, the instruction set chosen
 * here, the libraries for GPUs or why there are none. The build defines what this alone needs:
 * DTRAIN_BUILD_TYPE and DTRAIN_COMPILER. */
#include "base/version.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/sinks/fields.h"
#include "cli/sinks/protobuf.h"
#include "cpu/isa.h"
#include "dist/ranks/launch/job.h"
#include "ops/doctor/doctor.h"
#include "train/device.h"

static enum dt_status version(const struct dt_args *args)
{
    FILE *out = stdout;
    (void)args;
    fprintf(out, "dtrain %s (commit %s)\n", dt_version, dt_commit);
    fprintf(out, "  build     %s, %s %s\n", DTRAIN_BUILD_TYPE, DTRAIN_COMPILER, __VERSION__);
    fprintf(out, "  MPI       %s\n", dt_mpi_version());
    fprintf(out, "  CPU       %s\n", dt_cpu_isa());
    fprintf(out, "  topology  %s\n", dt_topology_library());
    fprintf(out, "  protobuf  %s\n", dt_protobuf_library());
    const struct dt_device_module *module = NULL;
    const bool found = dt_device_load(&module) == DT_OK;
    dt_text_print(out, "  GPU       %s", found ? module->versions() : dt_error_text());
    fprintf(out, "  devices   cpu, ref%s\n", found ? ", cuda" : "");
    dt_error_clear();
    return DT_OK;
}

const struct dt_command dt_command_version = {
    .word = "--version",
    .informative = true,
    .alone = version,
};
