/* `dtrain lab gradtape`: what is computed, told and drawn of it. */
#ifndef DT_LAB_GRADTAPE_H
#define DT_LAB_GRADTAPE_H

#include "dist/ranks/world.h"
#include "lab/golden.h"

#define DT_TAPE_RANKS 2
#define DT_TAPE_SAMPLES 4
#define DT_TAPE_INPUTS 2
#define DT_TAPE_UNITS 3

/* What all units of the layer have alike: a weight, or a gradient, for each input, and a bias. */
struct dt_tape_layer {
    float weight[DT_TAPE_INPUTS], bias;
};

/* A rank's numbers, in the order in which they come about. */
struct dt_tape {
    float x[DT_TAPE_SAMPLES * DT_TAPE_INPUTS];
    float first; /* all its weights and biases */
    float loss;
    struct dt_tape_layer own, mean;     /* gradients */
    struct dt_tape_layer stepped, sent; /* weights after the step, and after the broadcast */
    bool units_alike;
};

/* Computes it, on any number of ranks: even ones do as rank 0 of the example, odd ones as rank 1,
 * but the mean, the step and the broadcast are of the first two ranks' gradients. Every rank calls
 * it; agreed. */
enum dt_status dt_tape_run(struct dt_world *world, struct dt_tape *out);
/* That rank's numbers, of so many ranks, are the example's. One rank alone has no mean. */
void dt_tape_check(const struct dt_tape *tape, int rank, int n_ranks, struct dt_golden *golden);

/* The page: both ranks. */
enum dt_status dt_tape_page(const char *path, const struct dt_tape tapes[2],
                            const struct dt_golden *golden);

#endif
