/* The configuration that a command line names. */
#ifndef DT_CLI_COMMANDS_LOAD_H
#define DT_CLI_COMMANDS_LOAD_H

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/ranks/world.h"

/* --data DIR. NULL changes nothing. DT_USAGE: the path is too long, or the data are generated. */
enum dt_status dt_load_data_dir(struct dt_data_spec *spec, const char *dir);

/* --config with every --set, and --data in place of its folder. Local; DT_USAGE, DT_CONFIG. */
enum dt_status dt_load_config(const struct dt_args *args, struct dt_config *config);

/* The same for commands that train: the world takes the time limit of the configuration, or of the
 * environment. Every rank calls it; agreed. */
enum dt_status dt_load_config_all(struct dt_world *world, const struct dt_args *args,
                                  struct dt_config *config);

/* DT_USAGE: --resume says neither a checkpoint nor, with --run, a run. */
enum dt_status dt_load_check_resume(const struct dt_args *args);

#endif
