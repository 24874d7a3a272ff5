/* Lanes of what the ranks did when: a run's trace.json, read back. The file may be anything; what
 * is not a span of ours is left out. */
#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/backend.h"

#define MAX_MS 1e9
#define MAX_BUCKETS 64
#define MAX_STEPS (1 << 20) /* of all ranks together */

#define SHOWN_STEPS 2
#define SHOWN_RANKS 16
#define SHOWN_SPANS 5000
#define TABLE_STEPS 24
#define MERGED \
    4e-4 /* share of a picture: what is narrower is drawn with its neighbour of the same kind */

#define MAX_RANKS 1024

struct span {
    enum dt_span_kind kind;
    int rank, step;
    int bucket;              /* of DT_SPAN_BUCKET, else -1 */
    double begin_ms, end_ms; /* since the first, on rank 0's clock */
    char name[40];
};

/* A step on a rank; NaN where it did nothing of the kind. */
struct step {
    double begin_ms, end_ms; /* of all that it did */
    double compute_end_ms;   /* of its passes */
    double sent_ms,
        hidden_ms; /* that some bucket was on its way, and meanwhile the rank computed */
};

struct trace {
    int n, n_ranks, n_buckets;
    int first_step, last_step, n_steps;
    double clock_error_us; /* the largest of the ranks' */
    struct span *spans;    /* by rank, and then by their begin */
    struct step *steps;    /* rank by rank */
};

static const char *const kind_names[] = {DT_SPAN_LIST(DT_ENUM_NAME)};

static bool span_computes(enum dt_span_kind kind)
{
    return kind == DT_SPAN_FORWARD || kind == DT_SPAN_LOSS || kind == DT_SPAN_RECOMPUTE ||
           kind == DT_SPAN_BACKWARD;
}

/* ---- reading */

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) && fabs(item->valuedouble) <= 1e3 * MAX_MS ? item->valuedouble
                                                                           : (double)NAN;
}

static int kind_of(const char *name)
{
    int kind = DT_N_SPANS - 1;
    while (kind >= 0 && strcmp(kind_names[kind], name) != 0) {
        kind--;
    }
    return kind;
}

static bool read_span(const cJSON *event, struct span *out)
{
    const double ts = number_of(event, "ts"), dur = number_of(event, "dur"),
                 rank = number_of(event, "pid");
    const double step = number_of(cJSON_GetObjectItemCaseSensitive(event, "args"), "step");
    const int kind = kind_of(dt_record_text(event, "cat"));
    if (strcmp(dt_record_text(event, "ph"), "X") != 0 || kind < 0 || !(ts >= 0) || !(dur >= 0) ||
        !(rank >= 0 && rank < MAX_RANKS) || !(step >= 1 && step < 1e9)) {
        return false;
    }
    *out = (struct span){.kind = kind,
                         .rank = (int)rank,
                         .step = (int)step,
                         .bucket = -1,
                         .begin_ms = 1e-3 * ts,
                         .end_ms = 1e-3 * (ts + dur)};
    snprintf(out->name, sizeof out->name, "%s", dt_record_text(event, "name"));
    return kind != DT_SPAN_BUCKET || (sscanf(out->name, "bucket %2d", &out->bucket) == 1 &&
                                      out->bucket >= 0 && out->bucket < MAX_BUCKETS);
}

static void take_span(struct trace *trace, const struct span *span)
{
    trace->first_step =
        trace->n == 0 || span->step < trace->first_step ? span->step : trace->first_step;
    trace->last_step =
        trace->n == 0 || span->step > trace->last_step ? span->step : trace->last_step;
    trace->n_ranks = span->rank >= trace->n_ranks ? span->rank + 1 : trace->n_ranks;
    trace->n_buckets = span->bucket >= trace->n_buckets ? span->bucket + 1 : trace->n_buckets;
    trace->spans[trace->n++] = *span;
}

static int by_rank_and_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    const int ranks = (x->rank > y->rank) - (x->rank < y->rank);
    return ranks != 0 ? ranks : (x->begin_ms > y->begin_ms) - (x->begin_ms < y->begin_ms);
}

static void read_clocks(const cJSON *root, struct trace *trace)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(
                    cJSON_GetObjectItemCaseSensitive(root, "otherData"), "ranks"),
                *rank;
    cJSON_ArrayForEach(rank, ranks)
    {
        const double error = number_of(rank, "error_us");
        trace->clock_error_us = error > trace->clock_error_us ? error : trace->clock_error_us;
    }
}

