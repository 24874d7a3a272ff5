/* The model and the configuration of a run, and what follows from them, in sentences. */
#ifndef DT_REPORT_RUN_CONFIG_H
#define DT_REPORT_RUN_CONFIG_H

#include <stdio.h>

#include "cli/sinks/record.h"

void dt_run_model_draw(FILE *out, const struct dt_record *record);
void dt_run_config_draw(
    FILE *out,
    const struct dt_record *record); /* every key, with its default where that is another */

/* Calls `tell` for every key whose value is not the same in all runs, with the values as JSON, ""
 * where a run has none. Layers are compared key by key ("model.layers.1.units") as long as their
 * types are alike. */
typedef void (*dt_run_difference_fn)(void *context, const char *path, const char *const *values);
void dt_run_differences(const struct dt_record *records, int n, dt_run_difference_fn tell,
                        void *context);

#endif
