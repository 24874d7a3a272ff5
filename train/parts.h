/* All parts of a trainer that there are (struct dt_trainer_parts): who names this links them. */
#ifndef DT_TRAIN_PARTS_H
#define DT_TRAIN_PARTS_H

#include "train/trainer.h"

extern const struct dt_trainer_parts dt_all_parts;

#endif
