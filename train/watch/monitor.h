/* Controls a run by a metric of the test samples, epoch after epoch: ends it when that no longer
 * improves (train.early_stopping), or continues at a lower rate (train.schedule, "plateau"), and
 * keeps the best checkpoint (checkpoint.best). Patience and min_delta mean what they mean in
 * Keras's EarlyStopping and ReduceLROnPlateau.
 *
 * The metric is the mean of sums over all ranks, the same bits on each, so all decide alike. What
 * there is to remember is in the trainer's state, which checkpoints have: a resumed run decides as
 * it would have. Only whole epochs count. */
#ifndef DT_TRAIN_WATCH_MONITOR_H
#define DT_TRAIN_WATCH_MONITOR_H

#include "train/trainer.h"

/* A watcher, where the configuration goes by a metric. Every rank calls it; agreed. */
enum dt_status dt_monitor_open(struct dt_trainer *trainer);

/* Removes metrics from a state that `before` used and the trainer's configuration does not. */
void dt_monitor_forget(const struct dt_config *before, const struct dt_config *now,
                       struct dt_checkpoint_state *state);

#endif
