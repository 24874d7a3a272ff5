/* The command: options, predictions from what was measured, advice, and the document. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli_text.h"
#include "cli/commands/load.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "dist/strategy/roles.h"
#include "ops/bench/bench.h"
#include "ops/bench/scaling.h"
#include "train/rank_checks.h"

#define PEAK_MS 3
#define MAX_GIVEN 24 /* numbers of ranks */
/* An algorithm that gathers is predicted so far: the time to simulate it grows with the cube of the
 * ranks. */
#define MOST_GATHERED 64
#define ODD_SPREAD 1.2  /* of rounds: more is worth a warning */
#define MOST_SPREAD 1.5 /* of rounds: more allows no advice */
#define LEAST_EFFICIENCY 0.8
#define MOST_LARGER 64 /* times the batch, that advice goes up to */

struct scaling {
    struct dt_scale s; /* measured */
    int most;          /* ranks to predict for */
    bool has_network;
    struct dt_scale_network network; /* between hosts */
    bool predicts;                   /* there is a link to predict for */
    struct dt_scale_table predicted;
    struct dt_finding load;
};

/* ---- predictions */

/* One number of ranks: the allreduce of every bucket, by the configuration's algorithm from each
 * round and from their medians, and by each algorithm from the medians. */
struct sums {
    int n_ranks;
    double own[DT_SCALE_RESULTS][DT_SCALE_MAX_BUCKETS];
    double by[DT_N_ALGORITHMS][DT_SCALE_MAX_BUCKETS];
};

static bool is_simulated(const struct dt_scale_allreduce *allreduce, int n_ranks)
{
    return !allreduce->algorithm->gathers || n_ranks <= MOST_GATHERED;
}

static enum dt_status find_sums(struct dt_scale *s, struct sums *sums)
{
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    for (int i = 0; i < DT_SCALE_RESULTS; i++) {
        DT_TRY(dt_heartbeat_look(&s->heartbeat));
        DT_TRY(dt_scale_sums(&s->jobs[i], &allreduce, sums->n_ranks, sums->own[i]));
    }
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        const struct dt_scale_allreduce other = {.algorithm = &dt_algorithms[i]};
        DT_TRY(dt_heartbeat_look(&s->heartbeat));
        if (is_simulated(&other, sums->n_ranks)) {
            DT_TRY(dt_scale_sums(&s->jobs[DT_SCALE_MEDIAN], &other, sums->n_ranks, sums->by[i]));
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
        const double step_s =
            dt_scale_step(&s->jobs[DT_SCALE_MEDIAN], sums->by[i], sums->n_ranks, samples).step_s;
        if (is_simulated(&allreduce, sums->n_ranks) && step_s < best_s * (1 - 1e-9)) {
            best_s = step_s;
            best = dt_algorithms[i].name;
        }
    }
    return best;
}

/* Not where an epoch has no whole step. */
static void predict_row(struct scaling *c, const struct sums *sums, enum dt_scale_kind kind)
{
    const struct dt_scale *s = &c->s;
    const int n = sums->n_ranks;
    const size_t batch = dt_scale_rank_batch(&s->config) * (size_t)(kind == DT_SCALE_WEAK ? n : 1);
    const double samples = (double)batch / n;
    if (samples < 1 || batch > s->n_samples || c->predicted.n == DT_SCALE_MAX_ROWS) {
        return;
    }
    struct dt_scale_row *row = &c->predicted.rows[c->predicted.n++];
    *row = (struct dt_scale_row){.kind = kind, .n_ranks = n, .batch = batch};
    for (int i = 0; i < DT_SCALE_ROUNDS; i++) {
        row->step_s[i] = dt_scale_step(&s->jobs[i], sums->own[i], n, samples).step_s *
                         (n > 1 ? s->rests[kind][i] : 1);
    }
    dt_scale_sort(row);
    const struct dt_scale_step step =
        dt_scale_step(&s->jobs[DT_SCALE_MEDIAN], sums->own[DT_SCALE_MEDIAN], n, samples);
    row->wait = step.wait_s / step.step_s;
    row->fastest = fastest(s, sums, samples);
}

/* 1, 2, 4, ... and the last; and all that were measured. */
static bool is_predicted(const struct scaling *c, int n)
{
    return (n & (n - 1)) == 0 || n == c->most ||
           dt_scale_find(&c->s.measured, DT_SCALE_WEAK, n) != NULL;
}

