/* The roster of the ranks, and what a run has cost: times, messages, memory. */
#ifndef DT_TRAIN_WATCH_MEASURE_H
#define DT_TRAIN_WATCH_MEASURE_H

#include "train/trainer.h"

/* Adds a watcher that fills the events in. Every rank calls it; agreed. */
enum dt_status dt_measure_open(struct dt_trainer *trainer);

#endif
