/* `dtrain lab stragglers`: its results, text and page. */
#ifndef DT_LAB_STRAGGLERS_H
#define DT_LAB_STRAGGLERS_H

#include "lab/distributed.h"
#include "lab/golden.h"

#define DT_STRAGGLERS_N_STEPS 10
#define DT_STRAGGLERS_SLOW 2 /* the slow rank */
#define DT_STRAGGLERS_WORK_MS 10
#define DT_STRAGGLERS_SLOW_MS 50
#define DT_STRAGGLERS_AHEAD 4 /* max_staleness, if bounded */
#define DT_STRAGGLERS_JITTER_MS 40
#define DT_STRAGGLERS_N_JITTERED 15 /* steps that the ranks take */
#define DT_STRAGGLERS_N_DRAWN 10000 /* steps for which only delays are drawn */
#define DT_STRAGGLERS_N_SIZES                                           \
    6 /* numbers of jittering ranks; the first DT_LAB_RANKS of them run \
       */

enum {
    DT_STRAGGLERS_RING,
    DT_STRAGGLERS_SYNC,
    DT_STRAGGLERS_BOUNDED,
    DT_STRAGGLERS_ASYNC,
    DT_STRAGGLERS_WAYS
};

struct dt_stragglers_way {
    const char *name, *meaning;
    struct dt_lab_outcome outcome;
    double step_ms[DT_LAB_RANKS]; /* a worker's mean, from the first start to the last end */
};

/* n ranks, each late by 0 to DT_STRAGGLERS_JITTER_MS in every step; mean milliseconds per step. */
struct dt_jitter {
    int n;
    double formula, drawn; /* of the latest rank: expected, and over DT_STRAGGLERS_N_DRAWN steps */
    double drawn_taken,
        measured; /* over the steps taken: delay of the latest rank, and duration; 0: none taken */
};

struct dt_stragglers_lesson {
    struct dt_stragglers_way ways[DT_STRAGGLERS_WAYS];
    double longest_s; /* end of the last step, in the slowest way */
    struct dt_jitter jitter[DT_STRAGGLERS_N_SIZES];
    struct dt_golden golden;
};

enum dt_status dt_stragglers_page(const char *path, const struct dt_stragglers_lesson *lesson);

#endif
