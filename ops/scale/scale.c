#include "ops/scale/scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/load.h"
#include "cli/output.h"
#include "dist/strategy/roles.h"
#include "ops/bench/bench.h"
#include "train/ranks.h"

/* ---- predictions */

/* One number of ranks: the sums of every bucket, by the configuration's allreduce from each round
 * and from their medians, and by each algorithm from the medians. */
struct sums {
    int n_ranks;
    double rounds[DT_SCALE_ROUNDS][DT_SCALE_MAX_BUCKETS], seconds[DT_SCALE_MAX_BUCKETS];
    double by[DT_N_ALGORITHMS][DT_SCALE_MAX_BUCKETS];
};

static bool is_simulated(const struct dt_scale_allreduce *allreduce, int n_ranks)
{
    return !allreduce->algorithm->gathers || n_ranks <= DT_SCALE_MOST_GATHERED;
}

static enum dt_status find_sums(struct dt_scale *s, struct sums *sums)
{
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    for (int i = 0; i < DT_SCALE_ROUNDS; i++) {
        DT_TRY(dt_heartbeat_look(&s->heartbeat));
        DT_TRY(dt_scale_sums(&s->jobs[i], &allreduce, sums->n_ranks, sums->rounds[i]));
    }
    DT_TRY(dt_scale_sums(&s->job, &allreduce, sums->n_ranks, sums->seconds));
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        const struct dt_scale_allreduce other = {.algorithm = &dt_algorithms[i]};
        DT_TRY(dt_heartbeat_look(&s->heartbeat));
        if (is_simulated(&other, sums->n_ranks)) {
            DT_TRY(dt_scale_sums(&s->job, &other, sums->n_ranks, sums->by[i]));
        }
    }
    return DT_OK;
}

static const char *fastest(const struct dt_scale *s, const struct sums *sums, double samples)
{
    double best_s = INFINITY;
    const char *best = NULL;
    for (int i = 0; i < DT_N_ALGORITHMS && sums->n_ranks > 1; i++) {
        const struct dt_scale_allreduce allreduce = {.algorithm = &dt_algorithms[i]};
        const double step_s = dt_scale_step(&s->job, sums->by[i], sums->n_ranks, samples).step_s;
        if (is_simulated(&allreduce, sums->n_ranks) && step_s < best_s * (1 - 1e-9)) {
            best_s = step_s;
            best = dt_algorithms[i].name;
        }
    }
    return best;
}

static void predict_row(struct dt_scale *s, const struct sums *sums, enum dt_scale_kind kind)
{
    const int n = sums->n_ranks;
    const size_t batch = dt_scale_rank_batch(&s->config) * (size_t)(kind == DT_SCALE_WEAK ? n : 1);
    const double samples = (double)batch / n;
    if (samples < 1 || s->predicted.n == DT_SCALE_MAX_ROWS) {
        return;
    }
    struct dt_scale_row *row = &s->predicted.rows[s->predicted.n++];
    *row = (struct dt_scale_row){.kind = kind, .n_ranks = n, .batch = batch};
    for (int i = 0; i < DT_SCALE_ROUNDS; i++) {
        row->rounds[i] = dt_scale_step(&s->jobs[i], sums->rounds[i], n, samples).step_s;
    }
    dt_scale_sort(row);
    const struct dt_scale_step step = dt_scale_step(&s->job, sums->seconds, n, samples);
    row->wait = step.wait_s / step.step_s;
    row->fastest = fastest(s, sums, samples);
}

/* 1, 2, 4, ... and the last; and all that were measured. */
static bool is_predicted(const struct dt_scale *s, int n)
{
    return (n & (n - 1)) == 0 || n == s->most ||
           dt_scale_find(&s->measured, DT_SCALE_WEAK, n) != NULL;
}

static enum dt_status predict(struct dt_scale *s)
{
    struct sums *sums = malloc(sizeof *sums);
    enum dt_status status =
        sums != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "bench scaling: no memory for predictions");
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    for (int n = 1; n <= s->most && status == DT_OK; n++) {
        if (is_predicted(s, n) && is_simulated(&allreduce, n)) {
            sums->n_ranks = n;
            status = find_sums(s, sums);
            for (int kind = 0; kind < DT_N_SHOWN_KINDS && status == DT_OK; kind++) {
                predict_row(s, sums, (enum dt_scale_kind)kind);
            }
        }
    }
    free(sums);
    return status;
}

/* Rank 0 does it, and shows the others signs of life. */
static enum dt_status predict_all(struct dt_scale *s)
{
    enum dt_status status = DT_OK;
    s->predicts = s->world->size > 1 || s->has_network;
    DT_TRY(dt_scale_start_heartbeat(s));
    if (s->predicts && s->world->rank == 0) {
        status = dt_scale_fit_jobs(s);
        status = status == DT_OK ? predict(s) : status;
    }
    DT_TRY(dt_heartbeat_finish(&s->heartbeat));
    return dt_world_agree(s->world, status);
}

/* ---- options */

static enum dt_status read_ranks(const char *text, struct dt_scale *s)
{
    int n_given = 0;
    s->ranks_given = text != NULL;
    while (text != NULL && *text != '\0') {
        char *end;
        const long n = strtol(text, &end, 10);
        if (end == text || (*end != '\0' && (*end != ',' || end[1] == '\0')) || n < 1 ||
            n > DT_SCALE_MOST_RANKS) {
            return dt_error(DT_USAGE,
                            "--ranks: expected numbers of ranks 1..%d such as 1,2,4, got '%.60s'",
                            DT_SCALE_MOST_RANKS, text);
        }
        s->wanted[n / 64] |= (uint64_t)1 << (n % 64);
        text = end + (*end == ',');
        if (++n_given > DT_SCALE_MAX_GIVEN) {
            return dt_error(DT_USAGE, "--ranks: more than %d numbers (leave some out)",
                            DT_SCALE_MAX_GIVEN);
        }
    }
    return DT_OK;
}

