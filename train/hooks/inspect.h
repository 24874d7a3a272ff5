/* Weights and activations at the end of epochs, for events that show them. */
#ifndef DT_TRAIN_HOOKS_INSPECT_H
#define DT_TRAIN_HOOKS_INSPECT_H

#include "train/events.h"
#include "train/hooks/learned.h"

/* Rank 0's view of the network, in this process's memory, in the arena's order. */
struct dt_inspection {
    const struct dt_model *model;
    const float *weights;
    const float *gradients; /* the last step's, summed over n_samples of all ranks; NULL: no rank
                               knows them (ranks that do not average, servers that do not wait),
                               they are on a GPU, or this process took no step */
    double n_samples;
    const struct dt_learned *learned; /* as of struct dt_epoch_event */
};

/* A hook, where the configuration has `tensorboard`: epochs' events have the weights and
 * activations. Every rank calls it; agreed. */
enum dt_status dt_inspect_open(struct dt_trainer *trainer);

#endif
