/* Compares a training's memory with the host's, and finds a batch that fits: for struct
 * dt_trainer_parts. */
#ifndef DT_TRAIN_FIT_H
#define DT_TRAIN_FIT_H

#include "train/trainer.h"

/* Refuses what cannot fit before the machine starts to swap: the ranks of a host share its memory.
 * A device's own does not swap. Local. DT_CONFIG. */
enum dt_status dt_fit_check(const struct dt_trainer *trainer);

/* A device has too little memory, which the waiting text says: ends it with the cure. `search`: for
 * the network, whose largest batch is then found by trying, without a guess at what the device's
 * libraries take. Local. Returns DT_NO_MEMORY. */
enum dt_status dt_fit_advise(struct dt_trainer *trainer, bool search);

#endif
