/* `dtrain lab compression`: its results, its text and its page. */
#ifndef DT_LAB_COMPRESSION_H
#define DT_LAB_COMPRESSION_H

#include <stdio.h>

#include "lab/distributed.h"
#include "lab/golden.h"

#define DT_COMPRESSION_N_TEST 5000

struct dt_compression_way {
    struct dt_lab_outcome
        outcomes[2];   /* without and with error feedback; `none` has only the first */
    double expected;   /* bytes per step, by the codec */
    bool nothing_lost; /* error feedback loses nothing over many encodings; `none` has none */
};

struct dt_compression_lesson {
    struct dt_compression_way ways[DT_N_COMPRESSION_TYPES];
    struct dt_lab_outcome whole; /* topk that sends all gradients */
    struct dt_golden golden;
};

/* Half width of the 95 % confidence interval of an accuracy on the test set. */
double dt_compression_margin(double share);

/* Compares an accuracy with another training's: -1 worse, 0 within chance, 1 better. */
int dt_compression_relation(double share, double other);

/* Prints which codecs end worse than `none`, better, or within chance of it; claims only what the
 * accuracies show. */
void dt_compression_print_claims(FILE *out, const struct dt_compression_lesson *lesson);

#endif
