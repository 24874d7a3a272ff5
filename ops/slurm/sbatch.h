/* Has Slurm check a batch script. */
#ifndef DT_OPS_SLURM_SBATCH_H
#define DT_OPS_SLURM_SBATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define DT_SBATCH_LIMIT_S 30.0

/* Runs `sbatch --test-only` with the script on its stdin, and passes its output to stderr. Nothing
 * is submitted. `*found`: there is such a program on the PATH; if not, DT_OK. DT_UNAVAILABLE: it
 * rejects the script, or does not answer within DT_SBATCH_LIMIT_S. */
enum dt_status dt_sbatch_test(const char *script, size_t n, bool *found);

#endif
