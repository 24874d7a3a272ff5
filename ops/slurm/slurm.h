/* `dtrain slurm`: writes the batch script of a job: scripts/dtrain.sbatch with the command line's
 * values. */
#ifndef DT_OPS_SLURM_SLURM_H
#define DT_OPS_SLURM_SLURM_H

/* scripts/dtrain.sbatch at build time, zero-terminated. */
extern const char dt_batch_template[];

#endif
