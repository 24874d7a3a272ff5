/* dtrain: reads the command line, opens the world of ranks, runs one command, and turns its status
 * into the exit code. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/args.h"
#include "cli/commands/eval.h"
#include "cli/commands/export.h"
#include "cli/commands/plan.h"
#include "cli/commands/predict.h"
#include "cli/config/config.h"
#include "cli/output.h"
#include "cli/sinks/sinks.h"
#include "cli/version.h"
#include "dist/ranks/launch/launch.h"
#include "dist/ranks/launch/stop.h"
#include "ops/accept/accept.h"
#include "ops/bench/bench.h"
#include "ops/doctor/doctor.h"
#include "ops/slurm/slurm.h"
#include "ops/sweep/sweep.h"
#include "report/report.h"
#include "report/watch.h"
#include "train/data_spec.h"
#include "train/ranks.h"
#include "train/train.h"
#include "train/watch/watch.h"

static enum dt_status load_config(const struct dt_args *args, struct dt_config *config)
{
    DT_TRY(dt_config_load(args->config, args->sets, args->n_sets, config));
    return dt_data_spec_set_dir(&config->data, args->data);
}

static enum dt_status print_config(const struct dt_args *args)
{
    struct dt_config config;
    DT_TRY(load_config(args, &config));
    char *text = dt_config_to_json(&config);
    if (text == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    }
    puts(text);
    free(text);
    return DT_OK;
}

/* The configuration of commands that train, with its time limit. */
static enum dt_status begin(struct dt_world *world, const struct dt_args *args,
                            struct dt_config *config)
{
    DT_TRY(dt_world_agree(world, load_config(args, config)));
    world->comm->timeout_s = config->timeout_s;
    return dt_world_agree(world, dt_comm_timeout_from_env(&world->comm->timeout_s));
}

static enum dt_status train(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_faults faults;
    DT_TRY(dt_world_agree(world, dt_faults_parse(args->injects, args->n_injects, &faults)));
    DT_TRY(begin(world, args, &config));
    DT_TRY(dt_world_agree(world, dt_sinks_check(&config)));
    const struct dt_train_options options = {.format = &dt_config_json,
                                             .run_dir = args->run,
                                             .watch = {dt_watch_all, &faults},
                                             .resume = args->resume,
                                             .checkpoint = args->resume_from,
                                             .weights = args->weights};
    struct dt_sinks sinks = {.command = args->line};
    const enum dt_status s =
        dt_train(world, &config, &options, &(struct dt_emitter){dt_sinks_emit, &sinks});
    dt_sinks_close(&sinks);
    return s;
}

/* The commands that use a network; `config` has room for that of bare weights. */
static enum dt_status find_trained(struct dt_world *world, const struct dt_args *args,
                                   struct dt_config *config, struct dt_trained *out)
{
    if (args->weights == NULL) {
        *out = (struct dt_trained){.file = args->checkpoint};
        return DT_OK;
    }
    *out = (struct dt_trained){.file = args->weights, .config = config};
    return dt_world_agree(world, load_config(args, config));
}

static enum dt_status eval(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_trained trained;
    DT_TRY(find_trained(world, args, &config, &trained));
    return dt_eval(world, &trained, args->data);
}

static enum dt_status predict(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_trained trained;
    DT_TRY(find_trained(world, args, &config, &trained));
    return dt_predict(world, &trained, args->invert, args->paths, args->n_paths);
}

static enum dt_status export_model(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_trained trained;
    DT_TRY(find_trained(world, args, &config, &trained));
    return dt_export_onnx(world, &trained, args->onnx);
}

static enum dt_status plan(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    DT_TRY(dt_world_agree(world, load_config(args, &config)));
    return dt_plan(world, &config, args->data != NULL);
}

static enum dt_status bench_blocks(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    DT_TRY(begin(world, args, &config));
    return dt_bench_blocks(world, &config, args->json);
}

