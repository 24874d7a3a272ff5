/* The runs of a sweep: every combination of the values that its `--set`s list. */
#ifndef DT_OPS_SWEEP_GRID_H
#define DT_OPS_SWEEP_GRID_H

#include "base/status.h"

#define DT_SWEEP_MAX_RUNS 1000

/* One `--set`. */
struct dt_axis {
    char key[128];
    int n;        /* values */
    char **texts; /* "key=value", as for one run's --set; owned */
};

struct dt_sweep_grid {
    int n_axes;
    struct dt_axis *axes; /* owned */
    int n_runs;           /* the product of the axes' n: 1 without any */
};

/* Parses texts like "train.optimizer.lr=0.1,0.01": commas outside of JSON's brackets and strings
 * separate the values. DT_USAGE: no equals sign, an empty value, a key twice, more runs than
 * DT_SWEEP_MAX_RUNS. DT_NO_MEMORY. A failed open owes nothing. */
enum dt_status dt_grid_open(const char *const *sets, int n_sets, struct dt_sweep_grid *out);
void dt_grid_close(struct dt_sweep_grid *grid);

/* Index of an axis's value in run `run`: the last axis changes fastest. */
int dt_grid_value(const struct dt_sweep_grid *grid, int run, int axis);

/* The n_axes texts of a run, owned by the grid. */
void dt_grid_sets(const struct dt_sweep_grid *grid, int run, const char **sets);

#endif
