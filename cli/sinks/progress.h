/* One line that says how far the run is: redrawn in place on a terminal, in its width, else printed
 * once an interval. stderr, rank 0. */
#ifndef DT_CLI_SINKS_PROGRESS_H
#define DT_CLI_SINKS_PROGRESS_H

#include "train/events.h"

struct dt_progress {
    bool enabled;  /* on rank 0, unless log.every_s is 0 and stderr no terminal */
    bool terminal; /* stderr is one */
    bool shown;    /* a line stands there to be overwritten */
    bool classifies;
    const char *unit; /* of what it counts a second */
    double interval_s, last_s;
    uint64_t n_epochs, steps_per_epoch;
};

void dt_progress_open(const struct dt_config *config, bool enabled, uint64_t steps_per_epoch,
                      struct dt_progress *out);
bool dt_progress_due(const struct dt_progress *progress); /* is it time to draw? */
void dt_progress_draw(struct dt_progress *progress, const struct dt_step_event *step);
void dt_progress_clear(struct dt_progress *progress); /* before printing anything else */

#endif
