/* Controls a run by a metric of the validation samples, or without any of the test samples, epoch
 * after epoch: ends it when that no longer improves (train.early_stopping), or continues at a lower
 * rate (train.schedule, "plateau"), and keeps the best checkpoint (checkpoint.best). Patience and
 * min_delta mean what they mean in Keras's EarlyStopping and ReduceLROnPlateau.
 *
 * The metric is the mean of sums over all ranks, the same bits on each, so all decide alike. What
 * there is to remember is in the trainer's state, which checkpoints have: a resumed run decides as
 * it would have. Only whole epochs count. */
#ifndef DT_TRAIN_HOOKS_MONITOR_H
#define DT_TRAIN_HOOKS_MONITOR_H

#include "train/train.h"
#include "train/trainer.h"

/* Adds the hook if the configuration names a metric, and warns if that is a metric of the test
 * samples. Every rank calls it; agreed. */
enum dt_status dt_monitor_open(struct dt_trainer *trainer, const struct dt_emitter *emitter);

static inline bool dt_metric_is_loss(enum dt_test_metric metric)
{
    return metric == DT_TEST_LOSS || metric == DT_VALIDATION_LOSS || metric == DT_EMA_TEST_LOSS ||
           metric == DT_EMA_VALIDATION_LOSS;
}

static inline bool dt_metric_is_of_test(enum dt_test_metric metric)
{
    return metric == DT_TEST_LOSS || metric == DT_TEST_ACCURACY || metric == DT_EMA_TEST_LOSS ||
           metric == DT_EMA_TEST_ACCURACY;
}

/* Of the average of the weights (train/hooks/weights/ema.h): the last ones of the list. */
static inline bool dt_metric_is_of_average(enum dt_test_metric metric)
{
    return metric >= DT_EMA_TEST_LOSS;
}

/* Removes metrics from a state that `before` used and the trainer's configuration does not. */
void dt_monitor_forget(const struct dt_config *before, const struct dt_config *now,
                       struct dt_checkpoint_state *state);

#endif
