#include "cli/commands/load.h"

#include <stdio.h>
#include <string.h>

#include "dist/launch/job.h"

enum dt_status dt_load_data_dir(struct dt_data_spec *spec, const char *dir)
{
    if (dir == NULL) {
        return DT_OK;
    }
    if (spec->whole->generated) {
        return dt_error(DT_USAGE,
                        "--data %s: this configuration generates its data (leave --data out)", dir);
    }
    if (strlen(dir) >= sizeof spec->dir) {
        return dt_error(DT_USAGE, "--data: the path is longer than %zu bytes",
                        sizeof spec->dir - 1);
    }
    snprintf(spec->dir, sizeof spec->dir, "%s", dir);
    return DT_OK;
}

enum dt_status dt_load_config(const struct dt_args *args, struct dt_config *config)
{
    const struct dt_values *sets = &args->values[DT_OPTION_SET];
    DT_TRY(dt_config_load(dt_args_text(args, DT_OPTION_CONFIG), sets->texts, sets->n, config));
    return dt_load_data_dir(&config->data, dt_args_text(args, DT_OPTION_DATA));
}

enum dt_status dt_load_config_all(struct dt_world *world, const struct dt_args *args,
                                  struct dt_config *config)
{
    DT_TRY(dt_world_agree(world, dt_load_config(args, config)));
    return dt_world_set_timeout(world, config->timeout_s);
}

enum dt_status dt_load_check_resume(const struct dt_args *args)
{
    if (dt_args_has(args, DT_OPTION_RESUME) && dt_args_text(args, DT_OPTION_RESUME) == NULL &&
        !dt_args_has(args, DT_OPTION_RUN)) {
        return dt_error(DT_USAGE, "--resume: no run is named (add --run DIR, or name a "
                                  "checkpoint: --resume=FILE)");
    }
    return DT_OK;
}
