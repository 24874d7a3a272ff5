/* `dtrain lab server`: what is told and what is drawn of it. */
#ifndef DT_CLI_COMMANDS_LAB_SERVER_H
#define DT_CLI_COMMANDS_LAB_SERVER_H

#include "cli/commands/lab/golden.h"
#include "dist/strategy/strategy.h"

#define DT_SERVER_WAYS 5
#define DT_SERVER_RANKS 4

/* A way to train, and what came of it. */
struct dt_server_way {
    const char *name, *meaning, *formula; /* formula: of the floats that the busiest rank sends a step */
    int n_workers;
    double sent[DT_SERVER_RANKS]; /* bytes a step, by each rank */
    double busiest, expected;     /* by the one that sends most, and by the formula */
    double accuracy;
    uint64_t hash; /* of the weights in the end */
    struct dt_staleness staleness;
};

struct dt_server_lesson {
    size_t n_elems; /* N: floats of all gradients */
    struct dt_server_way ways[DT_SERVER_WAYS];
    struct dt_golden golden;
};

enum dt_status dt_server_page(const char *path, const struct dt_server_lesson *lesson);

#endif
