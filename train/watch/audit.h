/* An audit of the samples: of each step how many samples all ranks together used, and a sum of
 * hashes of their numbers. As sums have no order, they are the same at any number of ranks, and
 * those of an epoch's steps add up to that of 0 .. N-1 if each sample was used exactly once:
 * scripts/check-samples adds, over all starts of a run. */
#ifndef DT_TRAIN_WATCH_AUDIT_H
#define DT_TRAIN_WATCH_AUDIT_H

#include "train/train.h"

struct dt_audit_event {
    uint64_t step, epoch; /* from 1 */
    uint64_t n_samples;
    uint64_t hash; /* modulo 2^64, of dt_audit_hash of each */
};

/* Of sample `id`: the second output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). It
 * maps numbers one to one, so that one sample in place of another always shows; sums of CRCs, which
 * are linear, would cancel. */
uint64_t dt_audit_hash(uint64_t id);

/* A watcher, where the configuration has log.audit: an event after each step. Every rank calls it;
 * agreed. */
enum dt_status dt_audit_open(struct dt_trainer *trainer, const struct dt_emitter *emitter);

#endif
