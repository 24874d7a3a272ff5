/* Guards a run: a watchdog (dist/liveness/watchdog.h) for each rank, and in the run's folder
 * what tells of an end, however lonely:
 *
 *   status.json          exit code, and of an error its rank, host and text; by the rank that has
 *                        it, synced before anything is torn down. The first one stays
 *   flight-<rank>.json   of an end that is none of the training's own: the rank's last events */
#ifndef DT_TRAIN_HOOKS_GUARD_H
#define DT_TRAIN_HOOKS_GUARD_H

#include "train/train.h"

struct dt_guard;

/* Every rank calls it; agreed. */
enum dt_status dt_guard_open(struct dt_world *world, struct dt_guard **out);

/* A hook: the guard knows the steps, and from the first one on the folder, whose path
 * `folder` has by then. Every rank calls it; agreed. */
enum dt_status dt_guard_hook(struct dt_guard *guard, struct dt_trainer *trainer,
                             const char *folder);

/* The run has ended with `status`. Every rank calls it, unless it has failed alone. */
void dt_guard_close(struct dt_guard *guard, enum dt_status status);

#endif