static enum dt_status predict(struct scaling *c)
{
    struct sums *sums = malloc(sizeof *sums);
    enum dt_status status =
        sums != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "bench scaling: no memory for predictions");
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(&c->s);
    for (int n = 1; n <= c->most && status == DT_OK; n++) {
        if (is_predicted(c, n) && is_simulated(&allreduce, n)) {
            dt_terminal_live("prediction for %d ranks", n);
            sums->n_ranks = n;
            status = find_sums(&c->s, sums);
            for (int kind = 0; kind < DT_N_SHOWN_KINDS && status == DT_OK; kind++) {
                predict_row(c, sums, (enum dt_scale_kind)kind);
            }
        }
    }
    free(sums);
    return status;
}

/* Rank 0 does it, and shows the others signs of life. */
static enum dt_status predict_all(struct scaling *c)
{
    struct dt_scale *s = &c->s;
    enum dt_status status = DT_OK;
    c->predicts = s->world->size > 1 || c->has_network;
    DT_TRY(dt_scale_start_heartbeat(s));
    if (c->predicts && s->world->rank == 0) {
        status = dt_scale_fit_jobs(s);
        for (int i = 0; i < DT_SCALE_RESULTS && c->has_network; i++) {
            s->jobs[i].costs.between = c->network.cost;
        }
        status = status == DT_OK ? predict(c) : status;
    }
    DT_TRY(dt_heartbeat_finish(&s->heartbeat));
    return dt_world_agree(s->world, status);
}

/* ---- what rows say */

/* Samples a second; and T1 / (n Tn) of a shared batch, its like of a batch each: the rate over n
 * times the median of one rank. */
static double rate(const struct dt_scale_row *row)
{
    return (double)row->batch / row->step_s[DT_SCALE_MEDIAN];
}

static double efficiency(const struct scaling *c, const struct dt_scale_row *row)
{
    return rate(row) / row->n_ranks / rate(&c->s.measured.rows[0]);
}

static double epoch_s(const struct scaling *c, const struct dt_scale_row *row)
{
    return ceil((double)c->s.n_samples / (double)row->batch) * row->step_s[DT_SCALE_MEDIAN];
}

static double spread(const struct dt_scale_row *row)
{
    return row->longest_s / row->shortest_s;
}

/* Of the row whose rounds differ most. */
static double largest_spread(const struct scaling *c)
{
    double most = 1;
    for (int i = 0; i < c->s.measured.n; i++) {
        most = fmax(most, spread(&c->s.measured.rows[i]));
    }
    return most;
}

/* ---- advice */

/* The batch of a rank with which so many ranks are efficient; 0: there is none. */
static double larger_batch(const struct scaling *c, int n_ranks)
{
    const struct dt_scale *s = &c->s;
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    const struct dt_scale_job *job = &s->jobs[DT_SCALE_MEDIAN];
    const double batch = (double)dt_scale_rank_batch(&s->config),
                 rest = s->rests[DT_SCALE_WEAK][DT_SCALE_MEDIAN];
    double seconds[DT_SCALE_MAX_BUCKETS];
    if (dt_scale_sums(job, &allreduce, n_ranks, seconds) != DT_OK) {
        return 0;
    }
    for (double times = 2; times <= MOST_LARGER && times * batch * n_ranks <= (double)s->n_samples;
         times *= 2) {
        const struct dt_scale_step step = dt_scale_step(job, seconds, n_ranks, times * batch);
        const double one_s = dt_scale_compute_s(job, times * batch);
        if (one_s / (rest * step.step_s) >= LEAST_EFFICIENCY) {
            return times * batch;
        }
    }
    return 0;
}

/* How to go on where `bad` is too slow, and `last` ranks were the most that are not. */
static const char *cure(const struct scaling *c, struct dt_doc *doc, const struct dt_scale_row *bad,
                        int last)
{
    const double lost = 1 - 1 / dt_scale_share(&c->s.jobs[DT_SCALE_MEDIAN], bad->n_ranks);
    const double batch = bad->wait > lost ? larger_batch(c, bad->n_ranks) : 0;
    const char *way = "";
    if (bad->wait <= lost) {
        way = ", or use more hosts, since the ranks of a host share its cores and memory";
    } else if (batch > 0) {
        way = dt_doc_print(doc, ", or raise the batch to %.0f a rank", batch);
    } else if (bad->fastest != NULL && strcmp(bad->fastest, c->s.adds_by) != 0) {
        way = dt_doc_print(doc, ", or try distributed.allreduce=%s", bad->fastest);
    }
    return dt_doc_print(doc, "Use at most %d rank%s%s.", last, last == 1 ? "" : "s", way);
}

