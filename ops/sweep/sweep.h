/* `dtrain sweep`: a training for each combination of values, one after another, or one on each rank
 * at a time: different models in parallel, where `train` has one model on all ranks. */
#ifndef DT_OPS_SWEEP_SWEEP_H
#define DT_OPS_SWEEP_SWEEP_H

#include "cli/args.h"
#include "dist/ranks/world.h"

/* Every rank calls it. Rank r trains runs r, r + size, ..., each in a world of its own and in a
 * folder of its own within that of the sweep, which ends with a table on stdout, sweep.csv, and a
 * page about the best runs. A run that fails is a row of the table, and the others go on; then the
 * first one's status is returned, but not that of a training that diverged: that is a result.
 * DT_USAGE, what loading a configuration says; DT_CANT_CREATE: the folder exists and is not to be
 * resumed; DT_CONFIG: a run of the folder has other values; DT_STOPPED: after a signal, with
 * checkpoints; DT_STALLED: a rank shows no sign of life. */
enum dt_status dt_sweep(struct dt_world *world, const struct dt_args *args);

#endif
