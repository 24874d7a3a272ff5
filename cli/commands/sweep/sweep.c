#include "cli/commands/sweep/sweep.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/commands/sweep/grid.h"
#include "cli/commands/sweep/results.h"
#include "cli/config/config.h"
#include "cli/report/sinks.h"
#include "cli/report/terminal.h"
#include "cli/report/text.h"
#include "dist/ranks/stop.h"
#include "train/data_spec.h"
#include "train/ranks.h"
#include "train/train.h"

#define PROGRESS_INTERVAL_S 0.1

/* What each rank adds to a beat, and every rank then has the sum of. */
enum { BEAT_FINISHED, BEAT_STOP, BEAT_STEPS, BEAT_RUNS }; /* from BEAT_RUNS on: 1 for each run that has ended */

struct sweep {
    struct dt_world *world, alone;
    const struct dt_args *args;
    struct dt_grid grid;
    char dir[DT_PATH_SIZE];
    int n_threads;              /* of a rank, where the configuration does not say */
    const char **sets;          /* room for those of a run */
    struct dt_config config;    /* of the run under way */
    struct dt_sinks sinks;      /* its */
    enum dt_status run_failure; /* of this rank's first run that failed, but did not diverge */
    /* Signs of life: an allreduce is always under way, which ranks that train look after from step to step. One that has finished
     * waits for it, so that a rank that shows none is named after the usual limit. */
    struct dt_request request;
    size_t n_beat;
    double *mine, *sum;    /* n_beat each; `sum` is being added while the request is active */
    double *told;          /* rank 0: the sums that were told */
    enum dt_status failed; /* of the beats */
    double drawn_s;        /* when rank 0 last drew its line; 0: none stands there */
};

/* ---- what rank 0 tells */

static void clear_line(struct sweep *w)
{
    if (w->drawn_s > 0) {
        fputs("\r\033[K", stderr);
        w->drawn_s = 0;
    }
}

static int n_ended(const struct sweep *w)
{
    double n = 0;
    for (int i = 0; i < w->grid.n_runs; i++) {
        n += w->told[BEAT_RUNS + i];
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
             dt_count_text(w->told[BEAT_STEPS], steps, sizeof steps));
    fprintf(stderr, "\r\033[K%.*s", width - 1, line);
    fflush(stderr);
    w->drawn_s = dt_clock_s();
}

/* The runs that have ended since it last looked, and how far all are. */
static void tell(struct sweep *w, const double *sum)
{
    if (w->world->rank != 0) {
        return;
    }
    w->told[BEAT_STEPS] = sum[BEAT_STEPS];
    for (int i = 0; i < w->grid.n_runs; i++) {
        if (sum[BEAT_RUNS + i] > 0 && w->told[BEAT_RUNS + i] == 0) {
            struct dt_sweep_row row;
            w->told[BEAT_RUNS + i] = 1;
            clear_line(w);
            dt_sweep_row_read(w->dir, &w->grid, i, &row);
            dt_sweep_row_tell(&w->grid, &row, n_ended(w));
        }
    }
    draw_line(w);
}

/* ---- signs of life */

static enum dt_status start_beat(struct sweep *w)
{
    w->mine[BEAT_STOP] = dt_stop_requested();
    memcpy(w->sum, w->mine, w->n_beat * sizeof *w->sum);
    return dt_comm_allreduce_start(w->world->comm, w->sum, w->n_beat, DT_TYPE_F64, DT_REDUCE_SUM, "a sign of life of the sweep",
                                   &w->request);
}

/* One is there. A wish to stop that reached another rank alone becomes everybody's. */
static bool take_beat(struct sweep *w)
{
    tell(w, w->sum);
    if (w->sum[BEAT_STOP] > 0 && !dt_stop_requested()) {
        raise(SIGTERM);
    }
    return (int)w->sum[BEAT_FINISHED] == w->world->size;
}

static enum dt_status look_after_beat(struct sweep *w)
{
    bool done = false;
    DT_TRY(dt_comm_test(w->world->comm, &w->request, &done));
    if (done) {
        take_beat(w);
        return start_beat(w);
    }
    return DT_OK;
}

/* Until all ranks have finished. They all see the same sums, so they all leave after the same one. */
static enum dt_status wait_for_others(struct sweep *w)
{
    bool over = false;
    w->mine[BEAT_FINISHED] = 1;
    dt_comm_phase(w->world->comm, "the end of a sweep");
    while (!over) {
        DT_TRY(dt_comm_wait(w->world->comm, &w->request));
        over = take_beat(w);
        DT_TRY(over ? DT_OK : start_beat(w));
    }
    return DT_OK;
}

/* ---- a run */

/* A dt_emitter.emit. */
static enum dt_status hear(void *context, struct dt_event *event)
{
    struct sweep *w = context;
    w->mine[BEAT_STEPS] += event->kind == DT_EVENT_STEP;
    w->failed = w->failed == DT_OK ? look_after_beat(w) : w->failed;
    return dt_sinks_emit(&w->sinks, event);
}

