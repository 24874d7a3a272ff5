/* One slow rank of four: which ranks wait for it with an allreduce, with servers that wait, with
 * bounded staleness, and without a bound; and why ranks that are each late at times are slower
 * together. Delays are those of `--inject`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sinks/fields.h"
#include "dist/strategy/facts/facts.h"
#include "lab/distributed.h"
#include "lab/golden.h"
#include "report/page/chart.h"
#include "report/page/drawing.h"
#include "report/page/layout.h"

#define DT_STRAGGLERS_N_STEPS 10
#define DT_STRAGGLERS_SLOW 2 /* the slow rank */
#define DT_STRAGGLERS_WORK_MS 10
#define DT_STRAGGLERS_SLOW_MS 50
#define DT_STRAGGLERS_AHEAD 4 /* max_staleness, if bounded */
#define DT_STRAGGLERS_JITTER_MS 40
#define DT_STRAGGLERS_N_JITTERED 15 /* steps that the ranks take */
#define DT_STRAGGLERS_N_DRAWN 10000 /* steps for which only delays are drawn */
#define DT_STRAGGLERS_N_SIZES                                           \
    6 /* numbers of jittering ranks; the first DT_LAB_RANKS of them run \
       */

enum {
    DT_STRAGGLERS_RING,
    DT_STRAGGLERS_SYNC,
    DT_STRAGGLERS_BOUNDED,
    DT_STRAGGLERS_ASYNC,
    DT_STRAGGLERS_WAYS
};

#define SERVER .strategy = "parameter_server"
static const struct {
    const char *name, *meaning;
    struct dt_dist_spec dist;
    const char *strategy; /* NULL: allreduce */
} ways[DT_STRAGGLERS_WAYS] = {
    [DT_STRAGGLERS_RING] = {"ring",
                            "an allreduce: all wait for all",
                            {.allreduce = DT_ALLREDUCE_RING}},
    [DT_STRAGGLERS_SYNC] = {"server, sync", "rank 3 waits for all workers", {.servers = 1}, SERVER},
    [DT_STRAGGLERS_BOUNDED] = {"server, 4 ahead",
                               "no worker is more than 4 steps ahead of the slowest",
                               {.servers = 1,
                                .mode = DT_SERVER_MODE_ASYNC,
                                .max_staleness = DT_STRAGGLERS_AHEAD},
                               SERVER},
    [DT_STRAGGLERS_ASYNC] = {"server, async",
                             "no worker waits for another",
                             {.servers = 1,
                              .mode = DT_SERVER_MODE_ASYNC,
                              .max_staleness = DT_STRAGGLERS_N_STEPS},
                             SERVER},
};

struct dt_stragglers_way {
    struct dt_lab_outcome outcome;
    double step_ms[DT_LAB_RANKS]; /* a worker's mean, from the first start to the last end */
};

/* n ranks, each late by 0 to DT_STRAGGLERS_JITTER_MS in every step; mean milliseconds per step. */
struct dt_jitter {
    int n;
    double formula, drawn; /* of the latest rank: expected, and over DT_STRAGGLERS_N_DRAWN steps */
    double drawn_taken,
        measured; /* over the steps taken: delay of the latest rank, and duration; 0: none taken */
};

struct dt_stragglers_lesson {
    struct dt_stragglers_way ways[DT_STRAGGLERS_WAYS];
    double longest_s; /* end of the last step, in the slowest way */
    struct dt_jitter jitter[DT_STRAGGLERS_N_SIZES];
    struct dt_golden golden;
};

/* ---- the page */

/* A lane a worker: what it computes, and where it waits; time goes to the right. */
static void draw_lanes(FILE *out, const struct dt_stragglers_way *way, double longest)
{
    const struct dt_lanes lanes = {.out = out,
                                   .label = "who computes and who waits",
                                   .unit = "s",
                                   .n_rows = DT_LAB_RANKS,
                                   .width = 440,
                                   .left = 56,
                                   .row = 26,
                                   .end = longest};
    const int n = way->outcome.n_workers;
    char name[16];
    dt_lanes_begin(&lanes);
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        const char *work = rank == DT_STRAGGLERS_SLOW ? "d1" : "d0";
        snprintf(name, sizeof name, "rank %d", rank);
        dt_lanes_name(&lanes, rank, name);
        for (int i = 0; rank < n && i < DT_STRAGGLERS_N_STEPS; i++) {
            const struct dt_lab_span *s = &way->outcome.spans[rank][i];
            dt_lanes_box(&lanes, rank, &(struct dt_box){work, s->begin, s->ready, NULL, NULL});
            dt_lanes_box(&lanes, rank, &(struct dt_box){"rest", s->ready, s->end, NULL, NULL});
        }
    }
    if (n < DT_LAB_RANKS) {
        dt_lanes_note(&lanes, n, 0, "has the weights");
    }
    dt_lanes_end(&lanes);
}

