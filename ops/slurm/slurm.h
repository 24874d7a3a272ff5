/* `dtrain slurm`: writes the batch script of a job: scripts/dtrain.sbatch with the command line's
 * values. */
#ifndef DT_OPS_SLURM_SLURM_H
#define DT_OPS_SLURM_SLURM_H

#include "cli/args.h"

/* scripts/dtrain.sbatch at build time, zero-terminated. */
extern const char dt_batch_template[];

/* Writes the script to stdout or to args->script, a new file, and has Slurm check it if Slurm is
 * there (ops/slurm/sbatch.h). DT_USAGE, errors of loading the configuration, DT_CONFIG: the
 * strategy does not fit these ranks. DT_CANT_CREATE: the file exists, or its folder does not;
 * DT_IO. DT_UNAVAILABLE: Slurm rejects the script, which is written all the same. */
enum dt_status dt_slurm(const struct dt_args *args);

#endif
