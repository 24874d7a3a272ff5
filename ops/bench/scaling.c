/* Runs the same training on more and more of the ranks: the first n of them form a world, while the
 * others sleep. */
#include "ops/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/commands/load.h"
#include "cli/output.h"
#include "cli/text.h"
#include "dist/ranks/launch/job.h"
#include "dist/ranks/liveness/heartbeat.h"
#include "dist/strategy/facts/facts.h"
#include "dist/strategy/roles.h"
#include "report/page/chart.h"
#include "report/page/page.h"
#include "train/ranks.h"
#include "train/trainer.h"

#define N_WARMUP 5 /* unmeasured steps */
#define N_STEPS 20
#define MAX_ROWS 64

/* X(constant, name, meaning) */
#define DT_SCALING_LIST(X)                                  \
    X(DT_SCALING_WEAK, "weak", "each rank keeps its batch") \
    X(DT_SCALING_STRONG, "strong", "the ranks share one batch")
#define DT_SCALING_ENUM(constant, ...) constant,
enum dt_scaling_kind { DT_SCALING_LIST(DT_SCALING_ENUM) DT_N_SCALING_KINDS };
#undef DT_SCALING_ENUM

struct dt_scaling_row {
    enum dt_scaling_kind kind;
    int n_ranks;
    size_t batch;  /* of all ranks together */
    double step_s; /* median; 0: not measured yet */
    double rate;   /* samples a second */
    double
        efficiency; /* rate over n times that of one rank; for a shared batch that is T1 / (n Tn) */
};

struct bench {
    struct dt_world *world;
    struct dt_config config;
    struct dt_trainer trainer;
    struct dt_heartbeat heartbeat; /* of the measuring ranks, for the waiting ones */
    char device[128];
    const char *adds_by;
    size_t n_parameters;
    int n_threads; /* per rank, for any number of ranks */
    int n_rows;    /* all rows of one kind, then the other; each kind begins with one rank */
    struct dt_scaling_row rows[MAX_ROWS];
};

#define PEAK_MS 3

#define SCALING_NAME(constant, name, meaning) name,
#define SCALING_MEANING(constant, name, meaning) meaning,
static const char *const scaling_names[DT_N_SCALING_KINDS] = {DT_SCALING_LIST(SCALING_NAME)};
static const char *const scaling_meanings[DT_N_SCALING_KINDS] = {DT_SCALING_LIST(SCALING_MEANING)};

static int most_ranks(const struct bench *b)
{
    return b->rows[b->n_rows - 1].n_ranks;
}

/* ---- the table */

/* "1,199,882 parameters, cpu x86-64-v4, 1 thread, shared_memory" */
static void describe(const struct bench *b, char *text, size_t size)
{
    char count[32];
    snprintf(text, size, "%s parameters, %s, %s",
             dt_count_text((double)b->n_parameters, count, sizeof count), b->device, b->adds_by);
}

static void print_scaling(const struct bench *b)
{
    char text[256], batch[32], rate[32];
    const int n_cores = dt_bench_n_cores(), n_threads = b->world->local_size * b->n_threads;
    describe(b, text, sizeof text);
    printf("# %s\n# medians of %d training steps\n", text, N_STEPS);
    for (int kind = 0; kind < DT_N_SCALING_KINDS; kind++) {
        printf("# %s: %s\n", scaling_names[kind], scaling_meanings[kind]);
    }
    printf("# efficiency: %s/s over those of one rank times the ranks\n", dt_unit_name(&b->config));
    if (n_threads > n_cores) {
        printf("# this host has %d cores for %d threads, which share them\n", n_cores, n_threads);
    }
    printf("%-8s %6s %9s %11s %12s/s %11s\n", "scaling", "ranks", "batch", "ms a step",
           dt_unit_name(&b->config), "efficiency");
    for (int i = 0; i < b->n_rows; i++) {
        const struct dt_scaling_row *row = &b->rows[i];
        printf("%-8s %6d %9s %11.3f %14s %9.1f %%\n", scaling_names[row->kind], row->n_ranks,
               dt_count_text((double)row->batch, batch, sizeof batch), 1e3 * row->step_s,
               dt_count_text(row->rate, rate, sizeof rate), 100 * row->efficiency);
    }
}