static void advise(const struct scaling *c, struct dt_doc *doc)
{
    const struct dt_scale_row *bad = NULL, *good = NULL;
    const double differ = largest_spread(c);
    for (int i = 0; i < c->predicted.n && bad == NULL; i++) {
        const struct dt_scale_row *row = &c->predicted.rows[i];
        if (row->kind == DT_SCALE_WEAK) {
            bad = efficiency(c, row) < LEAST_EFFICIENCY ? row : NULL;
            good = bad == NULL ? row : good;
        }
    }
    if (good == NULL) {
        dt_doc_verdict(doc, DT_VERDICT_MEASURED,
                       "One rank has no link: nothing is predicted (start two, or name a "
                       "--network)");
    } else if (differ > MOST_SPREAD) {
        dt_doc_verdict(doc, DT_VERDICT_WARN,
                       "Rounds differ up to %.1f times, which allows no advice (repeat it while no "
                       "other program runs)",
                       differ);
    } else if (bad == NULL) {
        dt_doc_verdict(doc, DT_VERDICT_MEASURED,
                       "Predicted efficiency of weak scaling: %.0f %% at %d ranks. Add ranks, each "
                       "with its batch.",
                       100 * efficiency(c, good), good->n_ranks);
    } else {
        dt_doc_verdict(doc, DT_VERDICT_MEASURED,
                       "Predicted efficiency of weak scaling: %.0f %% at %d ranks, where "
                       "communication takes %.0f %% of a step. %s",
                       100 * efficiency(c, bad), bad->n_ranks, 100 * bad->wait,
                       cure(c, doc, bad, good->n_ranks));
    }
}

/* ---- the document */

static void add_setup(const struct scaling *c, struct dt_doc *doc)
{
    const struct dt_scale *s = &c->s;
    const double differ = largest_spread(c);
    struct dt_part *p = dt_doc_figures(doc, "Setup");
    dt_bench_describe(p, s->world, &c->load, dt_bench_peak(PEAK_MS));
    dt_doc_figure(p, "parameters::0", dt_n((double)s->n_parameters));
    dt_doc_fact(p, "device", "%s", s->device);
    dt_doc_fact(p, "allreduce", "%s", s->adds_by);
    dt_doc_figure(p, "threads of a rank::+", dt_n(s->n_threads));
    dt_doc_figure(p, "cores of the host::+", dt_n(s->n_cores));
    dt_doc_figure(p, "rounds::+", dt_n(DT_SCALE_ROUNDS));
    dt_doc_figure(p, "longest round over shortest::2", dt_n(differ));
    if (differ > ODD_SPREAD) {
        dt_doc_judge(p, DT_VERDICT_WARN,
                     "predictions are no better than that (repeat it while no other program runs)");
    }
}

/* Efficiency by ranks, in percent. */
static void add_line(const struct scaling *c, struct dt_part *series,
                     const struct dt_scale_table *table, enum dt_scale_kind kind,
                     struct dt_line line)
{
    double x[DT_SCALE_MAX_ROWS], y[DT_SCALE_MAX_ROWS], low[DT_SCALE_MAX_ROWS],
        high[DT_SCALE_MAX_ROWS];
    for (int i = 0; i < table->n; i++) {
        const struct dt_scale_row *row = &table->rows[i];
        if (row->kind == kind) {
            x[line.n] = row->n_ranks;
            y[line.n] = 100 * efficiency(c, row);
            low[line.n] = y[line.n] * row->step_s[DT_SCALE_MEDIAN] / row->longest_s;
            high[line.n] = y[line.n] * row->step_s[DT_SCALE_MEDIAN] / row->shortest_s;
            line.n++;
        }
    }
    line.x = x;
    line.y = y;
    line.low = low;
    line.high = high;
    dt_doc_line(series, &line);
}

static void add_chart(const struct scaling *c, struct dt_doc *doc, enum dt_scale_kind kind)
{
    const double ideal[] = {100, 100};
    double ends[] = {1, fmax(2, c->s.world->size)};
    for (int i = 0; i < c->predicted.n; i++) {
        ends[1] = fmax(ends[1], c->predicted.rows[i].n_ranks);
    }
    struct dt_part *p = dt_doc_series(
        doc, kind == DT_SCALE_WEAK ? "Weak scaling" : "Strong scaling", "ranks", "efficiency, %");
    dt_doc_caption(p, "%s: %s. Bands reach from the shortest round to the longest.",
                   dt_scale_names[kind], dt_scale_meanings[kind]);
    dt_doc_axes(p, DT_LOG_X | DT_FROM_ZERO);
    dt_doc_line(p, &(struct dt_line){.name = "ideal", DT_DASHES, 2, ends, ideal, .color = 8});
    add_line(c, p, &c->predicted, kind, (struct dt_line){.name = "predicted", .color = 1});
    add_line(c, p, &c->s.measured, kind,
             (struct dt_line){.name = "measured", .stroke = DT_DOTS, .color = 2});
}

