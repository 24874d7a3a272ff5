/* `dtrain plan`: what a run would be, without training. */
#ifndef DT_CLI_COMMANDS_PLAN_H
#define DT_CLI_COMMANDS_PLAN_H

#include "cli/config/config.h"
#include "dist/ranks/world.h"

/* Prints to stdout: layers with shapes, parameters and FLOPs per sample; memory; steps; what each
 * rank will read. Reads only the headers of the data files, and says what it cannot know where they
 * are missing; with `needs_data`, because somebody named their folder, that is an error. Every rank
 * calls it; agreed. */
enum dt_status dt_plan(struct dt_world *world, const struct dt_config *config, bool needs_data);

#endif
