/* `dtrain lab gradtape`: its numbers, text and page. */
#ifndef DT_LAB_GRADTAPE_H
#define DT_LAB_GRADTAPE_H

#include "dist/ranks/world.h"
#include "lab/golden.h"

#define DT_TAPE_RANKS 2
#define DT_TAPE_SAMPLES 4
#define DT_TAPE_INPUTS 2
#define DT_TAPE_UNITS 3

/* The numbers common to all units of the layer: a weight, or a gradient, for each input, and a
 * bias. */
struct dt_tape_layer {
    float weight[DT_TAPE_INPUTS], bias;
};

/* A rank's numbers, in the order of computation. */
struct dt_tape {
    float x[DT_TAPE_SAMPLES * DT_TAPE_INPUTS];
    float first; /* of all weights and biases */
    float loss;
    struct dt_tape_layer own, mean;     /* gradients */
    struct dt_tape_layer stepped, sent; /* weights after the step, and after the broadcast */
    bool units_alike;
};

/* Computes it, on any number of ranks: even ranks act as rank 0 of the example, the others as rank
 * 1, but mean, step and broadcast use only the first two ranks' gradients. Every rank calls it;
 * agreed. */
enum dt_status dt_tape_run(struct dt_world *world, struct dt_tape *out);
/* Checks the numbers of `rank`, one of n_ranks, against the example. A single rank has no mean. */
void dt_tape_check(const struct dt_tape *tape, int rank, int n_ranks, struct dt_golden *golden);

#endif
