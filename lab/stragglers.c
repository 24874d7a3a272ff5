/* One slow rank of four: which ranks wait for it with an allreduce, with servers that wait, with
 * bounded staleness, and without a bound; and why ranks that are each late at times are slower
 * together. Delays are those of `--inject`. */
#include <math.h>

#include "cli/result.h"
#include "cli/sinks/fields.h"
#include "cli/terminal.h"
#include "lab/distributed.h"
#include "lab/golden.h"

#define N_STEPS 10
#define SLOW_RANK 2 /* the slow rank */
#define WORK_MS 10
#define SLOW_MS 50
#define AHEAD 4 /* max_staleness, if bounded */
#define JITTER_MS 40
#define N_JITTERED 15 /* steps that the ranks take */
#define N_DRAWN 10000 /* steps for which only delays are drawn */

#define RATE 0.1

enum { RING, SYNC, BOUNDED, ASYNC, N_WAYS };
enum { N_SIZES = 6 }; /* numbers of jittering ranks; the first DT_LAB_RANKS of them run */

#define SERVER .strategy = "parameter_server"
static const struct {
    const char *name, *meaning;
    struct dt_dist_spec dist;
    const char *strategy; /* NULL: allreduce */
} ways[N_WAYS] = {
    [RING] = {"ring", "an allreduce: every rank waits for all", {.allreduce = DT_ALLREDUCE_RING}},
    [SYNC] = {"server, sync", "rank 3 waits for all workers", {.servers = 1}, SERVER},
    [BOUNDED] = {"server, 4 ahead",
                 "no worker is more than 4 steps ahead of the slowest",
                 {.servers = 1, .mode = DT_SERVER_MODE_ASYNC, .max_staleness = AHEAD},
                 SERVER},
    [ASYNC] = {"server, async",
               "no worker waits for another",
               {.servers = 1, .mode = DT_SERVER_MODE_ASYNC, .max_staleness = N_STEPS},
               SERVER},
};

struct way {
    struct dt_lab_outcome outcome;
    double step_ms[DT_LAB_RANKS]; /* a worker's mean, from the first start to the last end */
};

/* n ranks, each late by 0 to JITTER_MS in every step; mean milliseconds per step. */
struct jitter {
    int n;
    double formula, drawn; /* of the latest rank: expected, and over N_DRAWN steps */
    double drawn_taken,
        measured; /* over the steps taken: delay of the latest rank, and duration; 0: none taken */
};

struct stragglers_lesson {
    struct way ways[N_WAYS];
    double longest_s; /* end of the last step, in the slowest way */
    struct jitter jitter[N_SIZES];
    struct dt_golden golden;
};

/* ---- the runs */

static enum dt_status run_ways(struct dt_world *world, const struct dt_lab_images *images,
                               struct stragglers_lesson *l)
{
    static const char *const late[] = {"slow:rank=0,ms=10", "slow:rank=1,ms=10",
                                       "slow:rank=2,ms=50", "slow:rank=3,ms=10"};
    struct dt_faults faults;
    DT_TRY(dt_faults_parse(late, DT_LAB_RANKS, &faults));
    for (int way = 0; way < N_WAYS; way++) {
        dt_lab_live(world, "a slow rank: %s", ways[way].name);
        const struct dt_lab_distributed training = {.dist = ways[way].dist,
                                                    .strategy = ways[way].strategy,
                                                    .rate = RATE,
                                                    .n_steps = N_STEPS,
                                                    .faults = &faults};
        DT_TRY(dt_lab_distributed_run(world, images, &training, &l->ways[way].outcome));
    }
    return DT_OK;
}

static void time_ways(struct stragglers_lesson *l)
{
    for (int way = 0; way < N_WAYS; way++) {
        for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
            const double end = l->ways[way].outcome.spans[rank][N_STEPS - 1].end;
            l->ways[way].step_ms[rank] = 1000 * end / N_STEPS;
            l->longest_s = fmax(l->longest_s, end);
        }
    }
}

/* ---- jitter */

/* The largest of n integers drawn uniformly from 0 to m is k or more with probability 1 - (k / (m +
 * 1))^n. */
static double expected_latest(int n)
{
    double sum = 0;
    for (int k = 1; k <= JITTER_MS; k++) {
        sum += 1 - pow(k / (JITTER_MS + 1.0), n);
    }
    return sum;
}

static double drawn_latest(const struct dt_fault *jitter, int n, uint64_t n_steps)
{
    double sum = 0;
    for (uint64_t step = 1; step <= n_steps; step++) {
        unsigned latest = 0;
        for (int rank = 0; rank < n; rank++) {
            const unsigned ms = dt_fault_delay_ms(jitter, DT_LAB_SEED, rank, step);
            latest = ms > latest ? ms : latest;
        }
        sum += latest;
    }
    return sum / (double)n_steps;
}

