/* `dtrain help`, and `dtrain --help-config`. */
#include "cli/args.h"
#include "cli/config/config.h"

static enum dt_status help(const struct dt_args *args)
{
    dt_args_help(stdout, args->program, args->about);
    return DT_OK;
}

const struct dt_command dt_command_help = {
    .word = "help",
    .meaning = "list the commands; help COMMAND: its options and examples",
    .usage = "dtrain help [COMMAND]",
    .examples = "  dtrain help train\n",
    .informative = true,
    .alone = help,
};

static enum dt_status help_config(const struct dt_args *args)
{
    (void)args;
    dt_config_help(stdout);
    return DT_OK;
}

const struct dt_command dt_command_help_config = {
    .word = "--help-config",
    .informative = true,
    .alone = help_config,
};
