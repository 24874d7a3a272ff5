/* Lanes of what the ranks did when: a run's trace.json, read back. The file may be anything; what
 * is not a span of ours is left out. */
#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/backend.h"
#include "report/page/drawing.h"

#define MAX_MS 1e9
#define MAX_BUCKETS 64
#define MAX_STEPS (1 << 20) /* of all ranks together */

#define SHOWN_STEPS 2
#define SHOWN_RANKS 16
#define SHOWN_SPANS 20000
#define LEAST_MS 1e-6 /* of a picture: the last digit of the times in trace.json */
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

/* Rows of a rank from the top: what it does, what it waits for, and each bucket. */
enum { ROW_WORK, ROW_WAIT, ROW_BUCKETS };

struct picture {
    struct dt_lanes lanes;
    const struct trace *trace;
    int first_step, last_step, n_ranks;
    double begin_ms;
};

/* A row is left free between ranks. */
static int row_of(const struct picture *p, int rank, int row)
{
    return rank * (ROW_BUCKETS + p->trace->n_buckets + 1) + row;
}

static int row_of_span(const struct picture *p, const struct span *span)
{
    return row_of(p, span->rank,
                  span->kind == DT_SPAN_BUCKET ? ROW_BUCKETS + span->bucket
                  : span->kind == DT_SPAN_WAIT ? ROW_WAIT
                                               : ROW_WORK);
}

/* ---- which part */

/* Two steps in the middle of the window: what comes first and last is less like the others. */
static struct picture picture_of(FILE *out, const struct trace *trace)
{
    const int n_steps = trace->last_step - trace->first_step + 1;
    const int first = trace->first_step + (n_steps > SHOWN_STEPS ? (n_steps - SHOWN_STEPS) / 2 : 0);
    double end_ms = -INFINITY;
    struct picture p = {.trace = trace,
                        .first_step = first,
                        .last_step =
                            n_steps > SHOWN_STEPS ? first + SHOWN_STEPS - 1 : trace->last_step,
                        .n_ranks = trace->n_ranks < SHOWN_RANKS ? trace->n_ranks : SHOWN_RANKS,
                        .begin_ms = INFINITY};
    for (int rank = 0; rank < p.n_ranks; rank++) {
        for (int step = p.first_step; step <= p.last_step; step++) {
            const struct step s = *step_at(trace, rank, step);
            p.begin_ms = fmin(p.begin_ms, s.begin_ms);
            end_ms = fmax(end_ms, s.end_ms);
        }
    }
    p.lanes = (struct dt_lanes){.out = out,
                                .label = "what each rank did",
                                .class = "lanes",
                                .unit = "ms",
                                .n_rows = row_of(&p, p.n_ranks, 0) - 1,
                                .width = 1020,
                                .left = 82,
                                .right = 20,
                                .row = 15,
                                .end = fmax(end_ms - p.begin_ms, LEAST_MS)};
    return p;
}

/* ---- lanes */

/* The colour of each kind: its phase's (report/page/page.h). */
static const char *const phases[] = {[DT_SPAN_GATHER] = "data",
                                     [DT_SPAN_FORWARD] = "forward",
                                     [DT_SPAN_LOSS] = "loss",
                                     [DT_SPAN_RECOMPUTE] = "forward",
                                     [DT_SPAN_BACKWARD] = "backward",
                                     [DT_SPAN_UPDATE] = "update",
                                     [DT_SPAN_BUCKET] = "communication",
                                     [DT_SPAN_WAIT] = "communication",
                                     [DT_SPAN_GPU] = "gpu"};

static void draw_names(const struct picture *p)
{
    char name[32];
    for (int rank = 0; rank < p->n_ranks; rank++) {
        snprintf(name, sizeof name, "rank %d", rank);
        dt_lanes_name(&p->lanes, row_of(p, rank, ROW_WORK), name);
        dt_lanes_name(&p->lanes, row_of(p, rank, ROW_WAIT), "wait");
        for (int b = 0; b < p->trace->n_buckets; b++) {
            snprintf(name, sizeof name, "bucket %d", b);
            dt_lanes_name(&p->lanes, row_of(p, rank, ROW_BUCKETS + b), name);
        }
    }
}

static void draw_span(const struct picture *p, const struct span *s, double end_ms)
{
    char class[32], hint[192];
    const bool named = s->kind != DT_SPAN_BUCKET && s->kind != DT_SPAN_WAIT;
    snprintf(class, sizeof class, "phase %s", phases[s->kind]);
    snprintf(hint, sizeof hint, "%.96s, rank %d, step %d: %.3f ms", s->name, s->rank, s->step,
             end_ms - s->begin_ms);
    dt_lanes_box(&p->lanes, row_of_span(p, s),
                 &(struct dt_box){class, s->begin_ms - p->begin_ms, end_ms - p->begin_ms,
                                  named ? s->name : NULL, hint});
}

/* Many short parts of one kind, one after the other, are one. Returns how many there was no room
 * for. */
