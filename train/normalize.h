/* data.normalize by the training images' own numbers. */
#ifndef DT_TRAIN_NORMALIZE_H
#define DT_TRAIN_NORMALIZE_H

#include "train/trainer.h"

/* Where the configuration wants it: finds mean and standard deviation of each channel over the
 * training images of all ranks, whole numbers that are added exactly and so the same at any number
 * of ranks; they take the place of "dataset" in the configuration, also as it is written, and the
 * training set is seen by them. Every rank calls it; agreed. */
enum dt_status dt_trainer_normalize(struct dt_trainer *trainer);

#endif