/* A dt_file_put_fn. */
static void put_json(FILE *out, const void *context)
{
    const struct bench *b = context;
    struct dt_json json = dt_bench_json(out, "scaling", b->world, dt_bench_peak(PEAK_MS));
    dt_json_number(&json, "parameters", 0, (double)b->n_parameters);
    dt_json_text(&json, "device", b->device);
    dt_json_number(&json, "threads", 0, b->n_threads);
    dt_json_text(&json, "allreduce", b->adds_by);
    dt_json_number(&json, "steps", 0, N_STEPS);
    dt_json_begin(&json, "rows", '[');
    for (int i = 0; i < b->n_rows; i++) {
        const struct dt_scaling_row *row = &b->rows[i];
        dt_json_begin(&json, NULL, '{');
        dt_json_text(&json, "scaling", scaling_names[row->kind]);
        dt_json_number(&json, "ranks", 0, row->n_ranks);
        dt_json_number(&json, "batch", 0, (double)row->batch);
        dt_json_number(&json, "step_ms", 0, 1e3 * row->step_s);
        dt_json_number(&json, "samples_per_s", 0, row->rate);
        dt_json_number(&json, "efficiency", 0, row->efficiency);
        dt_json_end(&json, '{');
    }
    dt_json_end(&json, '[');
    dt_json_end(&json, '{');
    fputc('\n', out);
}

/* ---- the page */

/* How many times as fast as one rank. */
static double speedup(const struct dt_scaling_row *row)
{
    return row->efficiency * row->n_ranks;
}

static void draw_kind(const struct dt_chart *chart, const struct bench *b, int kind)
{
    static const char *const lines[] = {"s0", "s1"}, *const dots[] = {"d0", "d1"};
    double x[MAX_ROWS], y[MAX_ROWS];
    int n = 0;
    for (int i = 0; i < b->n_rows; i++) {
        if (b->rows[i].kind == (enum dt_scaling_kind)kind) {
            x[n] = b->rows[i].n_ranks;
            y[n] = speedup(&b->rows[i]);
            dt_chart_dot(chart, dots[kind], x[n], y[n]);
            n++;
        }
    }
    dt_chart_line(chart, lines[kind], n, x, y);
}

static void draw(FILE *out, const struct bench *b)
{
    const double n = most_ranks(b), ideal[] = {0, n};
    double most = n;
    for (int i = 0; i < b->n_rows; i++) {
        most = fmax(most, speedup(&b->rows[i]));
    }
    const struct dt_chart chart = {out,
                                   "speed by ranks",
                                   {"ranks", 0, 1.05 * n, false},
                                   {"times one rank's speed", 0, 1.05 * most, false}};
    dt_chart_begin(&chart);
    dt_chart_line(&chart, "ideal", 2, ideal, ideal);
    dt_chart_note(&chart, "end", 0.8 * n, 0.85 * n, "ideal");
    for (int kind = 0; kind < DT_N_SCALING_KINDS; kind++) {
        draw_kind(&chart, b, kind);
    }
    dt_chart_end(&chart);
}

