/* What a run's model has learned (train/watch/learned.h): its part of the page. */
#ifndef DT_REPORT_RUN_LEARNED_H
#define DT_REPORT_RUN_LEARNED_H

#include <stdio.h>

#include "train/watch/learned.h"

void dt_run_learned_draw(FILE *out, const struct dt_learned *learned);

#endif
