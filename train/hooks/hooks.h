/* The hooks there are (train/hook.h), most of them opened where the configuration asks for
 * it:
 *
 *   cost.c      the roster, and what a run costs
 *   inject.c    puts faults into a run       learned.c  answers to the test samples
 *   inspect.c   what the network looks like  timeline_hook.c  what every rank did when
 *   audit.c     which samples steps use      line.c     the line lab's slope and intercept
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
/* For struct dt_train_options: `context` is a const struct dt_faults, or NULL. */
enum dt_status dt_hooks_open(const void *context, struct dt_trainer *trainer,
                             const struct dt_emitter *emitter);

#endif
