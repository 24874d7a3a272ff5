/* One slow rank of four: the lesson shows which ranks wait for it with an allreduce, with a server
 * that waits, with bounded staleness, and without a bound. And it shows why ranks that are late at
 * random are slower together. Delays are those of `--inject`. */
#include <math.h>

#include "cli/result.h"
#include "cli/sinks/fields.h"
#include "cli/terminal.h"
#include "lab/distributed.h"
#include "lab/golden.h"

#define N_STEPS 10
#define SLOW_RANK 2
#define WORK_MS 10
#define SLOW_MS 50
#define AHEAD 4 /* max_staleness, if bounded */
#define JITTER_MS 40
#define N_JITTERED 15 /* steps that the ranks take */
#define N_DRAWN 10000 /* steps for which only delays are drawn */

#define RATE 0.1

enum { RING, SYNC, BOUNDED, ASYNC, N_WAYS };
static const struct {
    const char *name, *meaning;
    struct dt_dist_spec dist;
    const char *strategy; /* NULL: allreduce */
} ways[N_WAYS] = {
    [RING] = {"ring", "an allreduce: every rank waits for all", {.allreduce = DT_ALLREDUCE_RING}},
    [SYNC] = {"server, sync", "rank 3 waits for all workers", {.servers = 1}, "parameter_server"},
    [BOUNDED] = {"server, 4 ahead",
                 "no worker is more than 4 steps ahead of the slowest",
                 {.servers = 1, .mode = DT_SERVER_MODE_ASYNC, .max_staleness = AHEAD},
                 "parameter_server"},
    [ASYNC] = {"server, async",
               "no worker waits for another",
               {.servers = 1, .mode = DT_SERVER_MODE_ASYNC, .max_staleness = N_STEPS},
               "parameter_server"},
};

/* Numbers of ranks of which each is late by 0 to JITTER_MS in every step. Up to DT_LAB_RANKS of
 * them train; for more, delays are only drawn. */
enum { N_SIZES = 6 };
static const int sizes[N_SIZES] = {1, 2, 3, 4, 16, 64};

/* Mean milliseconds per step. */
struct jitter {
    double drawn;       /* delay of the latest rank, over N_DRAWN steps */
    double drawn_taken; /* the same, over the steps that the ranks took; NAN: none */
    double measured;    /* duration of these steps */
};

struct stragglers_lesson {
    struct dt_lab_outcome outcomes[N_WAYS];
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
        DT_TRY(dt_lab_distributed_run(world, images, &training, &l->outcomes[way]));
    }
    return DT_OK;
}

/* ---- jitter */

/* The expected delay of the latest of n ranks: the largest of n integers, drawn uniformly from 0 to
 * m, is k or more with probability 1 - (k / (m + 1))^n. */
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

/* Trains with an allreduce over all ranks; the first n ranks jitter. */
static enum dt_status run_jitter(struct dt_world *world, const struct dt_lab_images *images,
                                 const struct dt_fault *jitter, int n, struct jitter *out)
{
    struct dt_lab_outcome outcome;
    struct dt_faults faults = {.n = n};
    for (int rank = 0; rank < n; rank++) {
        faults.faults[rank] = *jitter;
        faults.faults[rank].rank = rank;
    }
    dt_lab_live(world, "%d ranks late at random", n);
    const struct dt_lab_distributed training = {
        .dist = ways[RING].dist, .rate = RATE, .n_steps = N_JITTERED, .faults = &faults};
    DT_TRY(dt_lab_distributed_run(world, images, &training, &outcome));
    out->drawn_taken = drawn_latest(jitter, n, N_JITTERED);
    out->measured = 1000 * outcome.spans[0][N_JITTERED - 1].end / N_JITTERED;
    return DT_OK;
}

