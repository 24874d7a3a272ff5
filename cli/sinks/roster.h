/* The roster: who trains, where, and on how much of the data. */
#ifndef DT_CLI_SINKS_ROSTER_H
#define DT_CLI_SINKS_ROSTER_H

#include <stdio.h>

#include "train/events.h"

/* In a `width` that has no room for all columns it leaves out "local" and "threads"; 0: as wide as
 * it is. */
void dt_roster_print(FILE *out, const struct dt_folder_event *folder,
                     const struct dt_run_event *run, int width);

#endif
