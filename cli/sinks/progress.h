/* One line that says how far the run is: redrawn in place on a terminal, in its width, else printed
 * once an interval. stderr, rank 0. */
#ifndef DT_CLI_SINKS_PROGRESS_H
#define DT_CLI_SINKS_PROGRESS_H

#include "train/events.h"

struct dt_progress {
    const struct dt_config *config;
    bool terminal;             /* stderr is one */
    bool shown;                /* a line stands there to be overwritten */
    double interval_s, last_s; /* 0: no line */
    uint64_t steps_per_epoch;
};

void dt_progress_open(const struct dt_config *config, uint64_t steps_per_epoch,
                      struct dt_progress *out);
void dt_progress_show(struct dt_progress *progress, const struct dt_step_event *step); /* if due */
void dt_progress_clear(struct dt_progress *progress); /* before printing anything else */

#endif