/* By kind and ranks, measured beside predicted. */
static void add_rows(const struct scaling *c, struct dt_doc *doc)
{
    const struct dt_scale_table *const tables[] = {&c->s.measured, &c->predicted};
    struct dt_part *p = dt_doc_table(
        doc, "Steps",
        "scaling|ranks::+|source|step:ms:3|rate:1/s:0|efficiency::%|waits::%|fastest|batch::0|"
        "epoch::t|shortest:ms:3|longest:ms:3");
    dt_doc_caption(
        p,
        "step: the median of %d rounds. rate: %s in a second. efficiency: that rate over the one "
        "of one rank times the ranks. waits: the share of a step that waits for "
        "communication. fastest: the best algorithm with the same links.",
        DT_SCALE_ROUNDS, dt_unit_name(&c->s.config));
    for (int i = 0; i < DT_N_SHOWN_KINDS * DT_SCALE_MOST_RANKS * 2; i++) {
        const enum dt_scale_kind kind = (enum dt_scale_kind)(i / 2 / DT_SCALE_MOST_RANKS);
        const int n_ranks = i / 2 % DT_SCALE_MOST_RANKS + 1;
        const struct dt_scale_row *row = dt_scale_find(tables[i % 2], kind, n_ranks);
        if (row != NULL) {
            dt_doc_row(p, dt_t(dt_scale_names[kind]), dt_n(n_ranks),
                       dt_t(i % 2 == 0 ? "measured" : "predicted"),
                       dt_n(1e3 * row->step_s[DT_SCALE_MEDIAN]), dt_n(rate(row)),
                       dt_n(efficiency(c, row)), dt_n(i % 2 == 0 ? (double)NAN : row->wait),
                       dt_t(row->fastest), dt_n((double)row->batch), dt_n(epoch_s(c, row)),
                       dt_n(1e3 * row->shortest_s), dt_n(1e3 * row->longest_s));
        }
    }
    dt_doc_main(p);
}

static void add_link(struct dt_doc *doc, struct dt_part *p, const char *where,
                     const struct dt_link_cost *cost)
{
    dt_doc_figure(p, dt_doc_print(doc, "latency %s:us:g", where), dt_n(1e6 * cost->alpha_s));
    dt_doc_figure(p, dt_doc_print(doc, "bandwidth %s:GB/s:g", where), dt_n(1e-9 / cost->beta_s));
}

/* What the prediction begins with: docs/scaling.md has the formulas. */
static void add_model(const struct scaling *c, struct dt_doc *doc)
{
    const struct dt_scale_job *job = &c->s.jobs[DT_SCALE_MEDIAN];
    struct dt_part *p = dt_doc_figures(doc, "Prediction");
    dt_doc_fact(p, "network between hosts", "%s",
                c->has_network ? c->network.name : "links like this host's");
    add_link(doc, p, "within a host", &job->costs.within);
    add_link(doc, p, "between hosts", &job->costs.between);
    dt_doc_figure(p, "compute slowdown with two ranks::2", dt_n(dt_scale_share(job, 2)));
    dt_doc_figure(p, "overlappable communication that is hidden::%", dt_n(job->overlap));
    p = dt_doc_figures(doc, "Model");
    dt_doc_figure(p, "ranks of a host::+", dt_n(job->costs.ranks_per_host));
    dt_doc_figure(p, "ranks at once::g", dt_n(job->n_at_once));
    dt_doc_figure(p, "slowdown::g", dt_n(job->slowdown));
    dt_doc_figure(p, "crowding::g", dt_n(job->crowding));
    dt_doc_figure(p, "message::g", dt_n(job->message));
    dt_doc_figure(p, "message shared::g", dt_n(job->message_shared));
    dt_doc_figure(p, "rest weak::g", dt_n(c->s.rests[DT_SCALE_WEAK][DT_SCALE_MEDIAN]));
    dt_doc_figure(p, "rest strong::g", dt_n(c->s.rests[DT_SCALE_STRONG][DT_SCALE_MEDIAN]));
    dt_doc_detail(p);
    p = dt_doc_table(doc, "Buckets", "size:bytes:+|ready::%");
    for (int i = 0; i < job->n_buckets; i++) {
        dt_doc_row(p, dt_n((double)(job->buckets[i].n_elems * sizeof(float))),
                   dt_n(job->buckets[i].ready));
    }
    dt_doc_detail(p);
}

