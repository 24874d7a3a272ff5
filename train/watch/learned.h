/* What a classifier has learned, by its answers to the test samples: how often which class is taken
 * for which, the worst samples, and the filters of its first layer. Noted while an evaluation goes
 * on anyway (struct dt_evaluator), so it costs no pass of its own. */
#ifndef DT_TRAIN_WATCH_LEARNED_H
#define DT_TRAIN_WATCH_LEARNED_H

#include "dist/ranks/world.h"
#include "model/network.h"

#define DT_LEARNED_WORST 25
#define DT_LEARNED_MAX_CLASSES 64 /* of a table that people read */
#define DT_LEARNED_MAX_FILTERS 64

struct dt_answer {
    uint32_t id; /* of the sample */
    int label, said;
    double probability; /* of what was said */
    double loss;        /* in nats: large is wrong, and sure of it */
};

/* Of the last evaluation, the same on every rank. */
struct dt_learned {
    char why_not[DT_ERROR_TEXT_SIZE]; /* there is nothing more to show; or "" */
    int n_classes;
    double
        *confusion; /* (n_classes, n_classes): [label][said]; NULL: too many classes for a table */
    int n_worst;
    struct dt_answer worst[DT_LEARNED_WORST]; /* the largest loss first */
    struct dt_shape shape;
    uint8_t *images; /* (n_worst, C, H, W); NULL: not of 1 or 3 channels, or large */
    int n_filters, filter_h, filter_w, filter_c;
    float *filters; /* (n_filters, filter_c, filter_h, filter_w), this rank's; NULL: none that are
                       images */
    /* private */
    float *logits; /* of so many samples */
    int n_rows;
    struct dt_answer *others; /* the worst of all ranks */
};

/* For evaluations of this network over this rank's share of the test samples. Local: the caller
 * agrees. The caller closes it, also of a failure. */
enum dt_status dt_learned_open(const struct dt_world *world, const struct dt_network *network,
                               const struct dt_samples *samples, struct dt_learned *out);
void dt_learned_close(struct dt_learned *learned); /* a zeroed one is fine */

/* An evaluation begins; a batch went forward; all have, on every rank, which calls it. */
void dt_learned_begin(struct dt_learned *learned);
enum dt_status dt_learned_take(struct dt_learned *learned, struct dt_network *network,
                               const struct dt_samples *samples, const struct dt_batch *batch);
enum dt_status dt_learned_end(struct dt_learned *learned, struct dt_world *world,
                              struct dt_network *network, const struct dt_samples *samples);

#endif