/* An allreduce over all ranks, the first n of which jitter. */
static enum dt_status run_jitter(struct dt_world *world, const struct dt_lab_images *images,
                                 const struct dt_fault *jitter, struct jitter *out)
{
    struct dt_lab_outcome outcome;
    struct dt_faults faults = {.n = out->n};
    for (int rank = 0; rank < out->n; rank++) {
        faults.faults[rank] = *jitter;
        faults.faults[rank].rank = rank;
    }
    dt_lab_live(world, "%d ranks late by chance", out->n);
    const struct dt_lab_distributed training = {
        .dist = ways[RING].dist, .rate = RATE, .n_steps = N_JITTERED, .faults = &faults};
    DT_TRY(dt_lab_distributed_run(world, images, &training, &outcome));
    out->drawn_taken = drawn_latest(jitter, out->n, N_JITTERED);
    out->measured = 1000 * outcome.spans[0][N_JITTERED - 1].end / N_JITTERED;
    return DT_OK;
}

static enum dt_status run_jitters(struct dt_world *world, const struct dt_lab_images *images,
                                  struct stragglers_lesson *l)
{
    static const int sizes[N_SIZES] = {1, 2, 3, 4, 16, 64};
    static const char *const text = "jitter:ms=40";
    struct dt_faults jitter;
    DT_TRY(dt_faults_parse(&text, 1, &jitter));
    for (int i = 0; i < N_SIZES; i++) {
        const int n = sizes[i];
        l->jitter[i] = (struct jitter){.n = n,
                                       .formula = expected_latest(n),
                                       .drawn = drawn_latest(&jitter.faults[0], n, N_DRAWN)};
        if (n <= DT_LAB_RANKS) {
            DT_TRY(run_jitter(world, images, &jitter.faults[0], &l->jitter[i]));
        }
    }
    return DT_OK;
}

static enum dt_status run(struct dt_world *world, struct stragglers_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = dt_world_agree(world, dt_lab_images_open(DT_LAB_N_TEST, 1, &images));
    s = s == DT_OK ? run_ways(world, &images, l) : s;
    s = s == DT_OK ? run_jitters(world, &images, l) : s;
    dt_lab_live(world, NULL);
    dt_lab_images_close(&images);
    return s;
}

/* ---- expected results: only those that a busy machine cannot change */

/* Checks that no worker's mean step is shorter than the delay it must wait for. */
static void check_wait(struct stragglers_lesson *l, int way, double least_ms)
{
    for (int rank = 0; rank < l->ways[way].outcome.n_workers; rank++) {
        dt_golden_fact(&l->golden, l->ways[way].step_ms[rank] >= least_ms,
                       "%s: rank %d takes %.3g ms a step or more", ways[way].name, rank, least_ms);
    }
}

/* Steps that the slow rank had taken when the first worker finished. */
static int slow_steps(const struct way *way)
{
    double first = INFINITY;
    int n = 0;
    for (int rank = 0; rank < way->outcome.n_workers; rank++) {
        first = fmin(first, way->outcome.spans[rank][N_STEPS - 1].end);
    }
    while (n < N_STEPS && way->outcome.spans[SLOW_RANK][n].end <= first) {
        n++;
    }
    return n;
}

static void check_jitter(struct dt_golden *golden, const struct jitter *j)
{
    dt_golden_number(golden, j->drawn, j->formula, 0.02 * JITTER_MS,
                     "the mean of the latest of %d ranks", j->n);
    dt_golden_fact(golden, j->n > DT_LAB_RANKS || j->measured >= j->drawn_taken,
                   "steps of %d ranks that jitter take as long as the latest, or longer", j->n);
}

static void check(struct stragglers_lesson *l)
{
    const struct way *w = l->ways;
    const int most = (DT_LAB_RANKS - 2) * (2 * AHEAD + 1); /* of two other workers */
    check_wait(l, RING, SLOW_MS);
    check_wait(l, SYNC, SLOW_MS);
    check_wait(l, BOUNDED, SLOW_MS * (double)(N_STEPS - AHEAD) / N_STEPS);
    dt_golden_number(&l->golden, dt_staleness_n_bins(&w[SYNC].outcome.staleness), 0, 0,
                     "sync: gradients that are stale");
    dt_golden_fact(&l->golden, dt_staleness_n_bins(&w[BOUNDED].outcome.staleness) - 1 <= most,
                   "bounded: no gradient is staler than the bound allows");
    dt_golden_fact(&l->golden, slow_steps(&w[ASYNC]) < N_STEPS,
                   "async: the first worker is through before the slow one");
    for (int i = 0; i < N_SIZES; i++) {
        check_jitter(&l->golden, &l->jitter[i]);
    }
}

/* ---- the document */

enum { COMPUTES, SLOW, WAITS = 7 }; /* 7 is grey */

