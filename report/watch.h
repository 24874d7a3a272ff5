/* `dtrain watch RUN`: a run while it is under way, from its folder alone, so that it works from any
 * host that sees the folder. */
#ifndef DT_REPORT_WATCH_H
#define DT_REPORT_WATCH_H

#include "cli/args.h"

/* Redraws the terminal until the run is over, a signal comes, or q is typed; the last screen stays.
 * Where stdout is no terminal, or the run is over, it prints one screen and ends. What
 * dt_record_open says; DT_IO. */
enum dt_status dt_watch(const struct dt_args *args);

#endif
