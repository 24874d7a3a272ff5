/* The watchers there are (train/watcher.h), most of them opened where the configuration asks for
 * it:
 *
 *   measure.c   the roster, and what a run costs
 *   inject.c    puts faults into a run       learned.c  answers to the test samples
 *   timeline.c  what every rank did when     inspect.c  what the network looks like inside
 *   monitor.c   early stopping, plateaus     line.c     the line lab's slope and intercept
 *   audit.c     which samples steps use
 *
 * and, of the weights themselves, in weights/:
 *
 *   replicas.c    are the replicas still equal?
 *   ema.c         their average over the steps
 *   statistics.c  running statistics of rank 0, for all ranks
 *   validation.c  the best ones, by validation samples; the test set once, at the end
 *
 * Beside them guard.c, which needs to be there before the trainer. */
#ifndef DT_TRAIN_WATCH_WATCH_H
#define DT_TRAIN_WATCH_WATCH_H

#include "train/train.h"

/* For struct dt_train_options: `context` is a const struct dt_faults, or NULL. */
enum dt_status dt_watch_all(const void *context, struct dt_trainer *trainer,
                            const struct dt_emitter *emitter);

#endif
