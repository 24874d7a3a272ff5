/* Runs the same training on more and more of the ranks: the first n of them form a world, while the
 * others sleep. */
#include "ops/bench/scaling.h"
#include "dist/ranks/launch/job.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/commands/load.h"
#include "cli/output.h"
#include "cli/text.h"
#include "dist/ranks/liveness/heartbeat.h"
#include "dist/strategy/facts/facts.h"
#include "dist/strategy/roles.h"
#include "train/parts.h"
#include "train/ranks.h"

struct bench {
    struct dt_world *world;
    struct dt_config config;
    struct dt_trainer trainer;
    struct dt_scaling scaling;
    struct dt_heartbeat heartbeat; /* of the measuring ranks, for the waiting ones */
    char device[128];
};

/* ---- measurements */

/* With one rank both kinds are the same: 1, 2, 4, ... and all ranks. */
static void plan_rows(struct bench *b)
{
    const size_t batch =
        (size_t)(b->config.batch_global > 0 ? b->config.batch_global : b->config.batch_per_rank);
    for (int kind = 0; kind < DT_N_SCALING_KINDS; kind++) {
        for (int n = 1, last = 0; last < b->world->size; n *= 2) {
            last = n < b->world->size ? n : b->world->size;
            b->scaling.rows[b->scaling.n_rows++] = (struct dt_scaling_row){
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
    config.threads = b->scaling.n_threads;
    return config;
}

/* ---- a row */

static enum dt_status take_steps(struct bench *b, double *step_s)
{
    struct dt_trainer *t = &b->trainer;
    double seconds[DT_SCALING_STEPS];
    DT_TRY(dt_strategy_broadcast(t->strategy));
    for (int i = -DT_SCALING_WARMUP; i < DT_SCALING_STEPS; i++) {
        const double start_s = dt_clock_s();
        DT_TRY(dt_bench_take_step(t, "bench scaling"));
        seconds[i < 0 ? 0 : i] = dt_clock_s() - start_s;
        DT_TRY(dt_heartbeat_look(&b->heartbeat));
    }
    *step_s = dt_bench_median(seconds, DT_SCALING_STEPS);
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
    b->scaling.adds_by = dt_strategy_adds_by(t->strategy); /* of the last row, with all ranks */
    b->scaling.n_parameters = t->model.n_parameters;
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
    struct dt_scaling *scaling = &b->scaling;
    for (int i = 0; i < scaling->n_rows; i++) {
        struct dt_scaling_row *row = &scaling->rows[i];
        if (i > 0 && row->n_ranks == 1) {
            row->step_s = scaling->rows[0].step_s; /* the same row */
        } else {
            DT_TRY(measure_row(b, row));
        }
        row->rate = (double)row->batch / row->step_s;
        row->efficiency = row->rate / (row->n_ranks * scaling->rows[0].rate);
    }
    return DT_OK;
}

/* ---- the command */

static enum dt_status report(const struct bench *b, const char *json_path, const char *html)
{
    cJSON *json = dt_scaling_json(b->world, &b->scaling);
    dt_scaling_print(&b->scaling);
    const bool failed = dt_output_failed(dt_bench_write(json_path, json));
    cJSON_Delete(json);
    const enum dt_status s = dt_scaling_page(html, &b->scaling);
    return s == DT_OK && failed
               ? dt_error(DT_IO, "bench scaling: a file was not written (see the message above)")
               : s;
}

static enum dt_status run(struct bench *b, const char *json, const char *html)
{
    DT_TRY(dt_ranks_threads(b->world, b->config.threads, &b->scaling.n_threads));
    b->scaling.n_host_threads = b->world->local_size * b->scaling.n_threads;
    b->scaling.unit = dt_unit_name(&b->config);
    b->scaling.device = b->device;
    plan_rows(b);
    DT_TRY(dt_bench_print_load(b->world));
    DT_TRY(measure_all(b));
    return dt_world_agree(b->world, b->world->rank == 0 ? report(b, json, html) : DT_OK);
}

/* Where each rank keeps its batch (weak scaling) and where they share one (strong scaling): rank 0
 * prints a table, and writes the files unless they are NULL. Agreed. */
static enum dt_status time_scaling(struct dt_world *world, const struct dt_config *config,
                                   const char *json, const char *html)
{
    struct bench *b;
    struct dt_roles roles;
    DT_TRY(dt_error_agreed(dt_roles_find(&config->dist, world->rank, world->size, &roles)));
    if (roles.whole || roles.n_servers > 0) {
        return dt_error_agreed(dt_error(
            DT_CONFIG,
            "bench scaling: one rank alone is no %s (set distributed.strategy to allreduce)",
            dt_strategy_names[config->dist.strategy]));
    }
    DT_TRY(dt_world_alloc(world, 1, sizeof *b, "what is measured", (void **)&b));
    b->world = world;
    b->config = *config;
    const enum dt_status s = run(b, json, html);
    free(b);
    return s;
}

static enum dt_status bench_scaling(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    DT_TRY(dt_load_config_all(world, args, &config));
    return time_scaling(world, &config, dt_args_text(args, DT_OPTION_JSON),
                        dt_args_text(args, DT_OPTION_HTML));
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
