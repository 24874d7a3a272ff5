/* What a network looks like inside, between steps: for events that show it (struct dt_inspection).
 */
#ifndef DT_TRAIN_WATCH_INSPECT_H
#define DT_TRAIN_WATCH_INSPECT_H

#include "train/trainer.h"

/* Rank 0's view, after all weights were shared and the test samples evaluated. n_samples: of the
 * last step, over all ranks; 0: this process took none. Every rank calls it; agreed. All ranks
 * close it, also a failed or a zeroed one. */
enum dt_status dt_inspect(struct dt_trainer *trainer, double n_samples, struct dt_inspection *out);
void dt_inspection_close(struct dt_inspection *inspection);

#endif