static enum dt_status read_spans(const char *folder, struct trace *out)
{
    cJSON *root;
    DT_TRY(dt_record_read(folder, "trace.json", DT_RECORD_FILE_BYTES, &root));
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(root, "traceEvents");
    out->spans = calloc((size_t)cJSON_GetArraySize(events) + 1, sizeof *out->spans);
    const cJSON *event = out->spans != NULL ? cJSON_GetArrayItem(events, 0) : NULL;
    for (; event != NULL; event = event->next) {
        struct span span;
        if (read_span(event, &span)) {
            take_span(out, &span);
        }
    }
    read_clocks(root, out);
    cJSON_Delete(root);
    if (out->spans == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the spans of a trace");
    }
    qsort(out->spans, (size_t)out->n, sizeof *out->spans, by_rank_and_begin);
    return DT_OK;
}

/* ---- what it says */

static struct step *step_at(const struct trace *trace, int rank, int step)
{
    return &trace
                ->steps[(size_t)rank * (size_t)trace->n_steps + (size_t)(step - trace->first_step)];
}

static void extend(struct step *step, const struct span *s)
{
    step->begin_ms = fmin(step->begin_ms, s->begin_ms);
    step->end_ms = fmax(step->end_ms, s->end_ms);
    step->compute_end_ms =
        span_computes(s->kind) ? fmax(step->compute_end_ms, s->end_ms) : step->compute_end_ms;
}

/* A rank's computing time, from its first span on. */
struct computed {
    int next, last;        /* spans: the first that does not count yet, and the end of the rank's */
    double sum_ms, end_ms; /* of those that count: a time that several of them have counts once */
};

/* How long it computed before `until_ms`, which does not go back from call to call. */
static double computed_until(struct computed *c, const struct span *spans, double until_ms)
{
    for (; c->next < c->last && spans[c->next].begin_ms < until_ms; c->next++) {
        const struct span *s = &spans[c->next];
        if (span_computes(s->kind) && s->end_ms > c->end_ms) {
            c->sum_ms += s->end_ms - fmax(s->begin_ms, c->end_ms);
            c->end_ms = s->end_ms;
        }
    }
    return c->sum_ms - fmax(0, c->end_ms - until_ms);
}

/* Spans [first, last) are those of a rank. A time in which several buckets travel counts once. */
static void measure_rank(struct trace *trace, int first, int last)
{
    double covered_ms = -INFINITY;
    struct computed computed = {.next = first, .last = last, .end_ms = -INFINITY};
    for (int i = first; i < last; i++) {
        const struct span *s = &trace->spans[i];
        struct step *step = step_at(trace, s->rank, s->step);
        extend(step, s);
        if (s->kind == DT_SPAN_BUCKET && s->end_ms > covered_ms) {
            const double begin_ms = fmax(s->begin_ms, covered_ms);
            step->sent_ms += s->end_ms - begin_ms;
            step->hidden_ms -= computed_until(&computed, trace->spans, begin_ms);
            step->hidden_ms += computed_until(&computed, trace->spans, s->end_ms);
            covered_ms = s->end_ms;
        }
    }
}

static void measure(struct trace *trace)
{
    const size_t n = (size_t)trace->n_ranks * (size_t)trace->n_steps;
    for (size_t i = 0; i < n; i++) {
        trace->steps[i] = (struct step){.begin_ms = NAN, .end_ms = NAN, .compute_end_ms = NAN};
    }
    for (int first = 0, last = 0; first < trace->n; first = last) {
        while (last < trace->n && trace->spans[last].rank == trace->spans[first].rank) {
            last++;
        }
        measure_rank(trace, first, last);
    }
}

static enum dt_status read_steps(struct trace *out)
{
    const double n_steps = out->n > 0 ? (double)out->last_step - out->first_step + 1 : 0;
    if (n_steps * out->n_ranks > MAX_STEPS) {
        out->n = 0;
        return DT_OK;
    }
    out->n_steps = (int)n_steps;
    out->steps = calloc((size_t)out->n_ranks * (size_t)out->n_steps + 1, sizeof *out->steps);
    if (out->steps == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the spans of a trace");
    }
    measure(out);
    return DT_OK;
}

/* ---- lanes */

/* Lanes of a rank from the top: what it does, what it waits for, and each bucket. */
enum { LANE_WORK, LANE_WAIT, LANE_BUCKETS };