static void put_way(FILE *out, const struct dt_stragglers_lesson *l, int i)
{
    const struct dt_stragglers_way *way = &l->ways[i];
    fprintf(out, "<div class=\"card\"><h2>%s</h2><p>%s; ms a step:", ways[i].name, ways[i].meaning);
    for (int rank = 0; rank < way->outcome.n_workers; rank++) {
        fprintf(out, "%s %.1f", rank > 0 ? "," : "", way->step_ms[rank]);
    }
    fputs("</p>\n", out);
    draw_lanes(out, way, l->longest_s);
    fputs("</div>\n", out);
}

static void put_jitter(FILE *out, const struct dt_stragglers_lesson *l)
{
    const struct dt_chart chart = {out,
                                   "the latest of n ranks",
                                   {"ranks that jitter", 1, 80, true},
                                   {"ms a step", 0, 60, false}};
    double n[DT_STRAGGLERS_N_SIZES], formula[DT_STRAGGLERS_N_SIZES];
    dt_card_begin(out, "Now this one, now that one",
                  "Ranks late by 0 to %d ms: blue what the latest of n is by formula, orange what "
                  "steps of the ranks here took.",
                  DT_STRAGGLERS_JITTER_MS);
    dt_chart_begin(&chart);
    for (int i = 0; i < DT_STRAGGLERS_N_SIZES; i++) {
        n[i] = l->jitter[i].n;
        formula[i] = l->jitter[i].formula;
        dt_chart_dot(&chart, "d0", n[i], formula[i]);
        if (l->jitter[i].measured > 0 && l->jitter[i].measured < chart.y.high) {
            dt_chart_dot(&chart, "d1", n[i], l->jitter[i].measured);
        }
    }
    dt_chart_line(&chart, "s0", DT_STRAGGLERS_N_SIZES, n, formula);
    dt_chart_end(&chart);
    dt_card_end(out);
}

