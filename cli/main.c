/* dtrain: reads the command line, opens the world of ranks, runs one command, and turns its status
 * into the exit code. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/output.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "dist/launch/job.h"
#include "dist/launch/launch.h"
#include "dist/launch/stop.h"
#include "dist/launch/stream.h"
#include "train/rank_checks.h"

static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    const struct dt_command *command = args->command;
    char what[64]; /* must be the same on all ranks */
    snprintf(what, sizeof what, "%s%s%s", command->word,
             dt_args_has(args, DT_OPTION_RESUME) ? " resume" : "",
             dt_args_has(args, DT_OPTION_WEIGHTS) ? " weights" : "");
    DT_TRY(dt_ranks_same(world, "command", what));
    const bool tries = world->rank == 0 && !command->tries_outputs;
    DT_TRY(dt_world_agree(world, tries ? dt_result_try(args) : DT_OK));
    if (world->rank == 0 && !command->tells_of_launch && dt_ucx_has_conf()) {
        dt_text_print(stderr, "dtrain: warning: UCX obeys ./ucx.conf, a file of the working "
                              "folder, which can overwrite files (remove it unless it is yours)");
    }
    return command->together(world, args);
}

/* Under a launcher only the first copy prints. This decides nothing else: the ranks of a training
 * come from MPI. A number without a launcher's connection beside it is left over in a shell. */
static bool is_first_copy(void)
{
    const bool connected =
        getenv("PMI_FD") != NULL || getenv("PMI_PORT") != NULL || getenv("PMIX_RANK") != NULL;
    return dt_launch_number(DT_LAUNCH_RANK) <= 0 || !connected;
}

static void print_error(void)
{
    dt_text_print(stderr, "dtrain: %s", dt_error_text());
}

/* An error of one rank alone names the rank; the text of a stall names the ranks itself. */
static void print_error_of(const struct dt_world *world, enum dt_status status, bool agreed)
{
    if (agreed || status == DT_STALLED || world->size == 1) {
        print_error();
    } else {
        dt_text_print(stderr, "dtrain: rank %d (%s): %s", world->rank, world->host,
                      dt_error_text());
    }
}

/* If a standard file is closed, the next file that we open would get its number, and our output. */
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

static enum dt_status run_alone(const struct dt_args *args)
{
    DT_TRY(is_first_copy() ? dt_result_try(args) : DT_OK);
    DT_TRY(is_first_copy() ? args->command->alone(args) : DT_OK);
    return dt_output_check();
}

static enum dt_status run_together(struct dt_world *world, const struct dt_args *args,
                                   enum dt_status parsed)
{
    DT_TRY(dt_world_agree(world, parsed));
    DT_TRY(run(world, args));
    return dt_world_agree(world, dt_output_check());
}

static int width_of(FILE *out)
{
    return dt_terminal_width(fileno(out));
}

int main(int argc, char **argv)
{
    struct dt_args args = {0};
    struct dt_world world = {0};
    dt_error_format = dt_text_format;
    dt_text_width = width_of;
    signal(SIGXFSZ, SIG_IGN); /* a file size limit and a closed pipe become errors of write() */
    signal(SIGPIPE, SIG_IGN);
    dt_stop_block();
    open_standard_files();
    if (argc > 1 && strcmp(argv[1], "__complete") == 0) {
        dt_complete(stdout, &dt_program, argc - 2, argv + 2);
        return DT_OK;
    }
    dt_output_open();
    if (argc == 1) {
        if (is_first_copy()) {
            dt_args_brief(stdout);
        }
        return DT_USAGE;
    }
    const enum dt_status parsed = dt_args_parse(argc, argv, &dt_program, &args);
    const struct dt_command *command = args.command;
    if (args.now != NULL && is_first_copy()) {
        dt_text_print(stderr, "dtrain: this form is old and goes with the next release; write: %s",
                      args.now);
    }
    if (command->ending == DT_ENDS_AT_ONCE) {
        dt_stop_at_once(dt_launch_leave);
    }
    if (parsed == DT_OK && command->alone != NULL) {
        const enum dt_status s = run_alone(&args);
        if (s != DT_OK) {
            print_error();
        }
        dt_args_free(&args);
        return dt_stream_flush() || dt_stream_wait(dt_stop_requested) || s != DT_OK ? s : DT_IO;
    }
    if (command->needs_no_ranks) {
        dt_launch_take_any();
    }
    enum dt_status s = dt_world_open(&world);
    if (world.size == 1 && command->ending == DT_AGREES_WITH_OTHERS) {
        dt_stop_at_once(dt_launch_leave);
    }
    s = s == DT_OK ? run_together(&world, &args, parsed) : s;
    if (command->ended != NULL) {
        command->ended(s);
    }
    const bool agreed = s == DT_OK || s == DT_STOPPED || dt_error_is_agreed();
    if (s != DT_OK && s != DT_STOPPED && dt_world_speaks(&world, agreed)) {
        print_error_of(&world, s, agreed);
    }
    dt_args_free(&args);
    dt_world_exit(&world, s, agreed);
}
