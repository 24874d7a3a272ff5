/* How stale gradients were, in numbers and words (struct dt_staleness). */
#ifndef DT_CLI_SINKS_STALENESS_H
#define DT_CLI_SINKS_STALENESS_H

#include <stdio.h>

#include "train/events.h"

/* Bins up to the last that is not empty; 0: nothing was counted. */
int dt_staleness_n_bins(const struct dt_staleness *staleness);
double dt_staleness_mean(const struct dt_staleness *staleness);

/* "staleness of gradients, in steps: mean 1.9, most 5" and a row for each, with a bar. */
void dt_staleness_print(FILE *out, const struct dt_staleness *staleness);

#endif
