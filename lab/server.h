/* `dtrain lab server`: what is told and what is drawn of it. */
#ifndef DT_LAB_SERVER_H
#define DT_LAB_SERVER_H

#include "lab/distributed.h"
#include "lab/golden.h"

#define DT_SERVER_WAYS 5

/* A way to train, and what came of it. */
struct dt_server_way {
    const char *name, *meaning,
        *formula; /* formula: of the floats that the busiest rank sends a step */
    struct dt_lab_outcome outcome;
    double busiest, expected; /* bytes a step, by the rank that sends most, and by the formula */
};

struct dt_server_lesson {
    size_t n_elems; /* N: floats of all gradients */
    struct dt_server_way ways[DT_SERVER_WAYS];
    struct dt_golden golden;
};

enum dt_status dt_server_page(const char *path, const struct dt_server_lesson *lesson);

#endif
