/* `dtrain sweep`: a training for each combination of values, one after another, or one on each rank
 * at a time: different models in parallel, where `train` has one model on all ranks. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/commands/load.h"
#include "cli/config/config.h"
#include "cli/sinks/sinks.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "dist/ranks/launch/job.h"
#include "dist/ranks/launch/stop.h"
#include "dist/ranks/liveness/heartbeat.h"
#include "dist/ranks/liveness/start_watch.h"
#include "ops/sweep/grid.h"
#include "ops/sweep/results.h"
#include "train/ranks.h"
#include "train/save/saver.h"
#include "train/trainer.h"
#include "train/watch/watch.h"

#define PROGRESS_INTERVAL_S 0.1

/* A rank's contribution to a heartbeat; every rank receives the sum. */
enum { SUM_FINISHED, SUM_STOP, SUM_STEPS, SUM_RUNS }; /* from SUM_RUNS on: 1 for each ended run */

struct sweep {
    struct dt_world *world, alone;
    const struct dt_args *args;
    struct dt_sweep_grid grid;
    char dir[DT_PATH_SIZE];
    int n_threads;                 /* per rank, if the configuration does not set it */
    const char **sets;             /* room for those of one run */
    struct dt_config config;       /* of the current run */
    struct dt_sinks sinks;         /* of the current run */
    enum dt_status run_failure;    /* of this rank's first run that failed without diverging */
    struct dt_heartbeat heartbeat; /* carries the numbers above */
    double *printed;               /* the sums that rank 0 has printed */
    double drawn_s;                /* when rank 0 last drew its line; 0: no line is shown */
};

/* ---- rank 0's output */

/* Clears rank 0's line, also where another rank is about to print. */
static void clear_line(struct sweep *w)
{
    if (w->drawn_s > 0 || (w->world->rank > 0 && dt_terminal_width(STDERR_FILENO) > 0)) {
        fputs("\r\033[K", stderr);
        w->drawn_s = 0;
    }
}

static int n_ended(const struct sweep *w)
{
    double n = 0;
    for (int i = 0; i < w->grid.n_runs; i++) {
        n += w->printed[SUM_RUNS + i];
    }
    return (int)n;
}

static void draw_line(struct sweep *w)
{
    char steps[32], line[96];
    const int width = dt_terminal_width(STDERR_FILENO);
    if (width == 0 || dt_clock_s() - w->drawn_s < PROGRESS_INTERVAL_S) {
        return;
    }
    snprintf(line, sizeof line, "%d of %d runs, %s steps", n_ended(w), w->grid.n_runs,
             dt_count_text(w->printed[SUM_STEPS], steps, sizeof steps));
    fprintf(stderr, "\r\033[K%.*s", width - 1, line);
    fflush(stderr);
    w->drawn_s = dt_clock_s();
}

/* Prints the runs that have ended since the last call, and everyone's progress. */
static void print_ended(struct sweep *w, const double *sum)
{
    if (w->world->rank != 0) {
        return;
    }
    w->printed[SUM_STEPS] = sum[SUM_STEPS];
    for (int i = 0; i < w->grid.n_runs; i++) {
        if (sum[SUM_RUNS + i] > 0 && w->printed[SUM_RUNS + i] == 0) {
            struct dt_sweep_row row;
            w->printed[SUM_RUNS + i] = 1;
            clear_line(w);
            if (dt_sweep_row_read(w->dir, &w->grid, i, true, &row) == DT_OK) {
                dt_sweep_row_print(&w->grid, &row, n_ended(w));
            } else {
                dt_error_clear(); /* out of memory: the table at the end has it, or reports it */
            }
        }
    }
    draw_line(w);
}

/* A dt_heartbeat.take. Passes on a stop signal that reached only another rank. */
static void take_sums(void *context)
{
    struct sweep *w = context;
    print_ended(w, w->heartbeat.sum);
    if (w->heartbeat.sum[SUM_STOP] > 0 && !dt_stop_requested()) {
        raise(SIGTERM);
    }
    w->heartbeat.mine[SUM_STOP] = dt_stop_requested();
}

/* ---- a run */

