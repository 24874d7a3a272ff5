/* The test set, shared out over all ranks; losses and hits are counted and the counts added, never averages of averages. */
#ifndef DT_TRAIN_EVALUATE_H
#define DT_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "data/loader.h"
#include "dist/ranks/world.h"
#include "model/network.h"

struct dt_evaluator {
    struct dt_world *world;     /* borrowed */
    struct dt_network *network; /* borrowed */
    struct dt_dataset data;
    struct dt_bound_samples *samples;
    struct dt_loader loader;
    double *confusion; /* (n_outputs, n_outputs) [label][answer] of the last run, all ranks'; NULL: not counted */
    float *logits;     /* private: of a batch, to count it */
};

/* Loads this rank's share of the test set. Local: the caller agrees. */
enum dt_status dt_evaluator_open(struct dt_world *world, const struct dt_data_spec *spec, struct dt_network *network,
                                 struct dt_evaluator *out);
/* From now on the answers of classifiers with at most DT_EVALUATOR_MAX_CLASSES are counted. DT_NO_MEMORY. Local: the caller agrees.
 */
#define DT_EVALUATOR_MAX_CLASSES 64
enum dt_status dt_evaluator_count_answers(struct dt_evaluator *evaluator);
void dt_evaluator_close(struct dt_evaluator *evaluator);

/* Sums over the whole test set, the same on every rank. Every rank calls it. */
enum dt_status dt_evaluator_run(struct dt_evaluator *evaluator, struct dt_metrics *out);

#endif
