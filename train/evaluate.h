/* The test set, shared out over all ranks; losses and hits are counted and the counts added, never
 * averages of averages. */
#ifndef DT_TRAIN_EVALUATE_H
#define DT_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "data/loader.h"
#include "train/watch/learned.h"

struct dt_evaluator {
    struct dt_world *world;     /* borrowed */
    struct dt_network *network; /* borrowed */
    struct dt_dataset data;
    struct dt_bound_samples *samples;
    struct dt_loader loader;
    bool learns;               /* dt_evaluator_learn */
    struct dt_learned learned; /* then: by the last run */
};

/* Loads this rank's share of the test set. Local: the caller agrees. */
enum dt_status dt_evaluator_open(struct dt_world *world, const struct dt_data_spec *spec,
                                 struct dt_network *network, struct dt_evaluator *out);
/* From now on each run says what the model has learned, too. DT_NO_MEMORY. Local: the caller
 * agrees. */
enum dt_status dt_evaluator_learn(struct dt_evaluator *evaluator);
void dt_evaluator_close(struct dt_evaluator *evaluator);

/* Sums over the whole test set, the same on every rank. Every rank calls it. */
enum dt_status dt_evaluator_run(struct dt_evaluator *evaluator, struct dt_metrics *out);

#endif