static enum dt_status show(const struct scaling *c, const struct dt_args *args)
{
    struct dt_doc *doc = dt_doc_open("bench scaling", "Scaling of %s", c->s.config.name);
    add_setup(c, doc);
    add_chart(c, doc, DT_SCALE_WEAK);
    add_chart(c, doc, DT_SCALE_STRONG);
    add_rows(c, doc);
    if (c->predicts) {
        add_model(c, doc);
    }
    advise(c, doc);
    const enum dt_status status = dt_result_show(args, doc);
    dt_doc_close(doc);
    return status;
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
        if (++n_given > MAX_GIVEN) {
            return dt_error(DT_USAGE, "--ranks: more than %d numbers (leave some out)", MAX_GIVEN);
        }
    }
    return DT_OK;
}

static enum dt_status read_options(const struct dt_args *args, struct scaling *c)
{
    const char *network = dt_args_text(args, DT_OPTION_NETWORK);
    size_t most = DT_SCALE_MOST_RANKS;
    DT_TRY(dt_args_number(args, DT_OPTION_PREDICT, false, 1, DT_SCALE_MOST_RANKS, &most));
    DT_TRY(read_ranks(dt_args_text(args, DT_OPTION_RANKS), &c->s));
    c->most = (int)most;
    c->has_network = network != NULL;
    return network != NULL ? dt_scale_network_find(network, &c->network) : DT_OK;
}

static enum dt_status check_options(const struct dt_args *args)
{
    static struct scaling c; /* large */
    return read_options(args, &c);
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

static enum dt_status run(struct scaling *c, const struct dt_args *args)
{
    struct dt_scale *s = &c->s;
    DT_TRY(dt_error_agreed(check_world(s)));
    DT_TRY(dt_ranks_threads(s->world, s->config.threads, &s->n_threads));
    DT_TRY(dt_bench_find_load(s->world, &c->load));
    DT_TRY(dt_scale_measure(s));
    DT_TRY(predict_all(c));
    dt_terminal_live(NULL);
    return dt_world_agree(s->world, s->world->rank == 0 ? show(c, args) : DT_OK);
}

/* Agreed. */
static enum dt_status bench_scaling(struct dt_world *world, const struct dt_args *args)
{
    struct scaling *c;
    struct dt_config config;
    DT_TRY(dt_load_config_all(world, args, &config));
    DT_TRY(dt_world_alloc(world, 1, sizeof *c, "what is measured", (void **)&c));
    c->s.world = world;
    c->s.config = config;
    enum dt_status status = dt_error_agreed(read_options(args, c));
    status = status == DT_OK ? run(c, args) : status;
    dt_terminal_live(NULL);
    free(c);
    return status;
}

const struct dt_command dt_command_bench_scaling = {
    .word = "bench scaling",
    .meaning = "measure scaling, and predict it for more ranks",
    .usage = "mpirun -np 4 dtrain bench scaling --config FILE [--data DIR]\n"
             "      [--set KEY.PATH=VALUE]... [--ranks N,...] [--predict N]\n"
             "      [--network NAME]" DT_RESULT_USAGE,
    .examples = "  mpirun -np 4 dtrain bench scaling --config configs/mnist.json \\\n"
                "      --html scaling.html\n"
                "  mpirun -np 2 dtrain bench scaling --config configs/mnist.json --network 25gbe\n",
    .more = "Times training steps of 1, 2, 4 and so on of the ranks, and of all of them, while the "
            "others sleep. In weak scaling every rank has the configuration's batch; in strong "
            "scaling the ranks share one such batch. The batch is `train.batch.per_rank`, or "
            "`train.batch.global` if that is set. Efficiency is the speed of n ranks divided by n "
            "times the speed of one rank. The times of 1 and 2 ranks predict the times of more "
            "ranks on hosts like this one, over links like this host's or over another "
            "`--network`, as long as an epoch has at least one step. It gives advice by "
            "efficiency, unless its three rounds differ by more than half. docs/scaling.md has "
            "the model and its limits.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_SET] = {DT_TAKEN},
                [DT_OPTION_RANKS] = {DT_TAKEN, "the numbers of ranks to measure, such as 1,2,4; "
                                               "1 and 2 always are"},
                [DT_OPTION_PREDICT] = {DT_TAKEN},
                [DT_OPTION_NETWORK] = {DT_TAKEN},
                DT_RESULT_OPTIONS},
    .ending = DT_AGREES_WITH_OTHERS,
    .check = check_options,
    .together = bench_scaling,
};
