/* A run with a validation set (data.validation): the evaluations of its epochs are of that set, and
 * the test set is evaluated once, when the run ends well: with the weights of the best checkpoint
 * where there is one, else with the last ones. */
#ifndef DT_TRAIN_WATCH_WEIGHTS_VALIDATION_H
#define DT_TRAIN_WATCH_WEIGHTS_VALIDATION_H

#include "train/trainer.h"

/* The last watcher of all, where the configuration has validation samples: those before it find the
 * evaluation as `test`, here it becomes `validation`; and at the end of the run they have read the
 * last weights before the best ones replace them. The test set's files are checked now. Every rank
 * calls it; agreed. */
enum dt_status dt_validation_open(struct dt_trainer *trainer);

#endif