static void put_table(FILE *out, const struct bench *b)
{
    char batch[32], rate[32];
    fprintf(
        out,
        "<div class=\"wide\"><table><thead><tr><th>scaling</th><th>ranks</th><th>batch</th><th>ms "
        "a step</th><th>%s/s</th><th>efficiency</th></tr></thead>\n<tbody>",
        dt_unit_name(&b->config));
    for (int i = 0; i < b->n_rows; i++) {
        const struct dt_scaling_row *row = &b->rows[i];
        fprintf(
            out,
            "<tr><td>%s</td><td>%d</td><td>%s</td><td>%.3f</td><td>%s</td><td>%.1f %%</td></tr>\n",
            scaling_names[row->kind], row->n_ranks,
            dt_count_text((double)row->batch, batch, sizeof batch), 1e3 * row->step_s,
            dt_count_text(row->rate, rate, sizeof rate), 100 * row->efficiency);
    }
    fputs("</tbody></table></div>\n", out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct bench *b = context;
    char text[256];
    describe(b, text, sizeof text);
    fprintf(out,
            "<h1>Scaling to %d rank%s</h1>\n<p>%s; medians of %d training steps on a host with %d "
            "cores.</p>\n"
            "<div class=\"cards\"><div class=\"card\"><h2>Speed</h2><p>How many times as fast as "
            "one rank. Blue: weak, %s. Orange: strong, %s.</p>\n",
            most_ranks(b), most_ranks(b) == 1 ? "" : "s", text, N_STEPS, dt_bench_n_cores(),
            scaling_meanings[DT_SCALING_WEAK], scaling_meanings[DT_SCALING_STRONG]);
    draw(out, b);
    fprintf(out,
            "</div>\n<div class=\"card\"><h2>Efficiency</h2><p>%s/s over those of one rank times "
            "the ranks. Where the batch stays, that is T1 / (n Tn).</p>\n",
            dt_unit_name(&b->config));
    put_table(out, b);
    fputs("</div></div>\n", out);
}

/* ---- measurements */

/* With one rank both kinds are the same: 1, 2, 4, ... and all ranks. */
static void plan_rows(struct bench *b)
{
    const size_t batch =
        (size_t)(b->config.batch_global > 0 ? b->config.batch_global : b->config.batch_per_rank);
    for (int kind = 0; kind < DT_N_SCALING_KINDS; kind++) {
        for (int n = 1, last = 0; last < b->world->size; n *= 2) {
            last = n < b->world->size ? n : b->world->size;
            b->rows[b->n_rows++] = (struct dt_scaling_row){
                .kind = (enum dt_scaling_kind)kind,
                .n_ranks = last,
                .batch = kind == DT_SCALING_WEAK ? batch * (size_t)last : batch};
        }
    }
}

static struct dt_config config_of(const struct bench *b, const struct dt_scaling_row *row)
{
    struct dt_config config = b->config;
    config.batch_per_rank = 0;
    config.batch_global = (int64_t)row->batch;
    config.dist.check_every = 0;
    config.threads = b->n_threads;
    return config;
}

/* ---- a row */

static enum dt_status take_steps(struct bench *b, double *step_s)
{
    struct dt_trainer *t = &b->trainer;
    double seconds[N_STEPS];
    DT_TRY(dt_strategy_broadcast(t->strategy));
    for (int i = -N_WARMUP; i < N_STEPS; i++) {
        const double start_s = dt_clock_s();
        DT_TRY(dt_bench_take_step(t, "bench scaling"));
        seconds[i < 0 ? 0 : i] = dt_clock_s() - start_s;
        DT_TRY(dt_heartbeat_look(&b->heartbeat));
    }
    *step_s = dt_bench_median(seconds, N_STEPS);
    return DT_OK;
}

/* The ranks of `part` call it. */
static enum dt_status measure(struct bench *b, struct dt_world *part, struct dt_scaling_row *row)
{
    const struct dt_config config = config_of(b, row);
    struct dt_trainer *t = &b->trainer;
    part->comm->meanwhile = dt_heartbeat_show;
    part->comm->meanwhile_context = &b->heartbeat;
    DT_TRY(dt_trainer_open(part, &config, &dt_config_json, &dt_all_parts, t));
    part->comm->meanwhile = NULL; /* without it in timed steps */
    const enum dt_status s = take_steps(b, &row->step_s);
    snprintf(b->device, sizeof b->device, "%s %s", t->backend->ops->name, t->backend->description);
    b->adds_by = dt_strategy_adds_by(t->strategy); /* of the last row, with all ranks */
    b->n_parameters = t->model.n_parameters;
    dt_trainer_close(t);
    return s;
}

static enum dt_status measure_row(struct bench *b, struct dt_scaling_row *row)
{
    struct dt_world part;
    double mine = 0, sum;
    enum dt_status s = DT_OK;
    b->heartbeat = (struct dt_heartbeat){.comm = b->world->comm,
                                         .name = "a sign of life of the measurement",
                                         .n = 1,
                                         .mine = &mine,
                                         .sum = &sum};
    DT_TRY(dt_world_open_first(b->world, row->n_ranks, &part));
    DT_TRY(dt_heartbeat_start(&b->heartbeat));
    dt_comm_phase(b->world->comm, part.comm != NULL ? "bench scaling" : "idle");
    if (part.comm != NULL) {
        s = measure(b, &part, row);
        if (s == DT_STALLED) {
            return s; /* not all ranks are here to agree */
        }
        dt_world_close_first(&part);
    }
    DT_TRY(dt_heartbeat_finish(&b->heartbeat));
    return dt_world_agree(b->world, s);
}

static enum dt_status measure_all(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct dt_scaling_row *row = &b->rows[i];
        if (i > 0 && row->n_ranks == 1) {
            row->step_s = b->rows[0].step_s; /* the same row */
        } else {
            DT_TRY(measure_row(b, row));
        }
        row->rate = (double)row->batch / row->step_s;
        row->efficiency = row->rate / (row->n_ranks * b->rows[0].rate);
    }
    return DT_OK;
}

