/* `dtrain lab gradtape`: what is told and what is drawn of it. */
#ifndef DT_CLI_COMMANDS_LAB_GRADTAPE_H
#define DT_CLI_COMMANDS_LAB_GRADTAPE_H

#include "cli/commands/lab/golden.h"

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

/* The page: both ranks. */
enum dt_status dt_tape_page(const char *path, const struct dt_tape tapes[2], const struct dt_golden *golden);

#endif
