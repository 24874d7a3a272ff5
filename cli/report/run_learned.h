/* What a run's model has learned, by its answers to the test samples: its part of the page. Who has a model and data fills it in
 * (cli/commands/learned.h). */
#ifndef DT_CLI_REPORT_RUN_LEARNED_H
#define DT_CLI_REPORT_RUN_LEARNED_H

#include <stdint.h>
#include <stdio.h>

#include "base/samples.h"
#include "base/status.h"

#define DT_LEARNED_WORST 25
#define DT_LEARNED_MAX_CLASSES 64 /* of a table that people read */
#define DT_LEARNED_MAX_FILTERS 64

struct dt_answer {
    uint32_t id; /* of the sample */
    int label, said;
    double probability; /* of what was said */
    double loss;        /* in nats: large is wrong, and sure of it */
};

struct dt_learned {
    char why_not[DT_ERROR_TEXT_SIZE]; /* there is nothing more to show; or "" */
    int n_classes;
    uint64_t *confusion; /* (n_classes, n_classes): [label][said] */
    int n_worst;
    struct dt_answer worst[DT_LEARNED_WORST]; /* the largest loss first */
    struct dt_shape shape;
    uint8_t *images; /* (n_worst, C, H, W); NULL: not of 1 or 3 channels */
    int n_filters, filter_h, filter_w, filter_c;
    float *filters; /* (n_filters, filter_c, filter_h, filter_w); NULL: none that are images */
};

void dt_learned_free(struct dt_learned *learned);
void dt_run_learned_draw(FILE *out, const struct dt_learned *learned);
void dt_run_learned_style(FILE *out);

#endif