static void put_table(FILE *out, const struct dt_stragglers_lesson *l)
{
    fprintf(out,
            "<div class=\"wide\"><table><caption>The latest of ranks that jitter, means in "
            "ms</caption>\n<thead><tr><th>ranks</th><th>by formula</th><th>of 10,000 drawn "
            "steps</th><th>of %d drawn steps</th><th>these steps took</th></tr></thead>\n"
            "<tbody>",
            DT_STRAGGLERS_N_JITTERED);
    for (int i = 0; i < DT_STRAGGLERS_N_SIZES; i++) {
        const struct dt_jitter *j = &l->jitter[i];
        if (j->measured > 0) {
            dt_table_row(out, "%d|%.1f|%.1f|%.1f|%.1f", j->n, j->formula, j->drawn, j->drawn_taken,
                         j->measured);
        } else {
            dt_table_row(out, "%d|%.1f|%.1f||", j->n, j->formula, j->drawn);
        }
    }
    dt_table_end(out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_stragglers_lesson *l = context;
    const struct dt_staleness *staleness = &l->ways[DT_STRAGGLERS_ASYNC].outcome.staleness;
    fprintf(out,
            "<h1>Who waits for a slow rank?</h1>\n<p>%d steps, each of which takes a rank %d ms "
            "(blue), and rank %d %d ms "
            "(orange); grey is waiting.</p>\n<div class=\"cards\">\n",
            DT_STRAGGLERS_N_STEPS, DT_STRAGGLERS_WORK_MS, DT_STRAGGLERS_SLOW,
            DT_STRAGGLERS_SLOW_MS);
    for (int i = 0; i < DT_STRAGGLERS_WAYS; i++) {
        put_way(out, l, i);
    }
    dt_card_begin(out, "Stale gradients",
                  "Async: how many steps others had taken since the worker read the weights. The "
                  "slow rank's are the old ones.");
    dt_histogram_draw(out, "staleness in steps", dt_staleness_n_bins(staleness), staleness->counts);
    dt_card_end(out);
    put_jitter(out, l);
    fputs("</div>\n", out);
    put_table(out, l);
}

#define RATE 0.1
#define N_COLUMNS 60

/* ---- the runs */

static enum dt_status run_ways(struct dt_world *world, const struct dt_lab_images *images,
                               struct dt_stragglers_lesson *l)
{
    static const char *const late[] = {"slow:rank=0,ms=10", "slow:rank=1,ms=10",
                                       "slow:rank=2,ms=50", "slow:rank=3,ms=10"};
    struct dt_faults faults;
    DT_TRY(dt_faults_parse(late, DT_LAB_RANKS, &faults));
    for (int way = 0; way < DT_STRAGGLERS_WAYS; way++) {
        const struct dt_lab_distributed training = {.dist = ways[way].dist,
                                                    .strategy = ways[way].strategy,
                                                    .rate = RATE,
                                                    .n_steps = DT_STRAGGLERS_N_STEPS,
                                                    .faults = &faults};
        DT_TRY(dt_lab_distributed_run(world, images, &training, &l->ways[way].outcome));
    }
    return DT_OK;
}

static void time_ways(struct dt_stragglers_lesson *l)
{
    for (int way = 0; way < DT_STRAGGLERS_WAYS; way++) {
        for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
            const double end = l->ways[way].outcome.spans[rank][DT_STRAGGLERS_N_STEPS - 1].end;
            l->ways[way].step_ms[rank] = 1000 * end / DT_STRAGGLERS_N_STEPS;
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
    for (int k = 1; k <= DT_STRAGGLERS_JITTER_MS; k++) {
        sum += 1 - pow(k / (DT_STRAGGLERS_JITTER_MS + 1.0), n);
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
                                 const struct dt_fault *jitter, struct dt_jitter *out)
{
    struct dt_lab_outcome outcome;
    struct dt_faults faults = {.n = out->n};
    for (int rank = 0; rank < out->n; rank++) {
        faults.faults[rank] = *jitter;
        faults.faults[rank].rank = rank;
    }
    const struct dt_lab_distributed training = {.dist = ways[DT_STRAGGLERS_RING].dist,
                                                .rate = RATE,
                                                .n_steps = DT_STRAGGLERS_N_JITTERED,
                                                .faults = &faults};
    DT_TRY(dt_lab_distributed_run(world, images, &training, &outcome));
    out->drawn_taken = drawn_latest(jitter, out->n, DT_STRAGGLERS_N_JITTERED);
    out->measured =
        1000 * outcome.spans[0][DT_STRAGGLERS_N_JITTERED - 1].end / DT_STRAGGLERS_N_JITTERED;
    return DT_OK;
}

static enum dt_status run_jitters(struct dt_world *world, const struct dt_lab_images *images,
                                  struct dt_stragglers_lesson *l)
{
    static const int sizes[DT_STRAGGLERS_N_SIZES] = {1, 2, 3, 4, 16, 64};
    static const char *const text = "jitter:ms=40";
    struct dt_faults jitter;
    DT_TRY(dt_faults_parse(&text, 1, &jitter));
    for (int i = 0; i < DT_STRAGGLERS_N_SIZES; i++) {
        const int n = sizes[i];
        l->jitter[i] =
            (struct dt_jitter){.n = n,
                               .formula = expected_latest(n),
                               .drawn = drawn_latest(&jitter.faults[0], n, DT_STRAGGLERS_N_DRAWN)};
        if (n <= DT_LAB_RANKS) {
            DT_TRY(run_jitter(world, images, &jitter.faults[0], &l->jitter[i]));
        }
    }
    return DT_OK;
}

static enum dt_status run(struct dt_world *world, struct dt_stragglers_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = dt_world_agree(world, dt_lab_images_open(DT_LAB_N_TEST, 1, &images));
    s = s == DT_OK ? run_ways(world, &images, l) : s;
    s = s == DT_OK ? run_jitters(world, &images, l) : s;
    dt_lab_images_close(&images);
    return s;
}

/* ---- expected results: only those that a busy machine cannot change */

/* Checks that no worker's mean step is shorter than the delay it must wait for. */
static void check_wait(struct dt_stragglers_lesson *l, int way, double least_ms)
{
    for (int rank = 0; rank < l->ways[way].outcome.n_workers; rank++) {
        dt_golden_fact(&l->golden, l->ways[way].step_ms[rank] >= least_ms,
                       "%s: rank %d takes %.3g ms a step or more", ways[way].name, rank, least_ms);
    }
}

/* Steps that the slow rank had taken when the first worker finished. */
static int slow_steps(const struct dt_stragglers_way *way)
{
    double first = INFINITY;
    int n = 0;
    for (int rank = 0; rank < way->outcome.n_workers; rank++) {
        first = fmin(first, way->outcome.spans[rank][DT_STRAGGLERS_N_STEPS - 1].end);
    }
    while (n < DT_STRAGGLERS_N_STEPS && way->outcome.spans[DT_STRAGGLERS_SLOW][n].end <= first) {
        n++;
    }
    return n;
}

static void check_jitter(struct dt_golden *golden, const struct dt_jitter *j)
{
    dt_golden_number(golden, j->drawn, j->formula, 0.02 * DT_STRAGGLERS_JITTER_MS,
                     "the mean of the latest of %d ranks", j->n);
    dt_golden_fact(golden, j->n > DT_LAB_RANKS || j->measured >= j->drawn_taken,
                   "steps of %d ranks that jitter take as long as the latest, or longer", j->n);
}

static void check(struct dt_stragglers_lesson *l)
{
    const struct dt_stragglers_way *w = l->ways;
    const int most = (DT_LAB_RANKS - 2) * (2 * DT_STRAGGLERS_AHEAD + 1); /* of two other workers */
    check_wait(l, DT_STRAGGLERS_RING, DT_STRAGGLERS_SLOW_MS);
    check_wait(l, DT_STRAGGLERS_SYNC, DT_STRAGGLERS_SLOW_MS);
    check_wait(l, DT_STRAGGLERS_BOUNDED,
               DT_STRAGGLERS_SLOW_MS * (double)(DT_STRAGGLERS_N_STEPS - DT_STRAGGLERS_AHEAD) /
                   DT_STRAGGLERS_N_STEPS);
    dt_golden_number(&l->golden, dt_staleness_n_bins(&w[DT_STRAGGLERS_SYNC].outcome.staleness), 0,
                     0, "sync: gradients that are stale");
    dt_golden_fact(&l->golden,
                   dt_staleness_n_bins(&w[DT_STRAGGLERS_BOUNDED].outcome.staleness) - 1 <= most,
                   "bounded: no gradient is staler than the bound allows");
    dt_golden_fact(&l->golden, slow_steps(&w[DT_STRAGGLERS_ASYNC]) < DT_STRAGGLERS_N_STEPS,
                   "async: the first worker is through before the slow one");
    for (int i = 0; i < DT_STRAGGLERS_N_SIZES; i++) {
        check_jitter(&l->golden, &l->jitter[i]);
    }
}

/* ---- the text */

/* '#': the rank computes, '.': it waits. */
static void print_lane(const struct dt_stragglers_way *way, int rank, double longest)
{
    char lane[N_COLUMNS + 1];
    int n = 0;
    memset(lane, ' ', N_COLUMNS);
    for (int i = 0; i < DT_STRAGGLERS_N_STEPS; i++) {
        const struct dt_lab_span *span = &way->outcome.spans[rank][i];
        for (int c = (int)(span->begin / longest * N_COLUMNS);
             c < N_COLUMNS && (c + 0.5) / N_COLUMNS * longest < span->end; c++) {
            n = c + 1;
            lane[c] = (c + 0.5) / N_COLUMNS * longest < span->ready ? '#' : '.';
        }
    }
    printf("  rank %d %5.1f  %.*s\n", rank, way->step_ms[rank], n, lane);
}

static void print_ways(const struct dt_stragglers_lesson *l)
{
    for (int i = 0; i < DT_STRAGGLERS_WAYS; i++) {
        const struct dt_stragglers_way *way = &l->ways[i];
        printf("%s: %s\n", ways[i].name, ways[i].meaning);
        for (int rank = 0; rank < way->outcome.n_workers; rank++) {
            print_lane(way, rank, l->longest_s);
        }
    }
}

static void print_jitter(const struct dt_stragglers_lesson *l)
{
    printf("Ranks that are late by 0 to %d ms, now this one and now that one: an allreduce\n"
           "waits for the latest, and of many ranks one is always late. In ms, means:\n"
           "  ranks  latest, by formula  of 10,000 drawn steps  of %d drawn  these took\n",
           DT_STRAGGLERS_JITTER_MS, DT_STRAGGLERS_N_JITTERED);
    for (int i = 0; i < DT_STRAGGLERS_N_SIZES; i++) {
        const struct dt_jitter *j = &l->jitter[i];
        printf("  %5d  %18.1f  %21.1f", j->n, j->formula, j->drawn);
        if (j->measured > 0) {
            printf("  %11.1f  %10.1f", j->drawn_taken, j->measured);
        }
        putchar('\n');
    }
}

static void print_lesson(const struct dt_stragglers_lesson *l)
{
    printf("Who waits for a slow rank? %d steps; each takes a rank %d ms, rank %d %d ms.\n"
           "Milliseconds a step, and who computes (#) and waits (.) when:\n\n",
           DT_STRAGGLERS_N_STEPS, DT_STRAGGLERS_WORK_MS, DT_STRAGGLERS_SLOW, DT_STRAGGLERS_SLOW_MS);
    print_ways(l);
    printf("\nWhere all wait, all are as slow as the slowest. A bound lends %d steps; then all\n"
           "wait again. Without a bound none waits, but gradients get old:\n\n",
           DT_STRAGGLERS_AHEAD);
    dt_staleness_print(stdout, &l->ways[DT_STRAGGLERS_ASYNC].outcome.staleness);
    putchar('\n');
    print_jitter(l);
    putchar('\n');
}

static enum dt_status lab_stragglers(struct dt_world *world, const struct dt_args *args)
{
    static struct dt_stragglers_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "stragglers", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        time_ways(&lesson);
        check(&lesson);
        print_lesson(&lesson);
        s = dt_golden_tell(&lesson.golden, args, "Stragglers", put_body, &lesson);
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
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .together = lab_stragglers,
};
