/* `dtrain lab server`: its results, text and page. */
#ifndef DT_LAB_SERVER_H
#define DT_LAB_SERVER_H

#include "lab/distributed.h"
#include "lab/golden.h"

#define DT_SERVER_WAYS 5

/* A way to train, and its results. */
struct dt_server_way {
    const char *name, *meaning,
        *formula; /* formula: for the floats that the busiest rank sends per step */
    struct dt_lab_outcome outcome;
    double busiest,
        expected; /* bytes per step of the rank that sends most: counted, and by the formula */
};

struct dt_server_lesson {
    size_t n_elems; /* N: floats of all gradients */
    struct dt_server_way ways[DT_SERVER_WAYS];
    struct dt_golden golden;
};

enum dt_status dt_server_page(const char *path, const struct dt_server_lesson *lesson);

#endif