static void draw_way(struct dt_doc *doc, const struct way *way, int i, double longest_s)
{
    struct dt_part *lanes = dt_doc_lanes(doc, ways[i].name, "time, ms");
    dt_doc_caption(lanes, "%s.", ways[i].meaning);
    dt_doc_extent(lanes, 1000 * longest_s);
    dt_doc_kind(lanes, COMPUTES, "computes");
    dt_doc_kind(lanes, SLOW, "slow rank computes");
    dt_doc_kind(lanes, WAITS, "waits");
    for (int rank = 0; rank < way->outcome.n_workers; rank++) {
        const int lane = dt_doc_lane(lanes, "rank %d", rank);
        for (int step = 0; step < N_STEPS; step++) {
            const struct dt_lab_span *s = &way->outcome.spans[rank][step];
            dt_doc_box(lanes, lane, 1000 * s->begin, 1000 * s->ready,
                       rank == SLOW_RANK ? SLOW : COMPUTES, "step %d", step + 1);
            dt_doc_box(lanes, lane, 1000 * s->ready, 1000 * s->end, WAITS, "waits");
        }
    }
}

static void fill_ways(struct dt_doc *doc, const struct stragglers_lesson *l)
{
    struct dt_part *table = dt_doc_table(
        doc, "Time of a step", "way|rank 0:ms:1|rank 1:ms:1|rank 2, slow:ms:1|rank 3:ms:1");
    for (int i = 0; i < N_WAYS; i++) {
        const double *ms = l->ways[i].step_ms;
        dt_doc_row(table, dt_t(ways[i].name), dt_n(ms[0]), dt_n(ms[1]), dt_n(ms[2]),
                   l->ways[i].outcome.n_workers > 3 ? dt_n(ms[3]) : dt_t("has the weights"));
    }
    dt_doc_main(table);
}

static void draw_jitter(struct dt_doc *doc, const struct stragglers_lesson *l)
{
    double n[N_SIZES], formula[N_SIZES], measured[N_SIZES];
    struct dt_part *chart = dt_doc_series(doc, "Random delays on every rank", "ranks", "time, ms");
    struct dt_part *table = dt_doc_table(
        doc, "The slowest of n ranks",
        "ranks::0|by formula:ms:1|drawn:ms:1|drawn for these steps:ms:1|these steps:ms:1");
    for (int i = 0; i < N_SIZES; i++) {
        const struct jitter *j = &l->jitter[i];
        n[i] = j->n;
        formula[i] = j->formula;
        measured[i] = j->measured > 0 ? j->measured : NAN;
        dt_doc_row(table, dt_n(j->n), dt_n(j->formula), dt_n(j->drawn),
                   dt_n(j->measured > 0 ? j->drawn_taken : NAN), dt_n(measured[i]));
    }
    dt_doc_axes(chart, DT_LOG_X);
    dt_doc_plot(chart, "expected delay of the slowest of n ranks", DT_LINE_AND_DOTS, N_SIZES, n,
                formula);
    dt_doc_plot(chart, "measured time of a step", DT_DOTS, DT_LAB_RANKS, n, measured);
    dt_doc_caption(table,
                   "Means: of %d drawn steps, and of the %d steps that the ranks here took. "
                   "On a busy host steps take longer than the delays.",
                   N_DRAWN, N_JITTERED);
}

static struct dt_doc *tell(const struct stragglers_lesson *l)
{
    struct dt_doc *doc = dt_doc_open("lab stragglers", "Who waits for a slow rank?");
    dt_doc_text(doc, "%d steps. A step takes a rank %d ms, and rank %d %d ms.", N_STEPS, WORK_MS,
                SLOW_RANK, SLOW_MS);
    for (int i = 0; i < N_WAYS; i++) {
        draw_way(doc, &l->ways[i], i, l->longest_s);
    }
    fill_ways(doc, l);
    dt_doc_text(doc,
                "Where all wait, all are as slow as the slowest. A bound lends %d steps; then "
                "all wait again. Without a bound none waits, but gradients get old.",
                AHEAD);
    dt_lab_staleness(doc, &l->ways[ASYNC].outcome.staleness);
    dt_doc_text(doc,
                "No rank needs to be slow for all to wait. Here every rank is late by 0 to "
                "%d ms, at random: an allreduce waits for the slowest, and of many ranks some "
                "rank is always late.",
                JITTER_MS);
    draw_jitter(doc, l);
    return doc;
}

static enum dt_status lab_stragglers(struct dt_world *world, const struct dt_args *args)
{
    static struct stragglers_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "stragglers", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        time_ways(&lesson);
        check(&lesson);
        s = dt_golden_show(&lesson.golden, args, tell(&lesson));
    }
    return dt_world_agree(world, s);
}

const struct dt_command dt_command_lab_stragglers = {
    .word = "lab stragglers",
    .meaning = "who waits for a slow rank?",
    .minutes = 5,
    .usage = "mpirun -np 4 dtrain lab stragglers [--html FILE]",
    .examples = "  mpirun -np 4 dtrain lab stragglers\n",
    .more = "Trains on four ranks, one of them slow, as with `--inject`, and shows which ranks "
            "wait for it with an allreduce and with a parameter server: synchronous, at most four "
            "steps ahead, or asynchronous; and how much later than one rank the latest of "
            "several is.",
    .options = {DT_RESULT_OPTIONS},
    .together = lab_stragglers,
};