static int draw_spans(const struct picture *p)
{
    const struct span *spans = p->trace->spans;
    int n_shown = 0;
    for (int i = 0; i < p->trace->n; i++) {
        double end_ms = spans[i].end_ms;
        int last = i;
        while (last + 1 < p->trace->n && spans[last + 1].rank == spans[i].rank &&
               spans[last + 1].step == spans[i].step && spans[last + 1].kind == spans[i].kind &&
               spans[i].kind != DT_SPAN_BUCKET &&
               spans[last + 1].end_ms - spans[i].begin_ms < MERGED * p->lanes.end) {
            end_ms = spans[++last].end_ms;
        }
        const bool shown = spans[i].rank < p->n_ranks && spans[i].step >= p->first_step &&
                           spans[i].step <= p->last_step;
        if (shown && n_shown++ < SHOWN_SPANS) {
            draw_span(p, &spans[i], end_ms);
        }
        i = last;
    }
    return n_shown > SHOWN_SPANS ? n_shown - SHOWN_SPANS : 0;
}

static void draw_legend(FILE *out)
{
    static const struct {
        enum dt_span_kind kind;
        const char *text;
    } rows[] = {
        {DT_SPAN_GATHER, "data"},
        {DT_SPAN_FORWARD, "forward"},
        {DT_SPAN_LOSS, "loss"},
        {DT_SPAN_BACKWARD, "backward"},
        {DT_SPAN_UPDATE, "update"},
        {DT_SPAN_BUCKET, "communication: a bucket of gradients on its way, or waiting for it"}};
    fputs("<p class=\"legend\">", out);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(out, "<span class=\"key phase %s\">%s</span> ", phases[rows[i].kind], rows[i].text);
    }
    fputs("</p>\n", out);
}

static void draw_lanes(const struct picture *p)
{
    FILE *out = p->lanes.out;
    draw_legend(out);
    fputs("<div class=\"wide\">", out);
    dt_lanes_begin(&p->lanes);
    draw_names(p);
    const int n_left = draw_spans(p);
    dt_lanes_end(&p->lanes);
    fputs("</div>\n", out);
    if (n_left > 0) {
        fprintf(out, "<p>The first %d spans are shown, %d more are not.</p>\n", SHOWN_SPANS,
                n_left);
    }
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

static void put_step(FILE *out, const struct trace *trace, int step)
{
    const struct whole w = whole_of(trace, step);
    if (w.last >= 0) {
        fprintf(out, "<tr><td>%d<td>%.3f<td>rank %d<td>%.3f<td>%.3f<td>%.3f\n", step,
                w.end_ms - w.begin_ms, w.last, w.spread_ms, w.sent_ms / trace->n_ranks,
                w.hidden_ms / trace->n_ranks);
    }
}

static void put_table(FILE *out, const struct trace *trace)
{
    const int n = trace->last_step - trace->first_step + 1,
              last = n <= 24 ? trace->last_step : trace->first_step + 23;
    fputs("<details><summary>Step by step</summary><div "
          "class=\"wide\"><table><thead><tr><th>step<th>ms, all ranks<th>last to end its "
          "passes<th>ms after the first<th>ms buckets travel<th>ms of them hidden</thead>\n",
          out);
    for (int step = trace->first_step; step <= last; step++) {
        put_step(out, trace, step);
    }
    fputs("</table></div></details>\n", out);
}

/* Names the rank that held the others up most often, and the share of sending that computing
 * hid. */
static void put_sentence(FILE *out, const struct trace *trace)
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
        fprintf(out,
                "<p>Rank %d was the last to end its passes in %d of %d steps; the last came %.3f "
                "ms after the first on average.",
                slowest, counts[slowest], n_steps, spread_ms / n_steps);
        if (sent_ms > 0) {
            fprintf(out,
                    " Of the time that gradients travelled, %.0f %% was hidden behind computing.",
                    100 * hidden_ms / sent_ms);
        }
        fprintf(out, " Rank clocks are aligned to within %.1f µs.</p>\n", trace->clock_error_us);
    }
}

static void draw_all(FILE *out, const struct trace *trace)
{
    const struct picture p = picture_of(out, trace);
    fprintf(out,
            "<h2 class=\"part\">Who did what when</h2>\n<figure class=\"card\"><figcaption>Steps "
            "%d to %d%s</figcaption>\n",
            p.first_step, p.last_step, p.n_ranks < trace->n_ranks ? ", the first 16 ranks" : "");
    draw_lanes(&p);
    put_sentence(out, trace);
    put_table(out, trace);
    fputs("</figure>\n", out);
}

void dt_run_timeline_draw(FILE *out, const struct dt_record *record)
{
    struct trace trace = {0};
    const bool whole =
        read_spans(record->path, &trace) == DT_OK && read_steps(&trace) == DT_OK; /* or no page */
    if (whole && trace.n > 0) {
        draw_all(out, &trace);
    }
    free(trace.spans);
    free(trace.steps);
}
