/* `dtrain plan`: what a run would be, without training. */
#ifndef DT_CLI_PLAN_H
#define DT_CLI_PLAN_H

#include "cli/config.h"
#include "dist/world.h"

/* Prints to stdout: layers with shapes, parameters and FLOPs per sample; memory; steps; what each rank will read. Reads only the
 * headers of the data files. Every rank calls it; agreed. */
enum dt_status dt_plan(struct dt_world *world, const struct dt_config *config);

#endif
