/* The line lab: where a model is y = slope * x + intercept (one dense layer from one input to one
 * output, without an activation, on data of the format "linear"), a run ends with the line that
 * each rank has learned. There it shows what averaging and broadcasting are for
 * (docs/strategies.md). */
#ifndef DT_TRAIN_WATCH_LINE_H
#define DT_TRAIN_WATCH_LINE_H

#include "train/trainer.h"

/* A watcher, where the model is a line: at the end every rank's line, in the order of ranks. Every
 * rank calls it; agreed. */
enum dt_status dt_line_open(struct dt_trainer *trainer);

#endif
