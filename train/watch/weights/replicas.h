/* Compares the replicas (dist/strategy/replica_check.h): every `distributed.check_every` steps, and
 * at the end, where the hash of the weights comes from. */
#ifndef DT_TRAIN_WATCH_WEIGHTS_REPLICAS_H
#define DT_TRAIN_WATCH_WEIGHTS_REPLICAS_H

#include "train/events.h"
#include "train/trainer.h"

/* Adds the watcher, behind all that may change weights. Every rank calls it; agreed. */
enum dt_status dt_replicas_open(struct dt_trainer *trainer, const struct dt_emitter *emitter);

#endif