static enum dt_status read_options(const struct dt_args *args, struct dt_scale *s)
{
    const char *network = dt_args_text(args, DT_OPTION_NETWORK);
    size_t most = DT_SCALE_MOST_RANKS;
    DT_TRY(dt_args_number(args, DT_OPTION_PREDICT, false, 1, DT_SCALE_MOST_RANKS, &most));
    DT_TRY(read_ranks(dt_args_text(args, DT_OPTION_RANKS), s));
    s->most = (int)most;
    s->has_network = network != NULL;
    return network != NULL ? dt_scale_network_find(network, &s->network) : DT_OK;
}

static enum dt_status check_options(const struct dt_args *args)
{
    struct dt_scale s = {.most = 0};
    return read_options(args, &s);
}

static enum dt_status check_world(const struct dt_scale *s)
{
    const struct dt_dist_spec *dist = &s->config.dist;
    struct dt_roles roles;
    DT_TRY(dt_roles_find(dist, s->world->rank, s->world->size, &roles));
    if (roles.whole || roles.n_servers > 0) {
        return dt_error(
            DT_CONFIG,
            "bench scaling: one rank alone is no %s (set distributed.strategy to allreduce)",
            dt_strategy_names[dist->strategy]);
    }
    if (dist->compression.type != DT_COMPRESSION_NONE) {
        return dt_error(DT_CONFIG, "bench scaling: predictions know no compression (set "
                                   "distributed.compression.type to none)");
    }
    for (int n = s->world->size + 1; n <= DT_SCALE_MOST_RANKS; n++) {
        if ((s->wanted[n / 64] >> (n % 64) & 1) != 0) {
            return dt_error(DT_USAGE,
                            "--ranks: %d ranks, but there are %d (start more, or leave "
                            "predictions to --predict)",
                            n, s->world->size);
        }
    }
    return DT_OK;
}

/* ---- the command */

static enum dt_status report(struct dt_scale *s, const struct dt_args *args)
{
    dt_scale_advise(s);
    dt_scale_print(s);
    const bool json_failed =
        dt_output_failed(dt_file_print(dt_args_text(args, DT_OPTION_JSON), dt_scale_put_json, s));
    const bool csv_failed =
        dt_output_failed(dt_file_print(dt_args_text(args, DT_OPTION_CSV), dt_scale_put_csv, s));
    const enum dt_status status = dt_scale_write_page(dt_args_text(args, DT_OPTION_HTML), s);
    return status == DT_OK && (json_failed || csv_failed)
               ? dt_error(DT_IO, "bench scaling: a file was not written (see the message above)")
               : status;
}

static enum dt_status run(struct dt_scale *s, const struct dt_args *args)
{
    DT_TRY(dt_error_agreed(check_world(s)));
    DT_TRY(dt_ranks_threads(s->world, s->config.threads, &s->n_threads));
    DT_TRY(dt_bench_print_load(s->world));
    DT_TRY(dt_scale_measure(s));
    DT_TRY(predict_all(s));
    return dt_world_agree(s->world, s->world->rank == 0 ? report(s, args) : DT_OK);
}

/* Agreed. */
static enum dt_status scale(struct dt_world *world, const struct dt_args *args)
{
    struct dt_scale *s;
    struct dt_config config;
    DT_TRY(dt_load_config_all(world, args, &config));
    DT_TRY(dt_world_alloc(world, 1, sizeof *s, "what is measured", (void **)&s));
    s->world = world;
    s->config = config;
    enum dt_status status = dt_error_agreed(read_options(args, s));
    status = status == DT_OK ? run(s, args) : status;
    free(s);
    return status;
}

const struct dt_command dt_command_bench_scaling = {
    .word = "bench scaling",
    .meaning = "measure scaling, and predict it for more ranks",
    .usage = "mpirun -np 4 dtrain bench scaling --config FILE [--data DIR]\n"
             "      [--set KEY.PATH=VALUE]... [--ranks N,...] [--predict N]\n"
             "      [--network NAME] [--json FILE] [--csv FILE] [--html FILE]",
    .examples =
        "  mpirun -np 4 dtrain bench scaling --config configs/mnist.json \\\n"
                "      --html scale.html\n"
        "  mpirun -np 2 dtrain bench scaling --config configs/mnist.json --network 25gbe\n",
    .more = "Times training steps of 1, 2, 4 and so on of the ranks, and of all of them, while "
            "the others sleep: with the configuration's batch on every rank (weak scaling), and "
            "with one such batch shared by the ranks (strong scaling). The batch is "
            "`train.batch.per_rank`, or `train.batch.global` if that is set. A rank has as many "
            "threads as when all ranks train. Efficiency is the samples per second over those of "
            "one rank times the ranks; with one batch that is T1 / (n Tn). From what 1 and 2 ranks "
            "take it predicts more ranks, on hosts like this one: with links as quick as this "
            "host's, or on another network. docs/scaling.md has the model and its limits.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_SET] = {DT_TAKEN},
                [DT_OPTION_RANKS] = {DT_TAKEN, "the numbers of ranks to measure, such as 1,2,4; "
                                               "1 and 2 always are"},
                [DT_OPTION_PREDICT] = {DT_TAKEN},
                [DT_OPTION_NETWORK] = {DT_TAKEN},
                [DT_OPTION_JSON] = {DT_TAKEN},
                [DT_OPTION_CSV] = {DT_TAKEN},
                [DT_OPTION_HTML] = {DT_TAKEN}},
    .ending = DT_AGREES_WITH_OTHERS,
    .check = check_options,
    .together = scale,
};
