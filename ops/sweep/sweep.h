/* `dtrain sweep`: trains every combination of values, one after another, or one on each rank at a
 * time: different models in parallel, where `train` has one model on all ranks. */
#ifndef DT_OPS_SWEEP_SWEEP_H
#define DT_OPS_SWEEP_SWEEP_H

#include "cli/args.h"
#include "dist/ranks/world.h"

/* Every rank calls it. Rank r trains runs r, r + size, ..., each in its own world and its own
 * folder within the sweep's, which ends with a table on stdout, sweep.csv, and a page about the
 * best runs. A failed run is a row of the table, and the others continue; then the first failure's
 * status is returned, except for a diverged training: that is a result. DT_USAGE, errors of loading
 * a configuration; DT_CANT_CREATE: the folder exists and --resume is missing; DT_CONFIG: a run of
 * the folder has other values; DT_STOPPED: after a signal, with checkpoints; DT_STALLED: a rank
 * gives no sign of life. */
enum dt_status dt_sweep(struct dt_world *world, const struct dt_args *args);

#endif