static enum dt_status bench_scaling(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    DT_TRY(begin(world, args, &config));
    return dt_bench_scaling(world, &config, args->json, args->html);
}

/* Without a configuration it does not look for data. */
static enum dt_status doctor(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    if (args->config != NULL) {
        DT_TRY(begin(world, args, &config));
    }
    return dt_doctor(world, &(struct dt_doctor_spec){
                                .config = args->config != NULL ? &config : NULL, .run = args->run});
}

static enum dt_status accept_cluster(struct dt_world *world, const struct dt_args *args)
{
    struct dt_faults faults;
    DT_TRY(dt_world_agree(world, dt_faults_parse(args->injects, args->n_injects, &faults)));
    return dt_accept(world, &(struct dt_accept_spec){.command = args->line,
                                                     .run = args->run,
                                                     .junit = args->junit,
                                                     .json = args->json,
                                                     .html = args->html,
                                                     .baseline = args->baseline,
                                                     .quick = args->quick,
                                                     .faults = &faults});
}

static enum dt_status help(const struct dt_args *args)
{
    dt_args_help(stdout, args->about);
    return DT_OK;
}

static enum dt_status help_config(const struct dt_args *args)
{
    (void)args;
    dt_config_help(stdout);
    return DT_OK;
}

static enum dt_status version(const struct dt_args *args)
{
    (void)args;
    dt_version_print(stdout);
    return DT_OK;
}

/* How a command ends when a signal asks it to. The ranks agree on a last step only where that is of
 * use. */
enum ending { ENDS_AT_ONCE, AGREES_WITH_OTHERS, SAVES }; /* SAVES: or puts the screen back */

/* What a command does: `together` with the other ranks, or `alone`, without MPI, so that it works
 * anywhere. */
struct action {
    enum dt_status (*together)(struct dt_world *world, const struct dt_args *args);
    enum dt_status (*alone)(const struct dt_args *args);
    enum ending ending;
};

#define LESSON_CASE(constant, word, meaning, usage, examples, starts, function) \
    case constant:                                                              \
        return (struct action){.starts = function};

static struct action action_of(enum dt_command command)
{
    switch (command) {
    case DT_COMMAND_TRAIN:
        return (struct action){.together = train, .ending = SAVES};
    case DT_COMMAND_EVAL:
        return (struct action){.together = eval};
    case DT_COMMAND_EXPORT:
        return (struct action){.together = export_model};
    case DT_COMMAND_PREDICT:
        return (struct action){.together = predict};
    case DT_COMMAND_PLAN:
        return (struct action){.together = plan};
    case DT_COMMAND_REPORT:
    case DT_COMMAND_COMPARE:
        return (struct action){.alone = dt_report};
    case DT_COMMAND_WATCH:
        return (struct action){.alone = dt_watch, .ending = SAVES};
    case DT_COMMAND_SWEEP:
        return (struct action){.together = dt_sweep, .ending = SAVES};
    case DT_COMMAND_SLURM:
        return (struct action){.alone = dt_slurm};
    case DT_COMMAND_BENCH_BLOCKS:
        return (struct action){.together = bench_blocks, .ending = AGREES_WITH_OTHERS};
    case DT_COMMAND_BENCH_SCALING:
        return (struct action){.together = bench_scaling, .ending = AGREES_WITH_OTHERS};
    case DT_COMMAND_ACCEPT:
        return (struct action){.together = accept_cluster};
    case DT_COMMAND_DOCTOR:
        return (struct action){.together = doctor};
    case DT_COMMAND_BENCH_ALLREDUCE:
        return (struct action){.together = dt_bench_allreduce, .ending = AGREES_WITH_OTHERS};
        DT_LESSON_LIST(LESSON_CASE)
    case DT_COMMAND_VERSION:
        return (struct action){.alone = version};
    case DT_COMMAND_HELP_CONFIG:
        return (struct action){.alone = help_config};
    case DT_COMMAND_PRINT_CONFIG:
        return (struct action){.alone = print_config};
    case DT_COMMAND_HELP:
        break;
    }
    return (struct action){.alone = help};
}

