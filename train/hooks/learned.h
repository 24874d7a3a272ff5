/* Results of a classifier on the test samples: how often it takes each class for another, the worst
 * samples, and the filters of its first layer. Noted during an evaluation (struct
 * dt_evaluator), so it costs no pass of its own. */
#ifndef DT_TRAIN_HOOKS_LEARNED_H
#define DT_TRAIN_HOOKS_LEARNED_H

#include "train/evaluate.h"

#define DT_LEARNED_WORST 25
#define DT_LEARNED_MAX_CLASSES 64 /* of a table that people read */
#define DT_LEARNED_MAX_FILTERS 64
#define DT_LEARNED_TOP 5
#define DT_LEARNED_FEW_CLASSES 10 /* of which the top five would say little */

struct dt_answer {
    uint32_t id; /* of the sample */
    int label, predicted;
    double probability; /* of what was predicted */
    double loss;        /* in nats: large is wrong, and sure of it */
};

/* The answers of the last evaluation, the same on every rank. */
struct dt_learned {
    struct dt_answers answers;        /* first: the evaluator's */
    char why_not[DT_ERROR_TEXT_SIZE]; /* there is nothing more to show; or "" */
    int n_classes;
    char *class_names; /* as a data set has them (data/dataset.h), or NULL */
    double *confusion; /* (n_classes, n_classes): [label][predicted]; NULL: too many classes for a
                          table */
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

static inline bool dt_learned_has_top5(const struct dt_learned *learned)
{
    return learned != NULL && learned->why_not[0] == '\0' &&
           learned->n_classes > DT_LEARNED_FEW_CLASSES;
}

/* Notes each run of the open evaluator from now on. Local: the caller agrees. The caller closes it,
 * also after a failure. DT_NO_MEMORY. */
enum dt_status dt_learned_open(struct dt_evaluator *evaluator, struct dt_learned *out);
void dt_learned_close(struct dt_learned *learned); /* a zeroed one is fine */

struct dt_trainer;

/* A hook, where something shows it (`tensorboard`, `report`, or the top five of many classes):
 * the events of evaluated epochs and of the run's end have the last evaluation. Every rank calls
 * it; agreed. */
enum dt_status dt_learned_hook(struct dt_trainer *trainer);

#endif
