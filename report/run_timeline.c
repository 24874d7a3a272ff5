#include "report/run.h"

#include <math.h>

#include "report/page/drawing.h"

#define SHOWN_STEPS 2
#define SHOWN_RANKS 16
#define SHOWN_SPANS 20000
#define LEAST_MS 1e-6 /* of a picture: the last digit of the times in trace.json */
#define MERGED \
    4e-4 /* share of a picture: what is narrower is drawn with its neighbour of the same kind */

/* Rows of a rank from the top: what it does, what it waits for, and each bucket. */
enum { ROW_WORK, ROW_WAIT, ROW_BUCKETS };

struct picture {
    struct dt_lanes lanes;
    const struct dt_trace_record *trace;
    int first_step, last_step, n_ranks;
    double begin_ms;
};

/* A row is left free between ranks. */
static int row_of(const struct picture *p, int rank, int row)
{
    return rank * (ROW_BUCKETS + p->trace->n_buckets + 1) + row;
}

static int row_of_span(const struct picture *p, const struct dt_trace_span *span)
{
    return row_of(p, span->rank,
                  span->kind == DT_SPAN_BUCKET ? ROW_BUCKETS + span->bucket
                  : span->kind == DT_SPAN_WAIT ? ROW_WAIT
                                               : ROW_WORK);
}

/* ---- which part */

/* Two steps in the middle of the window: what comes first and last is less like the others. */
static struct picture picture_of(FILE *out, const struct dt_trace_record *trace)
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
            const struct dt_trace_step s = dt_trace_step(trace, rank, step);
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

static bool is_shown(const struct picture *p, const struct dt_trace_span *s)
{
    return s->rank < p->n_ranks && s->step >= p->first_step && s->step <= p->last_step;
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

static void draw_span(const struct picture *p, const struct dt_trace_span *s, double end_ms)
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
    const struct dt_trace_span *spans = p->trace->spans;
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
        if (is_shown(p, &spans[i]) && n_shown++ < SHOWN_SPANS) {
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

struct finish {
    int first, last; /* ranks */
    double spread_ms;
};

/* The first and the last rank to end the passes of a step. */
static struct finish finish_of(const struct dt_trace_record *trace, int step)
{
    struct finish f = {.first = -1, .last = -1};
    double least = INFINITY, most = -INFINITY;
    for (int rank = 0; rank < trace->n_ranks; rank++) {
        const double end_ms = dt_trace_step(trace, rank, step).compute_end_ms;
        f.first = end_ms < least ? rank : f.first;
        f.last = end_ms > most ? rank : f.last;
        least = fmin(least, end_ms);
        most = fmax(most, end_ms);
    }
    f.spread_ms = f.last >= 0 ? most - least : 0;
    return f;
}

static void put_step(FILE *out, const struct dt_trace_record *trace, int step)
{
    const struct finish f = finish_of(trace, step);
    double begin_ms = INFINITY, end_ms = -INFINITY, sent_ms = 0, hidden_ms = 0;
    for (int rank = 0; rank < trace->n_ranks; rank++) {
        const struct dt_trace_step s = dt_trace_step(trace, rank, step);
        begin_ms = fmin(begin_ms, s.begin_ms);
        end_ms = fmax(end_ms, s.end_ms);
        sent_ms += s.sent_ms / trace->n_ranks;
        hidden_ms += s.hidden_ms / trace->n_ranks;
    }
    if (f.last < 0) {
        return;
    }
    fprintf(out, "<tr><td>%d<td>%.3f<td>rank %d<td>%.3f<td>%.3f<td>%.3f\n", step, end_ms - begin_ms,
            f.last, f.spread_ms, sent_ms, hidden_ms);
}

static void put_table(FILE *out, const struct dt_trace_record *trace)
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
static void put_sentence(FILE *out, const struct dt_trace_record *trace)
{
    int counts[DT_TRACE_MAX_RANKS] = {0}, slowest = 0, n_steps = 0;
    double sent_ms = 0, hidden_ms = 0, spread_ms = 0;
    for (int step = trace->first_step; step <= trace->last_step; step++) {
        const struct finish f = finish_of(trace, step);
        for (int rank = 0; rank < trace->n_ranks; rank++) {
            const struct dt_trace_step s = dt_trace_step(trace, rank, step);
            sent_ms += s.sent_ms;
            hidden_ms += s.hidden_ms;
        }
        if (f.last >= 0) {
            n_steps++;
            counts[f.last]++;
            spread_ms += f.spread_ms;
            slowest = counts[f.last] > counts[slowest] ? f.last : slowest;
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

void dt_run_timeline_draw(FILE *out, const struct dt_trace_record *trace)
{
    if (trace->n == 0) {
        return;
    }
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
