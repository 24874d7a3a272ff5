/* The checks of `dtrain accept`, one row each: all ranks run them together, and find the same. */
#ifndef DT_CLI_COMMANDS_ACCEPT_ROWS_H
#define DT_CLI_COMMANDS_ACCEPT_ROWS_H

#include "cli/commands/accept/accept.h"
#include "cli/config/config.h"

struct dt_acceptance {
    struct dt_world *world;
    const struct dt_accept_spec *spec;
    struct dt_config config;     /* of the training, and of the way that `auto` takes */
    char (*hosts)[DT_HOST_SIZE]; /* of each rank */
    /* what the training left for the rows after it */
    bool trained;
    char checkpoint[DT_PATH_SIZE * 2];
};

struct dt_accept_row {
    bool passed;
    char text[400]; /* what was found: figures, or what is wrong */
};

/* X(name, what it shows), in the order in which they run */
#define DT_ACCEPT_LIST(X)                                                                    \
    X(doctor, "the ranks have what a training needs (dtrain doctor)")                        \
    X(sums, "every way of adding gradients gives exact sums of whole numbers")               \
    X(links, "messages between any two ranks: no host is far slower than the others")        \
    X(memory, "memory bandwidth: no host is far slower than the others")                     \
    X(training, "a short training reaches its accuracy, the replicas equal after each step") \
    X(checkpoint, "every rank reads back what rank 0 has saved")

/* The status is of what keeps all checks from going on; what is wrong with this one is in the row, also an error on which all ranks
 * agree. */
#define DT_ACCEPT_DECLARE(name, meaning) enum dt_status dt_accept_##name(struct dt_acceptance *a, struct dt_accept_row *row);
DT_ACCEPT_LIST(DT_ACCEPT_DECLARE)
#undef DT_ACCEPT_DECLARE

/* ---- hosts that fall behind the others */

#define DT_ACCEPT_BEHIND 0.62 /* of the median: 38 % below it */

struct dt_behind {
    const char *host; /* the worst; NULL: none is far behind */
    double share;     /* of the median over all hosts */
    double median;
};

/* From a value of each rank, larger is better; a host's is the largest of its ranks', since these may be in each other's way. With
 * less than three hosts nobody can tell which is the odd one. */
struct dt_behind dt_accept_behind(const double *values, char (*const hosts)[DT_HOST_SIZE], int n);

#endif