/* A dt_emitter.emit. When a rank shows no sign of life, the run is saved and stops. */
static enum dt_status on_event(void *context, struct dt_event *event)
{
    struct sweep *w = context;
    w->heartbeat.mine[SUM_STEPS] += event->kind == DT_EVENT_STEP;
    if (dt_heartbeat_look(&w->heartbeat) != DT_OK && !dt_stop_requested()) {
        raise(SIGTERM);
    }
    return dt_sinks_emit(&w->sinks, event);
}

static enum dt_status load(struct sweep *w, int run)
{
    dt_grid_sets(&w->grid, run, w->sets);
    DT_TRY(dt_config_load(dt_args_text(w->args, DT_OPTION_CONFIG), w->sets, w->grid.n_axes,
                          &w->config));
    w->config.threads = w->config.threads == 0 ? w->n_threads : w->config.threads;
    return dt_load_data_dir(&w->config.data, dt_args_text(w->args, DT_OPTION_DATA));
}

/* Reports a failed run, which becomes a row of the table. */
static void note_failure(struct sweep *w, int run, enum dt_status s)
{
    dt_text_print(stderr, "dtrain: run %d: %s", run + 1, dt_error_text());
    dt_error_clear();
    if (w->run_failure == DT_OK && s != DT_NON_FINITE) {
        w->run_failure = s;
    }
}

/* A run that stops calls its error agreed; of the sweep's ranks only this one has it. */
static enum dt_status stall_of_this_rank(void)
{
    char text[DT_ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", dt_error_text());
    dt_error_clear();
    return dt_error(DT_STALLED, "%s", text);
}

static enum dt_status train(struct sweep *w, int run)
{
    char path[DT_PATH_SIZE];
    dt_sweep_folder(w->dir, &w->grid, run, path);
    w->sinks = (struct dt_sinks){
        .command = w->args->line, .silent = true, .reader = w->args->program->reader};
    struct dt_folder_saver saver = {.saver = {.ops = &dt_folder_saver_ops},
                                    .run_dir = path,
                                    .resume = dt_args_has(w->args, DT_OPTION_RESUME)};
    const struct dt_train_options options = {.format = &dt_config_json,
                                             .parts = &dt_all_parts,
                                             .saver = &saver.saver,
                                             .watch = {dt_watch_all, NULL}};
    enum dt_status s = load(w, run);
    if (s == DT_OK) {
        s = dt_train(&w->alone, &w->config, &options, &(struct dt_emitter){on_event, w});
        dt_sinks_close(&w->sinks);
    }
    if (dt_heartbeat_look(&w->heartbeat) != DT_OK) {
        return stall_of_this_rank();
    }
    if (s == DT_STOPPED || s == DT_STALLED) {
        return s;
    }
    if (s != DT_OK) {
        clear_line(w);
        note_failure(w, run, s);
    }
    w->heartbeat.mine[SUM_RUNS + run] = 1;
    return dt_heartbeat_look(&w->heartbeat);
}

static enum dt_status train_mine(struct sweep *w)
{
    enum dt_status s = DT_OK;
    for (int run = w->world->rank; run < w->grid.n_runs && s == DT_OK && !dt_stop_requested();
         run += w->world->size) {
        dt_comm_phase(w->world->comm, "a run of a sweep");
        s = train(w, run);
    }
    return s == DT_STOPPED ? DT_OK : s; /* the next heartbeat informs the others */
}

/* ---- the whole sweep */

/* Checks every configuration before the first run. */
static enum dt_status check_all(struct sweep *w)
{
    DT_TRY(dt_grid_open(w->args->values[DT_OPTION_SET].texts, w->args->values[DT_OPTION_SET].n,
                        &w->grid));
    const size_t n = SUM_RUNS + (size_t)w->grid.n_runs;
    double *numbers = calloc(3 * n, sizeof *numbers);
    w->printed = numbers; /* owns them */
    w->sets = calloc((size_t)w->grid.n_axes + 1, sizeof *w->sets);
    if (w->sets == NULL || numbers == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep");
    }
    w->heartbeat = (struct dt_heartbeat){.comm = w->world->comm,
                                         .name = "a sign of life of the sweep",
                                         .n = n,
                                         .mine = numbers + n,
                                         .sum = numbers + 2 * n,
                                         .take = take_sums,
                                         .context = w};
    for (int run = 0; run < w->grid.n_runs; run++) {
        DT_TRY(load(w, run));
    }
    return DT_OK;
}

/* For a run whose folder exists: its results must belong to its configuration. Keys that do not
 * affect them may differ. */
static enum dt_status check_folder(struct sweep *w, int run)
{
    static const char *const parts[] = {"model",
                                        "train",
                                        "precision",
                                        "data.format",
                                        "data.sharding",
                                        "data.train_samples",
                                        "data.test_samples",
                                        "data.validation",
                                        "data.seed",
                                        "data.noise"};
    const int n_parts = (int)(sizeof parts / sizeof parts[0]);
    char difference[256] = "";
    char *before = NULL, *now = NULL;
    enum dt_status s = dt_sweep_config_read(w->dir, &w->grid, run, &before);
    if (s == DT_OK && before != NULL) {
        DT_TRY_GOTO(s, load(w, run), done);
        now = dt_config_to_json(&w->config);
        s = now != NULL ? DT_OK
                        : dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
        for (int i = 0; i < n_parts + w->grid.n_axes && s == DT_OK && difference[0] == '\0'; i++) {
            const char *part = i < n_parts ? parts[i] : w->grid.axes[i - n_parts].key;
            if (i < n_parts || w->grid.axes[i - n_parts].n > 1) {
                s = dt_config_compare(before, now, part, difference, sizeof difference);
            }
        }
    }
done:
    free(before);
    free(now);
    if (s == DT_OK && difference[0] != '\0') {
        return dt_error(
            DT_CONFIG, "%s: run %d: %s (resume with the values of before, or choose another --run)",
            w->dir, run + 1, difference);
    }
    return s;
}

static enum dt_status check_folders(struct sweep *w)
{
    char path[DT_PATH_SIZE];
    struct stat info;
    for (int run = 0; run < w->grid.n_runs; run++) {
        dt_sweep_folder(w->dir, &w->grid, run, path);
        if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) {
            return dt_error(DT_CANT_CREATE,
                            "%s: is a symbolic link (remove it, or choose another --run)", path);
        }
        DT_TRY(check_folder(w, run));
    }
    return DT_OK;
}