/* ---- the command */

static enum dt_status report(const struct bench *b, const struct dt_args *args)
{
    const struct dt_page page = {
        .title = "Scaling", .class = "scaling", .body = put_body, .context = b};
    print_scaling(b);
    const bool failed =
        dt_output_failed(dt_file_print(dt_args_text(args, DT_OPTION_JSON), put_json, b));
    const enum dt_status s = dt_page_write(dt_args_text(args, DT_OPTION_HTML), &page);
    return s == DT_OK && failed
               ? dt_error(DT_IO, "bench scaling: a file was not written (see the message above)")
               : s;
}

static enum dt_status run(struct bench *b, const struct dt_args *args)
{
    DT_TRY(dt_ranks_threads(b->world, b->config.threads, &b->n_threads));
    plan_rows(b);
    DT_TRY(dt_bench_print_load(b->world));
    DT_TRY(measure_all(b));
    return dt_world_agree(b->world, b->world->rank == 0 ? report(b, args) : DT_OK);
}

/* Where each rank keeps its batch (weak scaling) and where they share one (strong scaling): rank 0
 * prints a table, and writes the files that options name. Agreed. */
static enum dt_status bench_scaling(struct dt_world *world, const struct dt_args *args)
{
    struct bench *b;
    struct dt_config config;
    struct dt_roles roles;
    DT_TRY(dt_load_config_all(world, args, &config));
    DT_TRY(dt_error_agreed(dt_roles_find(&config.dist, world->rank, world->size, &roles)));
    if (roles.whole || roles.n_servers > 0) {
        return dt_error_agreed(dt_error(
            DT_CONFIG,
            "bench scaling: one rank alone is no %s (set distributed.strategy to allreduce)",
            dt_strategy_names[config.dist.strategy]));
    }
    DT_TRY(dt_world_alloc(world, 1, sizeof *b, "what is measured", (void **)&b));
    b->world = world;
    b->config = config;
    const enum dt_status s = run(b, args);
    free(b);
    return s;
}

const struct dt_command dt_command_bench_scaling = {
    .word = "bench scaling",
    .meaning = "time training steps of 1, 2, 4, ... ranks",
    .usage = "mpirun -np 4 dtrain bench scaling --config FILE [--data DIR]\n"
             "      [--set KEY.PATH=VALUE]... [--json FILE] [--html FILE]",
    .examples = "  mpirun -np 4 dtrain bench scaling --config configs/mnist.json \\\n"
                "      --html scaling.html\n",
    .more = "Times training steps of 1, 2, 4 and so on of the ranks, and of all of them, while "
            "the others sleep: with the configuration's batch on every rank (weak scaling), and "
            "with one such batch shared by the ranks (strong scaling). The batch is "
            "`train.batch.per_rank`, or `train.batch.global` if that is set. A rank has as many "
            "threads as when all ranks train. Efficiency is the samples per second over those of "
            "one rank times the ranks; with one batch that is T1 / (n Tn).",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_SET] = {DT_TAKEN},
                [DT_OPTION_JSON] = {DT_TAKEN},
                [DT_OPTION_HTML] = {DT_TAKEN}},
    .ending = DT_AGREES_WITH_OTHERS,
    .together = bench_scaling,
};
