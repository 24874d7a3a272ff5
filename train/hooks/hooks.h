/* The hooks there are (train/hook.h), most of them opened where the configuration asks for
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
#ifndef DT_TRAIN_HOOKS_HOOKS_H
#define DT_TRAIN_HOOKS_HOOKS_H

#include "train/train.h"
#include "train/trainer.h"

/* Fills in the events' roster, times, messages and memory. Every rank calls this and the following;
 * agreed. */
enum dt_status dt_measure_open(struct dt_trainer *trainer);
/* Where the model is a line: at the end every rank's line, in the order of ranks. */
enum dt_status dt_line_open(struct dt_trainer *trainer);
/* Behind all that may change weights. */
enum dt_status dt_replicas_open(struct dt_trainer *trainer, const struct dt_emitter *emitter);
/* The last of all, where the configuration has validation samples: those before it find the
 * evaluation as `test`, here it becomes `validation`; and at the end of the run they have read the
 * last weights before the best ones replace them. The test set's files are checked now. */
enum dt_status dt_validation_open(struct dt_trainer *trainer);

/* For struct dt_train_options: `context` is a const struct dt_faults, or NULL. */
enum dt_status dt_hooks_open(const void *context, struct dt_trainer *trainer,
                             const struct dt_emitter *emitter);

#endif