static enum dt_status choose_folder(struct sweep *w)
{
    char name[DT_PATH_SIZE];
    if (dt_args_text(w->args, DT_OPTION_RUN) == NULL) {
        snprintf(name, sizeof name, "sweep-%.200s", w->config.name);
        DT_TRY(dt_run_dir_default(name, w->dir));
        return dt_sweep_results_try(w->dir);
    }
    DT_TRY(dt_run_dir_check(dt_args_text(w->args, DT_OPTION_RUN)));
    snprintf(w->dir, sizeof w->dir, "%s", dt_args_text(w->args, DT_OPTION_RUN));
    if (!dt_args_has(w->args, DT_OPTION_RESUME) && access(w->dir, F_OK) == 0) {
        return dt_error(DT_CANT_CREATE,
                        "%s: is already there (add --resume, or choose another --run)", w->dir);
    }
    DT_TRY(dt_args_has(w->args, DT_OPTION_RESUME) ? check_folders(w) : DT_OK);
    return dt_sweep_results_try(w->dir);
}

static enum dt_status prepare(struct sweep *w)
{
    struct dt_world *world = w->world;
    DT_TRY(dt_world_agree(world, check_all(w)));
    DT_TRY(dt_ranks_same(world, "command line", w->args->line));
    world->comm->timeout_s = w->config.timeout_s;
    DT_TRY(dt_world_agree(world, dt_comm_timeout_from_env(&world->comm->timeout_s)));
    DT_TRY(dt_ranks_threads(world, 0, &w->n_threads));
    DT_TRY(dt_world_agree(world, world->rank == 0 ? choose_folder(w) : DT_OK));
    DT_TRY(dt_comm_broadcast(world->comm, w->dir, sizeof w->dir, 0, "name of the sweep's folder"));
    if (world->rank == 0) {
        dt_text_print(stderr, "%d run%s in %s, %s", w->grid.n_runs, w->grid.n_runs == 1 ? "" : "s",
                      w->dir,
                      world->size == 1 ? "one after another" : "one on each rank at a time");
    }
    return dt_world_agree(world, dt_world_open_alone(world, &w->alone));
}

