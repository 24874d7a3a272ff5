/* Horovod's worked example of the gradient tape: for `dtrain lab gradtape`, and a row of `dtrain
 * accept`. */
#ifndef DT_LAB_GRADTAPE_H
#define DT_LAB_GRADTAPE_H

#include "dist/ranks/world.h"
#include "lab/golden.h"

#define DT_TAPE_RANKS 2
#define DT_TAPE_SAMPLES 4
#define DT_TAPE_INPUTS 2
#define DT_TAPE_UNITS 3

/* The stages of a step, in the order of computation: first weights, the rank's gradients, their
 * mean over the ranks, weights after the step, weights after the broadcast. */
enum dt_tape_stage {
    DT_TAPE_FIRST,
    DT_TAPE_GRADIENT,
    DT_TAPE_MEAN,
    DT_TAPE_STEPPED,
    DT_TAPE_SENT,
    DT_TAPE_STAGES
};

/* All units of the layer have the same numbers: a weight, or a gradient, for each input, and a
 * bias. */
enum { DT_TAPE_PARTS = DT_TAPE_INPUTS + 1 };

struct dt_tape {
    float x[DT_TAPE_SAMPLES * DT_TAPE_INPUTS];
    float loss;
    float numbers[DT_TAPE_STAGES][DT_TAPE_PARTS];
    bool units_differ;
};

/* Computes the example on any number of ranks: even ranks act as its rank 0, odd ranks as its rank
 * 1; mean, step and broadcast use only the gradients of the first two ranks. Every rank calls it
 * and gets the same status. */
enum dt_status dt_tape_run(struct dt_world *world, struct dt_tape *out);
/* Checks the numbers of `rank`, one of n_ranks, against the example. A single rank has no mean. */
void dt_tape_check(const struct dt_tape *tape, int rank, int n_ranks, struct dt_golden *golden);

#endif
