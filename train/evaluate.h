/* Samples shared out over all ranks, and the evaluation of a model on some: losses and hits are
 * counted and the counts added, never averages of averages. */
#ifndef DT_TRAIN_EVALUATE_H
#define DT_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "data/shard.h"
#include "dist/ranks/world.h"
#include "model/backend.h"
#include "model/network.h"

/* A rank's share of a data set: the samples, the backend's view of them, and their batches. */
struct dt_sample_set {
    struct dt_dataset data;
    struct dt_bound_samples *samples;
    struct dt_loader loader;
};

/* shard: this rank's, but for n_total. Local: the caller agrees. A failed open owes nothing. */
enum dt_status dt_sample_set_open(const struct dt_data_spec *spec, enum dt_split split,
                                  const struct dt_shard *shard, struct dt_backend *backend,
                                  struct dt_sample_set *out);
void dt_sample_set_close(struct dt_sample_set *set, struct dt_backend *backend);

/* Once all ranks have opened a set: `again`: some of its samples are left out from now on, and it
 * has to be opened anew. Every rank calls it; agreed. */
static inline enum dt_status dt_samples_settle(struct dt_world *world,
                                               const struct dt_data_spec *spec, bool *again)
{
    *again = false;
    return spec->settle != NULL ? spec->settle(world, spec, again) : DT_OK;
}

struct dt_evaluator;

/* An observer of an evaluation's outputs, so that no second pass is needed. */
struct dt_answers {
    void (*begin)(struct dt_answers *answers);
    enum dt_status (*take)(struct dt_answers *answers, const struct dt_evaluator *evaluator,
                           const struct dt_batch *batch); /* which just went forward */
    /* All batches have, on every rank, which calls it. */
    enum dt_status (*end)(struct dt_answers *answers, const struct dt_evaluator *evaluator);
    double n_top5; /* samples with fewer than five classes before their own, by the logit and, where
                      those are equal, the number; only of more than a few classes */
};

struct dt_evaluator {
    struct dt_world *world;     /* borrowed */
    struct dt_network *network; /* borrowed */
    struct dt_sample_set set;
    struct dt_answers *answers; /* borrowed; or NULL */
};

/* Loads this rank's share of the validation samples, or without any (data/validation_split.h) of
 * the test set. Local: the caller agrees. */
enum dt_status dt_evaluator_open(struct dt_world *world, const struct dt_data_spec *spec,
                                 struct dt_network *network, struct dt_evaluator *out);
/* The same on all ranks, agreed: images that cannot be read are left out as far as `spec` allows.
 */
enum dt_status dt_evaluator_open_all(struct dt_world *world, const struct dt_data_spec *spec,
                                     struct dt_network *network, struct dt_evaluator *out);
void dt_evaluator_close(struct dt_evaluator *evaluator);

/* Sums over the whole set, the same on every rank; with targets n_correct / n_samples is R2, by
 * their own variance. Every rank calls it. */
enum dt_status dt_evaluator_run(struct dt_evaluator *evaluator, struct dt_metrics *out);

#endif
