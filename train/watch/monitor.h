/* What a run does by a metric of the test samples, epoch after epoch: it ends when that no longer
 * improves (train.early_stopping), or goes on at a lower rate (train.schedule, "plateau"); and it
 * keeps the best checkpoint (checkpoint.best). Patience and min_delta mean what they mean in
 * Keras's EarlyStopping and ReduceLROnPlateau.
 *
 * The metric is the mean of sums over all ranks, the same bits on each, so all decide alike. What
 * there is to remember is in the trainer's state, which checkpoints have: a resumed run decides as
 * it would have. Only whole epochs count. */
#ifndef DT_TRAIN_WATCH_MONITOR_H
#define DT_TRAIN_WATCH_MONITOR_H

#include "train/trainer.h"

struct dt_monitor_result {
    bool is_best;      /* of all epochs so far, by checkpoint.best */
    bool is_reduced;   /* the learning rate, from the next step on */
    double best_value; /* before: for dt_monitor_take_back */
    uint64_t best_epoch;
};

/* The epoch after state.epoch is done, and evaluated. */
struct dt_monitor_result dt_monitor_epoch(struct dt_trainer *trainer,
                                          const struct dt_metrics *test);

/* What was the best could not be saved: that of before still is. */
void dt_monitor_take_back(struct dt_trainer *trainer, const struct dt_monitor_result *result);

/* Between epochs: whether early stopping ends the run. */
bool dt_monitor_stops(const struct dt_trainer *trainer);

/* After a restore, on every rank. */
void dt_monitor_restore(struct dt_trainer *trainer);
/* What a state has of metrics that `before` went by and the trainer's configuration does not. */
void dt_monitor_forget(const struct dt_config *before, const struct dt_config *now,
                       struct dt_checkpoint_state *state);

/* For people: how it stands with early stopping, and with the best checkpoint. */
struct dt_monitored dt_monitor_stopping(const struct dt_trainer *trainer);
struct dt_monitored dt_monitor_best(const struct dt_trainer *trainer);

#endif
