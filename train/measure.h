/* Works out a training's events (train/events.h) from the trainer. */
#ifndef DT_TRAIN_MEASURE_H
#define DT_TRAIN_MEASURE_H

#include "train/events.h"
#include "train/trainer.h"

/* Everybody's row of the roster; the caller frees `out`, also of a failure. Every rank calls it. */
enum dt_status dt_measure_ranks(struct dt_trainer *trainer, struct dt_rank_info **out);

/* The run's event before the first step, without roster and files. Local. */
struct dt_run_event dt_measure_start(const struct dt_trainer *trainer);

/* Fills in the steps of the run so far, and this rank's times. Local. */
void dt_measure_here(const struct dt_trainer *trainer, struct dt_end_event *out);
/* The cost of the run: the ranks' times, into `ranks`, which has world->size elements, messages and
 * memory. Every rank calls it, after the last step. */
enum dt_status dt_measure_end(struct dt_trainer *trainer, struct dt_phase_times *ranks,
                              struct dt_end_event *out);

#endif