/* Kinds of boxes, which share the colours of the time's phases. */
static const struct {
    int kind;
    const char *name; /* NULL: as another's */
} kinds[] = {[DT_SPAN_GATHER] = {DT_PHASE_DATA, "data"},
             [DT_SPAN_FORWARD] = {DT_PHASE_FORWARD, "forward"},
             [DT_SPAN_LOSS] = {DT_N_PHASES, "loss"},
             [DT_SPAN_RECOMPUTE] = {DT_PHASE_FORWARD, NULL},
             [DT_SPAN_BACKWARD] = {DT_PHASE_BACKWARD, "backward"},
             [DT_SPAN_UPDATE] = {DT_PHASE_UPDATE, "update"},
             [DT_SPAN_BUCKET] = {DT_PHASE_COMMUNICATION, "communication: a bucket of gradients is "
                                                         "sent, or waited for"},
             [DT_SPAN_WAIT] = {DT_PHASE_COMMUNICATION, NULL},
             [DT_SPAN_GPU] = {DT_PHASE_ON_GPU, "gpu"}};

/* Which part of a trace is shown. */
struct picture {
    struct dt_part *lanes;
    const struct trace *trace;
    int first_step, last_step, n_ranks;
    double begin_ms, end_ms;
};

/* Two steps in the middle of the window: the first and the last ones are less like the others. */
static struct picture picture_of(const struct trace *trace)
{
    const int n_steps = trace->last_step - trace->first_step + 1;
    const int first = trace->first_step + (n_steps > SHOWN_STEPS ? (n_steps - SHOWN_STEPS) / 2 : 0);
    struct picture p = {.trace = trace,
                        .first_step = first,
                        .last_step =
                            n_steps > SHOWN_STEPS ? first + SHOWN_STEPS - 1 : trace->last_step,
                        .n_ranks = trace->n_ranks < SHOWN_RANKS ? trace->n_ranks : SHOWN_RANKS,
                        .begin_ms = INFINITY,
                        .end_ms = -INFINITY};
    for (int rank = 0; rank < p.n_ranks; rank++) {
        for (int step = p.first_step; step <= p.last_step; step++) {
            const struct step s = *step_at(trace, rank, step);
            p.begin_ms = fmin(p.begin_ms, s.begin_ms);
            p.end_ms = fmax(p.end_ms, s.end_ms);
        }
    }
    return p;
}

static void add_names(const struct picture *p)
{
    for (int rank = 0; rank < p->n_ranks; rank++) {
        dt_doc_lane(p->lanes, "rank %d", rank);
        dt_doc_lane(p->lanes, "wait");
        for (int b = 0; b < p->trace->n_buckets; b++) {
            dt_doc_lane(p->lanes, "bucket %d", b);
        }
    }
}

static void add_span(const struct picture *p, const struct span *s, double end_ms)
{
    const int lane = s->kind == DT_SPAN_BUCKET ? LANE_BUCKETS + s->bucket
                     : s->kind == DT_SPAN_WAIT ? LANE_WAIT
                                               : LANE_WORK;
    if (kinds[s->kind].name != NULL) {
        dt_doc_kind(p->lanes, kinds[s->kind].kind, kinds[s->kind].name);
    }
    dt_doc_box(p->lanes, s->rank * (LANE_BUCKETS + p->trace->n_buckets) + lane,
               s->begin_ms - p->begin_ms, end_ms - p->begin_ms, kinds[s->kind].kind, "%s", s->name);
}

/* Many short parts of one kind, one after the other, are one. Returns how many there was no room
 * for. */
static int add_spans(const struct picture *p)
{
    const struct span *spans = p->trace->spans;
    const double least_ms = MERGED * (p->end_ms - p->begin_ms);
    int n_shown = 0;
    for (int i = 0; i < p->trace->n; i++) {
        double end_ms = spans[i].end_ms;
        int last = i;
        while (last + 1 < p->trace->n && spans[last + 1].rank == spans[i].rank &&
               spans[last + 1].step == spans[i].step && spans[last + 1].kind == spans[i].kind &&
               spans[i].kind != DT_SPAN_BUCKET &&
               spans[last + 1].end_ms - spans[i].begin_ms < least_ms) {
            end_ms = spans[++last].end_ms;
        }
        const bool shown = spans[i].rank < p->n_ranks && spans[i].step >= p->first_step &&
                           spans[i].step <= p->last_step;
        if (shown && n_shown++ < SHOWN_SPANS) {
            add_span(p, &spans[i], end_ms);
        }
        i = last;
    }
    return n_shown > SHOWN_SPANS ? n_shown - SHOWN_SPANS : 0;
}

