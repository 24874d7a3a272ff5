/* `dtrain lab stragglers`: what is told and what is drawn of it. */
#ifndef DT_LAB_STRAGGLERS_H
#define DT_LAB_STRAGGLERS_H

#include "lab/distributed.h"
#include "lab/golden.h"

#define DT_STRAGGLERS_N_STEPS 10
#define DT_STRAGGLERS_SLOW 2 /* the slow rank */
#define DT_STRAGGLERS_WORK_MS 10
#define DT_STRAGGLERS_SLOW_MS 50
#define DT_STRAGGLERS_AHEAD 4 /* max_staleness, where there is one */
#define DT_STRAGGLERS_JITTER_MS 40
#define DT_STRAGGLERS_N_JITTERED 15 /* steps that are taken */
#define DT_STRAGGLERS_N_DRAWN 10000 /* steps whose delays alone are drawn */
#define DT_STRAGGLERS_N_SIZES \
    6 /* numbers of ranks that jitter, the first DT_LAB_RANKS of which are run */

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
    double
        step_ms[DT_LAB_RANKS]; /* the mean of a worker's, from the start to the end of its last */
};

/* n ranks that are each late by 0 to DT_STRAGGLERS_JITTER_MS in every step; means of a step in
 * milliseconds. */
struct dt_jitter {
    int n;
    double formula, drawn; /* of the latest rank: expected, and over DT_STRAGGLERS_N_DRAWN steps */
    double drawn_taken, measured; /* over the steps that are taken: of the latest rank, and of what
                                     they took; 0: none is */
};

struct dt_stragglers_lesson {
    struct dt_stragglers_way ways[DT_STRAGGLERS_WAYS];
    double longest_s; /* the last step's end in the way that took longest */
    struct dt_jitter jitter[DT_STRAGGLERS_N_SIZES];
    struct dt_golden golden;
};

enum dt_status dt_stragglers_page(const char *path, const struct dt_stragglers_lesson *lesson);

#endif
