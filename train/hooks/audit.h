/* An audit of the samples: of each step how many samples all ranks together used, and a sum of
 * hashes of their numbers. As sums have no order, they are the same at any number of ranks, and
 * those of an epoch's steps add up to that of 0 .. N-1 if each sample was used exactly once:
 * scripts/check-samples adds, over all starts of a run. */
#ifndef DT_TRAIN_HOOKS_AUDIT_H
#define DT_TRAIN_HOOKS_AUDIT_H

#include "train/train.h"

struct dt_audit_event {
    uint64_t step, epoch; /* from 1 */
    uint64_t n_samples;
    uint64_t hash; /* modulo 2^64, of a hash of each */
};

/* A hook, where the configuration has log.audit: an event after each step. Every rank calls it;
 * agreed. */
enum dt_status dt_audit_open(struct dt_trainer *trainer, const struct dt_emitter *emitter);

#endif