/* ---- in numbers */

/* A step of all ranks together. */
struct whole {
    double begin_ms, end_ms, sent_ms, hidden_ms;
    double spread_ms; /* from the first to the last rank that ended its passes */
    int last;         /* that rank; -1: there was none */
};

static struct whole whole_of(const struct trace *trace, int step)
{
    struct whole w = {.begin_ms = INFINITY, .end_ms = -INFINITY, .last = -1};
    double least = INFINITY, most = -INFINITY;
    for (int rank = 0; rank < trace->n_ranks; rank++) {
        const struct step *s = step_at(trace, rank, step);
        w.begin_ms = fmin(w.begin_ms, s->begin_ms);
        w.end_ms = fmax(w.end_ms, s->end_ms);
        w.sent_ms += s->sent_ms;
        w.hidden_ms += s->hidden_ms;
        w.last = s->compute_end_ms > most ? rank : w.last;
        least = fmin(least, s->compute_end_ms);
        most = fmax(most, s->compute_end_ms);
    }
    w.spread_ms = w.last >= 0 ? most - least : 0;
    return w;
}

static void add_table(struct dt_doc *doc, const struct trace *trace)
{
    struct dt_part *table =
        dt_doc_table(doc, "Timeline, step by step",
                     "step::+|all ranks:ms:3|last rank::+|behind the first:ms:3|"
                     "communication:ms:3|of it overlapped:ms:3");
    for (int i = 0; i < TABLE_STEPS && trace->first_step + i <= trace->last_step; i++) {
        const struct whole w = whole_of(trace, trace->first_step + i);
        if (w.last >= 0) {
            dt_doc_row(table, dt_n(trace->first_step + i), dt_n(w.end_ms - w.begin_ms),
                       dt_n(w.last), dt_n(w.spread_ms), dt_n(w.sent_ms / trace->n_ranks),
                       dt_n(w.hidden_ms / trace->n_ranks));
        }
    }
    dt_doc_detail(table);
}

/* Names the rank that held the others up most often, and the share of communication that computing
 * hid. */
static void tell_overlap(struct dt_doc *doc, const struct trace *trace)
{
    int counts[MAX_RANKS] = {0}, slowest = 0, n_steps = 0;
    double sent_ms = 0, hidden_ms = 0, spread_ms = 0;
    for (int step = trace->first_step; step <= trace->last_step; step++) {
        const struct whole w = whole_of(trace, step);
        sent_ms += w.sent_ms;
        hidden_ms += w.hidden_ms;
        if (w.last >= 0) {
            n_steps++;
            counts[w.last]++;
            spread_ms += w.spread_ms;
            slowest = counts[w.last] > counts[slowest] ? w.last : slowest;
        }
    }
    if (trace->n_ranks > 1 && n_steps > 0) {
        const char *overlap =
            sent_ms > 0
                ? dt_doc_print(doc, " %.0f %% of communication overlapped with computation.",
                               100 * hidden_ms / sent_ms)
                : "";
        dt_doc_text(doc,
                    "Rank %d was the last to end its passes in %d of %d steps; the last came %.3f "
                    "ms after the first on average.%s Rank clocks are aligned to within %.1f µs.",
                    slowest, counts[slowest], n_steps, spread_ms / n_steps, overlap,
                    trace->clock_error_us);
    }
}

static void add_all(struct dt_doc *doc, const struct trace *trace)
{
    struct picture p = picture_of(trace);
    dt_doc_section(doc, "Timeline");
    p.lanes = dt_doc_lanes(doc, "Timeline of some steps", "time, ms");
    add_names(&p);
    const int n_left = add_spans(&p);
    const char *left = n_left > 0
                           ? dt_doc_print(doc, " The first %d spans are shown, %d more are not.",
                                          SHOWN_SPANS, n_left)
                           : "";
    dt_doc_caption(p.lanes, "Steps %d to %d%s.%s", p.first_step, p.last_step,
                   p.n_ranks < trace->n_ranks ? ", the first 16 ranks" : "", left);
    tell_overlap(doc, trace);
    add_table(doc, trace);
}

enum dt_status dt_run_timeline_add(struct dt_doc *doc, const struct dt_record *record)
{
    struct trace trace = {0};
    enum dt_status s = read_spans(record->path, &trace);
    s = s == DT_OK ? read_steps(&trace) : s;
    if (s == DT_OK && trace.n > 0) {
        add_all(doc, &trace);
    }
    free(trace.spans);
    free(trace.steps);
    return s;
}