static enum dt_status run_jitters(struct dt_world *world, const struct dt_lab_images *images,
                                  struct stragglers_lesson *l)
{
    static const char *const text = "jitter:ms=40";
    struct dt_faults jitter;
    DT_TRY(dt_faults_parse(&text, 1, &jitter));
    for (int i = 0; i < N_SIZES; i++) {
        l->jitter[i] =
            (struct jitter){drawn_latest(&jitter.faults[0], sizes[i], N_DRAWN), NAN, NAN};
        if (sizes[i] <= DT_LAB_RANKS) {
            DT_TRY(run_jitter(world, images, &jitter.faults[0], sizes[i], &l->jitter[i]));
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

/* The end of a rank's last step, in seconds. */
static double end_of(const struct dt_lab_outcome *outcome, int rank)
{
    return outcome->spans[rank][N_STEPS - 1].end;
}

/* The mean duration of a rank's steps. */
static double step_ms(const struct dt_lab_outcome *outcome, int rank)
{
    return 1000 * end_of(outcome, rank) / N_STEPS;
}

/* Checks that no worker's mean step is shorter than the delay it must wait for. */
static void check_wait(struct stragglers_lesson *l, int way, double least_ms)
{
    for (int rank = 0; rank < l->outcomes[way].n_workers; rank++) {
        dt_golden_figure(&l->golden, step_ms(&l->outcomes[way], rank) >= least_ms,
                         "%s: rank %d takes %.3g ms a step or more", ways[way].name, rank,
                         least_ms);
    }
}

/* True if a worker has taken all its steps before the slow rank has. */
static bool slow_is_last(const struct dt_lab_outcome *outcome)
{
    double first = INFINITY;
    for (int rank = 0; rank < outcome->n_workers; rank++) {
        first = fmin(first, end_of(outcome, rank));
    }
    return first < end_of(outcome, SLOW_RANK);
}

static void check(struct stragglers_lesson *l)
{
    struct dt_golden *g = &l->golden;
    const int most = (DT_LAB_RANKS - 2) * (2 * AHEAD + 1); /* of two other workers */
    check_wait(l, RING, SLOW_MS);
    check_wait(l, SYNC, SLOW_MS);
    check_wait(l, BOUNDED, SLOW_MS * (double)(N_STEPS - AHEAD) / N_STEPS);
    dt_golden_number(g, dt_staleness_n_bins(&l->outcomes[SYNC].staleness), 0, 0,
                     "sync: gradients that are stale");
    dt_golden_figure(g, dt_staleness_n_bins(&l->outcomes[BOUNDED].staleness) - 1 <= most,
                     "bounded: no gradient is staler than the bound allows");
    dt_golden_figure(g, slow_is_last(&l->outcomes[ASYNC]),
                     "async: the first worker is through before the slow one");
    for (int i = 0; i < N_SIZES; i++) {
        const struct jitter *j = &l->jitter[i];
        dt_golden_number(g, j->drawn, expected_latest(sizes[i]), 0.02 * JITTER_MS,
                         "the mean of the latest of %d ranks", sizes[i]);
        dt_golden_figure(g, sizes[i] > DT_LAB_RANKS || j->measured >= j->drawn_taken,
                         "steps of %d ranks that jitter take as long as the latest, or longer",
                         sizes[i]);
    }
}

/* ---- the document */

enum { COMPUTES, SLOW, WAITS = 7 }; /* 7 is grey */

static void draw_ways(struct dt_doc *doc, const struct stragglers_lesson *l)
{
    double longest_s = 0;
    for (int i = 0; i < N_WAYS * DT_LAB_RANKS; i++) {
        longest_s = fmax(longest_s, end_of(&l->outcomes[i / DT_LAB_RANKS], i % DT_LAB_RANKS));
    }
    for (int i = 0; i < N_WAYS; i++) {
        struct dt_part *lanes = dt_doc_lanes(doc, ways[i].name, "time, ms");
        dt_doc_caption(lanes, "%s.", ways[i].meaning);
        dt_doc_extent(lanes, 1000 * longest_s);
        dt_doc_kind(lanes, COMPUTES, "computes");
        dt_doc_kind(lanes, SLOW, "slow rank computes");
        dt_doc_kind(lanes, WAITS, "waits");
        for (int rank = 0; rank < l->outcomes[i].n_workers; rank++) {
            const int lane = dt_doc_lane(lanes, "rank %d", rank);
            for (int step = 0; step < N_STEPS; step++) {
                const struct dt_lab_span *s = &l->outcomes[i].spans[rank][step];
                dt_doc_box(lanes, lane, 1000 * s->begin, 1000 * s->ready,
                           rank == SLOW_RANK ? SLOW : COMPUTES, "step %d", step + 1);
                dt_doc_box(lanes, lane, 1000 * s->ready, 1000 * s->end, WAITS, "waits");
            }
        }
    }
}

static void add_ways(struct dt_doc *doc, const struct stragglers_lesson *l)
{
    struct dt_part *table = dt_doc_table(
        doc, "Time of a step", "way|rank 0:ms:1|rank 1:ms:1|rank 2, slow:ms:1|rank 3:ms:1");
    for (int i = 0; i < N_WAYS; i++) {
        const struct dt_lab_outcome *o = &l->outcomes[i];
        dt_doc_row(table, dt_t(ways[i].name), dt_n(step_ms(o, 0)), dt_n(step_ms(o, 1)),
                   dt_n(step_ms(o, 2)),
                   o->n_workers > 3 ? dt_n(step_ms(o, 3)) : dt_t("has the weights"));
    }
    dt_doc_main(table);
}

static void add_jitter(struct dt_doc *doc, const struct stragglers_lesson *l)
{
    double n[N_SIZES], formula[N_SIZES], measured[N_SIZES];
    struct dt_part *chart = dt_doc_series(doc, "Random delays on every rank", "ranks", "time, ms");
    struct dt_part *table = dt_doc_table(
        doc, "The slowest of n ranks",
        "ranks::0|by formula:ms:1|drawn:ms:1|drawn for these steps:ms:1|these steps:ms:1");
    for (int i = 0; i < N_SIZES; i++) {
        const struct jitter *j = &l->jitter[i];
        n[i] = sizes[i];
        formula[i] = expected_latest(sizes[i]);
        measured[i] = j->measured;
        dt_doc_row(table, dt_n(n[i]), dt_n(formula[i]), dt_n(j->drawn), dt_n(j->drawn_taken),
                   dt_n(j->measured));
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
    draw_ways(doc, l);
    add_ways(doc, l);
    dt_doc_text(doc,
                "If all ranks wait, all are as slow as the slowest. With a bound, ranks wait once "
                "they are %d steps ahead. Without a bound no rank waits, but gradients get old.",
                AHEAD);
    dt_lab_staleness(doc, &l->outcomes[ASYNC].staleness);
    dt_doc_text(doc,
                "No rank needs to be slow for all to wait. Here every rank is late by 0 to "
                "%d ms, at random: an allreduce waits for the slowest, and of many ranks some "
                "rank is always late.",
                JITTER_MS);
    add_jitter(doc, l);
    return doc;
}

static enum dt_status lab_stragglers(struct dt_world *world, const struct dt_args *args)
{
    static struct stragglers_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "stragglers", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        check(&lesson);
        s = dt_golden_show(&lesson.golden, args, tell(&lesson));
    }
    return dt_world_agree(world, s);
}

const struct dt_command dt_command_lab_stragglers = {
    .word = "lab stragglers",
    .meaning = "who waits for a slow rank?",
    .minutes = 5,
    .usage = "mpirun -np 4 dtrain lab stragglers" DT_RESULT_USAGE,
    .examples = "  mpirun -np 4 dtrain lab stragglers\n",
    .more = "Trains on four ranks, one of them slow, as with `--inject`, and shows which ranks "
            "wait for it with an allreduce and with a parameter server: synchronous, at most four "
            "steps ahead, or asynchronous; and how much later than one rank the latest of "
            "several is.",
    .options = {DT_RESULT_OPTIONS},
    .together = lab_stragglers,
};
