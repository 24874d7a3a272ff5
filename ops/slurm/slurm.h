/* `dtrain slurm`: the batch script of a job, which is scripts/dtrain.sbatch with what the command
 * line says. */
#ifndef DT_OPS_SLURM_SLURM_H
#define DT_OPS_SLURM_SLURM_H

#include "cli/args.h"

/* scripts/dtrain.sbatch as it was when the program was built, ended by a zero. */
extern const char dt_batch_template[];

/* Writes it to stdout or to args->script, a new file, and has Slurm check it where there is one
 * (ops/slurm/sbatch.h). DT_USAGE, what loading the configuration says, DT_CONFIG: a strategy that
 * these ranks cannot follow. DT_CANT_CREATE: the file exists, or its folder does not; DT_IO.
 * DT_UNAVAILABLE: Slurm does not take it; the script is written all the same. */
enum dt_status dt_slurm(const struct dt_args *args);

#endif