static enum dt_status run_all(struct sweep *w)
{
    enum dt_status s = DT_OK;
    w->alone.comm->meanwhile = dt_heartbeat_show;
    w->alone.comm->meanwhile_context = &w->heartbeat;
    DT_TRY(dt_heartbeat_start(&w->heartbeat));
    DT_TRY(train_mine(w)); /* a rank that fails here leaves alone, and the others stop with it */
    dt_comm_phase(w->world->comm, "the end of a sweep");
    DT_TRY(dt_heartbeat_finish(&w->heartbeat));
    if (w->world->rank == 0) {
        clear_line(w);
        s = dt_sweep_results(w->dir, &w->grid, w->printed + SUM_RUNS);
    }
    DT_TRY(dt_world_agree(w->world, s));
    if (dt_stop_requested()) {
        return dt_error_agreed(DT_STOPPED);
    }
    if (w->run_failure != DT_OK) {
        dt_error(w->run_failure, "a run of the sweep failed (see its summary.json)");
    }
    return dt_world_agree(w->world, w->run_failure);
}

static void close_sweep(struct sweep *w)
{
    dt_world_close_first(&w->alone);
    dt_grid_close(&w->grid);
    free(w->sets);
    free(w->printed);
    free(w);
}

/* Every rank calls it. Rank r trains runs r, r + size, ..., each in its own world and its own
 * folder within the sweep's, which ends with a table on stdout, sweep.csv, and a page about the
 * best runs. A failed run is a row of the table, and the others continue; then the first failure's
 * status is returned, except for a diverged training: that is a result. DT_USAGE, errors of loading
 * a configuration; DT_CANT_CREATE: the folder exists and --resume is missing; DT_CONFIG: a run of
 * the folder has other values; DT_STOPPED: after a signal, with checkpoints; DT_STALLED: a rank
 * gives no sign of life. */
static enum dt_status sweep(struct dt_world *world, const struct dt_args *args)
{
    struct sweep *w;
    DT_TRY(dt_world_alloc(world, 1, sizeof *w, "a sweep", (void **)&w));
    w->world = world;
    w->args = args;
    enum dt_status s = prepare(w);
    s = s == DT_OK ? run_all(w) : s;
    close_sweep(w);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    const char *checkpoint = dt_args_text(args, DT_OPTION_RESUME);
    DT_TRY(dt_load_check_resume(args));
    return checkpoint == NULL
               ? DT_OK
               : dt_error(DT_USAGE, "sweep: --resume is for all runs of --run (leave out '=%s')",
                          checkpoint);
}

const struct dt_command dt_command_sweep = {
    .word = "sweep",
    .meaning = "a training for each combination of values",
    .usage = "mpirun -np 4 dtrain sweep --config FILE [--data DIR] [--run DIR] [--resume]\n"
             "      [--epochs N,N...] [--batch N,N...] [--lr X,X...]\n"
             "      --set KEY.PATH=VALUE,VALUE... [--set ...]",
    .examples = "  mpirun -np 2 dtrain sweep --config configs/mnist-mlp.json \\\n"
                "      --set train.optimizer.lr=0.01,0.001 --set model.layers.1.units=64,256\n",
    .more = "Commas separate the values of a key, outside of JSON's brackets and strings. Each "
            "run has a numbered folder in the sweep's (default runs/sweep-<config name>/<UTC "
            "time>); under `mpirun` each rank trains every n-th run alone, with its share of the "
            "cores and its GPU. A failed run is a row of the table, and the others continue; a "
            "diverged one is a result. `--resume` resumes stopped runs.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_RUN] =
                    {DT_TAKEN, "folder for all runs; default runs/sweep-<config name>/<UTC time>"},
                [DT_OPTION_RESUME] = {DT_TAKEN, "resume the unfinished runs in --run; no value"},
                [DT_OPTION_EPOCHS] = {DT_TAKEN},
                [DT_OPTION_BATCH] = {DT_TAKEN},
                [DT_OPTION_LR] = {DT_TAKEN},
                [DT_OPTION_SET] = {DT_TAKEN, "values of a key, combined with those of the others; "
                                             "may be given many times"}},
    .ending = DT_SAVES,
    .check = check,
    .together = sweep,
};
