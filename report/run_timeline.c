#include "report/run_timeline.h"

#include <math.h>

#include "report/page/chart.h"
#include "report/page/page.h"

#define SHOWN_STEPS 2
#define SHOWN_RANKS 16
#define SHOWN_SPANS 20000
#define MAX_TICKS 8
#define LEAST_MS 1e-6 /* of a picture: the last digit of the times in trace.json */
#define WIDTH 1000.0  /* of the lanes, in units of the picture */
#define LEFT 90.0     /* of their names */
#define ROW 15.0
#define GAP 10.0        /* between ranks */
#define LEAST_WIDTH 0.4 /* what is narrower is drawn with its neighbour of the same kind */
#define NAMED_WIDTH 62.0

/* Rows of a rank from the top: what it does, what it waits for, and each bucket. */
enum { ROW_WORK, ROW_WAIT, ROW_BUCKETS };

struct picture {
    FILE *out;
    const struct dt_trace_record *trace;
    int first_step, last_step, n_ranks;
    double begin_ms, end_ms;
};

static int row_of(const struct dt_trace_span *span)
{
    return span->kind == DT_SPAN_BUCKET ? ROW_BUCKETS + span->bucket
           : span->kind == DT_SPAN_WAIT ? ROW_WAIT
                                        : ROW_WORK;
}

static int n_rows(const struct picture *p)
{
    return ROW_BUCKETS + p->trace->n_buckets;
}

static double y_of(const struct picture *p, int rank, int row)
{
    return 22 + rank * (n_rows(p) * ROW + GAP) + row * ROW;
}

static double x_of(const struct picture *p, double ms)
{
    return LEFT + (WIDTH - LEFT) * (ms - p->begin_ms) / (p->end_ms - p->begin_ms);
}

/* ---- which part */

/* Two steps in the middle of the window: what comes first and last is less like the others. */
static struct picture picture_of(FILE *out, const struct dt_trace_record *trace)
{
    const int n_steps = trace->last_step - trace->first_step + 1;
    const int first = trace->first_step + (n_steps > SHOWN_STEPS ? (n_steps - SHOWN_STEPS) / 2 : 0);
    struct picture p = {.out = out,
                        .trace = trace,
                        .first_step = first,
                        .last_step =
                            n_steps > SHOWN_STEPS ? first + SHOWN_STEPS - 1 : trace->last_step,
                        .n_ranks = trace->n_ranks < SHOWN_RANKS ? trace->n_ranks : SHOWN_RANKS,
                        .begin_ms = INFINITY,
                        .end_ms = -INFINITY};
    for (int rank = 0; rank < p.n_ranks; rank++) {
        for (int step = p.first_step; step <= p.last_step; step++) {
            const struct dt_trace_step s = dt_trace_step(trace, rank, step);
            p.begin_ms = fmin(p.begin_ms, s.begin_ms);
            p.end_ms = fmax(p.end_ms, s.end_ms);
        }
    }
    p.end_ms = fmax(p.end_ms, p.begin_ms + LEAST_MS);
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

static void draw_axis(const struct picture *p)
{
    const double span = p->end_ms - p->begin_ms, tick = dt_chart_tick(span, MAX_TICKS),
                 bottom = y_of(p, p->n_ranks, 0) - GAP;
    for (int i = 0; i <= MAX_TICKS && i * tick <= span; i++) {
        const double x = x_of(p, p->begin_ms + i * tick);
        fprintf(
            p->out,
            "<path class=\"grid\" d=\"M%.1f 18V%.1f\"/><text x=\"%.1f\" y=\"12\"%s>%g%s</text>\n",
            x, bottom, x, i == 0 ? " class=\"start\"" : "", i * tick, i == 0 ? " ms" : "");
    }
}

static void draw_names(const struct picture *p)
{
    for (int rank = 0; rank < p->n_ranks; rank++) {
        fprintf(p->out, "<text class=\"end dark\" x=\"%.1f\" y=\"%.1f\">rank %d</text>\n", LEFT - 8,
                y_of(p, rank, 0) + 12, rank);
        fprintf(p->out, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">wait</text>\n", LEFT - 8,
                y_of(p, rank, ROW_WAIT) + 12);
        for (int b = 0; b < p->trace->n_buckets; b++) {
            fprintf(p->out, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">bucket %d</text>\n",
                    LEFT - 8, y_of(p, rank, ROW_BUCKETS + b) + 12, b);
        }
    }
}

static void draw_span(const struct picture *p, const struct dt_trace_span *s, double end_ms)
{
    const double x = x_of(p, s->begin_ms), width = x_of(p, end_ms) - x,
                 y = y_of(p, s->rank, row_of(s));
    fprintf(p->out,
            "<rect class=\"phase %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%g\"><title>",
            phases[s->kind], x, y, fmax(width, LEAST_WIDTH), ROW - 2);
    dt_page_text(p->out, s->name);
    fprintf(p->out, ", rank %d, step %d: %.3f ms</title></rect>\n", s->rank, s->step,
            end_ms - s->begin_ms);
    if (width > NAMED_WIDTH + (s->kind == DT_SPAN_BACKWARD ? 40 : 0) && s->kind != DT_SPAN_BUCKET &&
        s->kind != DT_SPAN_WAIT) {
        fprintf(p->out, "<text class=\"on\" x=\"%.1f\" y=\"%.1f\">", x + width / 2, y + 10);
        dt_page_text(p->out, s->name);
        fputs("</text>\n", p->out);
    }
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
               x_of(p, spans[last + 1].end_ms) - x_of(p, spans[i].begin_ms) < LEAST_WIDTH) {
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
    fputs("<p class=\"lanes-key\">", out);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(out,
                "<span><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect class=\"phase %s\" "
                "width=\"12\" "
                "height=\"12\"/></svg>%s</span>\n",
                phases[rows[i].kind], rows[i].text);
    }
    fputs("</p>\n", out);
}

static void draw_lanes(const struct picture *p)
{
    draw_legend(p->out);
    fprintf(p->out,
            "<div class=\"wide\"><svg class=\"lanes\" role=\"img\" aria-label=\"what each rank did "
            "in steps %d to %d\" viewBox=\"0 "
            "0 %g %.1f\">\n",
            p->first_step, p->last_step, WIDTH + 20, y_of(p, p->n_ranks, 0));
    draw_axis(p);
    draw_names(p);
    const int n_left = draw_spans(p);
    fputs("</svg></div>\n", p->out);
    if (n_left > 0) {
        fprintf(p->out, "<p>The first %d spans are shown, %d more are not.</p>\n", SHOWN_SPANS,
                n_left);
    }
}

/* ---- in numbers */

struct finish {
    int first, last; /* ranks */
    double spread_ms;
};

/* Who was the first, and who the last, to end the passes of a step. */
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
          "class=\"wide\"><table><thead><tr><th>step<th>ms, all ranks<th>last to end "
          "its passes"
          "<th>ms after the first<th>ms buckets travel<th>ms of them hidden</thead>\n",
          out);
    for (int step = trace->first_step; step <= last; step++) {
        put_step(out, trace, step);
    }
    fputs("</table></div></details>\n", out);
}

/* Who held the others up most often, and how much of the sending was hidden behind computing. */
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