/* A place that takes no result is told before the work. */
static enum dt_status try_outputs(const struct dt_args *args)
{
    DT_TRY(dt_file_try(args->json, NULL));
    DT_TRY(dt_file_try(args->html, NULL));
    return dt_file_try(args->onnx, NULL);
}

static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    char what[32]; /* decides what the ranks do together */
    snprintf(what, sizeof what, "%d%s%s", (int)args->command, args->resume ? " resume" : "",
             args->weights != NULL ? " weights" : "");
    DT_TRY(dt_ranks_same(world, "command", what));
    const bool tries =
        world->rank == 0 && args->command != DT_COMMAND_ACCEPT; /* that makes a folder first */
    DT_TRY(dt_world_agree(world, tries ? try_outputs(args) : DT_OK));
    if (world->rank == 0 && args->command != DT_COMMAND_DOCTOR && dt_launch_has_ucx_conf()) {
        dt_text_print(stderr, "dtrain: warning: UCX obeys ./ucx.conf, a file of the working "
                              "folder, which can overwrite files "
                              "(remove it unless it is yours)");
    }
    return action_of(args->command).together(world, args);
}

/* Of several copies under a launcher only the first prints. That is all it decides: ranks that work
 * together come from MPI. */
static bool is_first_copy(void)
{
    const char *rank = getenv("PMI_RANK");
    return rank == NULL || strcmp(rank, "0") == 0;
}

static void print_error(void)
{
    dt_text_print(stderr, "dtrain: %s", dt_error_text());
}

/* One that the other ranks do not have says whose it is; a stall names the ranks itself. */
static void print_error_of(const struct dt_world *world, enum dt_status status, bool agreed)
{
    if (agreed || status == DT_STALLED || world->size == 1) {
        print_error();
    } else {
        dt_text_print(stderr, "dtrain: rank %d (%s): %s", world->rank, world->host,
                      dt_error_text());
    }
}

/* Without the three standard files, their numbers would go to files of ours, and what is printed
 * into those. */
static void open_standard_files(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

int main(int argc, char **argv)
{
    struct dt_args args = {0};
    struct dt_world world = {0};
    signal(SIGXFSZ, SIG_IGN); /* a file size limit and a closed pipe become errors of write() */
    signal(SIGPIPE, SIG_IGN);
    dt_stop_block();
    open_standard_files();
    dt_output_open();
    const enum dt_status parsed = dt_args_parse(argc, argv, &args);
    const struct action action = action_of(args.command);
    if (action.ending == ENDS_AT_ONCE) {
        dt_stop_at_once();
    }
    if (parsed == DT_OK && action.alone != NULL) {
        enum dt_status s = is_first_copy() ? try_outputs(&args) : DT_OK;
        s = s == DT_OK && is_first_copy() ? action.alone(&args) : s;
        s = s == DT_OK ? dt_output_check() : s;
        if (s != DT_OK) {
            print_error();
        }
        dt_args_free(&args);
        return s;
    }
    enum dt_status s = dt_world_open(&world);
    if (world.size == 1 && action.ending == AGREES_WITH_OTHERS) {
        dt_stop_at_once();
    }
    if (s == DT_OK) {
        s = dt_world_agree(&world, parsed);
    }
    if (s == DT_OK) {
        s = run(&world, &args);
    }
    if (s == DT_OK) {
        s = dt_world_agree(&world, dt_output_check());
    }
    const bool agreed = s == DT_OK || dt_error_is_agreed();
    if (s != DT_OK && s != DT_STOPPED && dt_world_speaks(&world, agreed)) {
        print_error_of(&world, s, agreed);
    }
    dt_args_free(&args);
    dt_world_exit(&world, s, agreed);
}
