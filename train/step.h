/* The parts of a step, for drivers (train/trainer.h). */
#ifndef DT_TRAIN_STEP_H
#define DT_TRAIN_STEP_H

#include "train/trainer.h"

/* Gather, forward and backward of all micro-batches, gradients on their way. `clock`: the
 * trainer's, whose lap is under way; NULL: time is not taken. */
enum dt_status dt_step_passes(struct dt_trainer *trainer, const struct dt_batch *batch,
                              struct dt_strategy_step *step, struct dt_step_clock *clock);

/* For drivers that take several steps before the ranks agree on anything: `run` takes n steps of
 * this rank, and `local` becomes the result of each one's own samples. The ranks then add the
 * results, and driver.most becomes the number of steps that fit into `most_s` seconds, so that
 * progress is shown, a signal is heeded and divergence is noticed soon enough. */
enum dt_status dt_steps_together(struct dt_trainer *trainer, int n,
                                 enum dt_status (*run)(struct dt_trainer *trainer, int n,
                                                       struct dt_metrics *local),
                                 double most_s, struct dt_step_results *out);

/* Begins a step of state.epoch: its batch and update, and the passes of this rank's samples;
 * `local`: what came of them. */
enum dt_status dt_step_compute(struct dt_trainer *trainer, uint64_t step_in_epoch,
                               struct dt_strategy_step *out, struct dt_metrics *local);

/* The rate of a step of state.epoch. */
double dt_step_lr(const struct dt_trainer *trainer, uint64_t step_in_epoch);

#endif
