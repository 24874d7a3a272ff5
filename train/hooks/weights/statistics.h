/* Gives rank 0's running statistics (model/layers/layers.h) to all ranks before they evaluate. */
#ifndef DT_TRAIN_HOOKS_WEIGHTS_STATISTICS_H
#define DT_TRAIN_HOOKS_WEIGHTS_STATISTICS_H

#include "train/trainer.h"

/* Rank 0's become everybody's. Every rank calls it; agreed. */
enum dt_status dt_statistics_share(struct dt_trainer *trainer);

/* Adds the hook, if the model has such statistics. Every rank calls it; agreed. */
enum dt_status dt_statistics_open(struct dt_trainer *trainer);

#endif