static enum dt_status load(struct sweep *w, int run)
{
    dt_grid_sets(&w->grid, run, w->sets);
    DT_TRY(dt_config_load(w->args->config, w->sets, w->grid.n_axes, &w->config));
    w->config.threads = w->config.threads == 0 ? w->n_threads : w->config.threads;
    return dt_data_spec_set_dir(&w->config.data, w->args->data);
}

/* One that fails is told, and a row of the table. */
static void note_failure(struct sweep *w, int run, enum dt_status s)
{
    dt_text_print(stderr, "dtrain: run %d: %s", run + 1, dt_error_text());
    dt_error_clear();
    if (w->run_failure == DT_OK && s != DT_NON_FINITE) {
        w->run_failure = s;
    }
}

static enum dt_status train(struct sweep *w, int run)
{
    char path[DT_PATH_SIZE];
    dt_sweep_folder(w->dir, &w->grid, run, path);
    w->sinks = (struct dt_sinks){.command = w->args->line, .silent = true};
    const struct dt_train_options options = {
        .format = &dt_config_json, .run_dir = path, .faults = &(struct dt_faults){.n = 0}, .resume = w->args->resume};
    enum dt_status s = load(w, run);
    if (s == DT_OK) {
        s = dt_train(&w->alone, &w->config, &options, &(struct dt_emitter){hear, w});
        dt_sinks_close(&w->sinks);
    }
    DT_TRY(w->failed);
    if (s == DT_STOPPED || s == DT_STALLED) {
        return s;
    }
    if (s != DT_OK) {
        clear_line(w);
        note_failure(w, run, s);
    }
    w->mine[BEAT_RUNS + run] = 1;
    return look_after_beat(w);
}

static enum dt_status train_mine(struct sweep *w)
{
    enum dt_status s = DT_OK;
    for (int run = w->world->rank; run < w->grid.n_runs && s == DT_OK && !dt_stop_requested(); run += w->world->size) {
        dt_comm_phase(w->world->comm, "a run of a sweep");
        s = train(w, run);
    }
    return s == DT_STOPPED ? DT_OK : s; /* the others hear of it by the next sign of life */
}

/* ---- the whole */

/* Every configuration is looked at before the first run. */
static enum dt_status check_all(struct sweep *w)
{
    DT_TRY(dt_grid_open(w->args->sets, w->args->n_sets, &w->grid));
    w->n_beat = BEAT_RUNS + (size_t)w->grid.n_runs;
    w->sets = calloc((size_t)w->grid.n_axes + 1, sizeof *w->sets);
    w->mine = calloc(3 * w->n_beat, sizeof *w->mine);
    if (w->sets == NULL || w->mine == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep");
    }
    w->sum = w->mine + w->n_beat;
    w->told = w->sum + w->n_beat;
    for (int run = 0; run < w->grid.n_runs; run++) {
        DT_TRY(load(w, run));
    }
    return DT_OK;
}

static enum dt_status choose_folder(struct sweep *w)
{
    char name[DT_PATH_SIZE];
    if (w->args->run == NULL) {
        snprintf(name, sizeof name, "sweep-%.200s", w->config.name);
        dt_run_dir_default(name, w->dir);
        return DT_OK;
    }
    if (strlen(w->args->run) > DT_PATH_SIZE - 80) {
        return dt_error(DT_USAGE, "--run: the path is longer than %d bytes", DT_PATH_SIZE - 80);
    }
    snprintf(w->dir, sizeof w->dir, "%s", w->args->run);
    if (!w->args->resume && access(w->dir, F_OK) == 0) {
        return dt_error(DT_CANT_CREATE, "%s: is already there (go on with --resume, or choose another --run)", w->dir);
    }
    return DT_OK;
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
        dt_text_print(stderr, "%d run%s in %s, %s", w->grid.n_runs, w->grid.n_runs == 1 ? "" : "s", w->dir,
                      world->size == 1 ? "one after another" : "one on each rank at a time");
    }
    return dt_world_agree(world, dt_world_open_alone(world, &w->alone));
}

static enum dt_status run_all(struct sweep *w)
{
    DT_TRY(start_beat(w));
    DT_TRY(train_mine(w)); /* a rank that leaves here leaves alone, and takes the others along */
    DT_TRY(wait_for_others(w));
    clear_line(w);
    DT_TRY(dt_world_agree(w->world, w->world->rank == 0 ? dt_sweep_results(w->dir, &w->grid) : DT_OK));
    if (dt_stop_requested()) {
        return dt_error_agreed(DT_STOPPED);
    }
    if (w->run_failure != DT_OK) {
        dt_error(w->run_failure, "a run of the sweep failed, as was said (see its summary.json)");
    }
    return dt_world_agree(w->world, w->run_failure);
}

static void close_sweep(struct sweep *w)
{
    dt_world_close_first(&w->alone);
    dt_grid_close(&w->grid);
    free(w->sets);
    free(w->mine);
    free(w);
}

enum dt_status dt_sweep(struct dt_world *world, const struct dt_args *args)
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
