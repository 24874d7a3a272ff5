#include "report/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sinks/record.h"

#define MAX_MS 1e9
#define MAX_BUCKETS 64
#define MAX_STEPS (1 << 20) /* of all ranks together */

#define NAME(constant, name) name,
static const char *const kind_names[] = {DT_SPAN_LIST(NAME)};

static bool span_computes(enum dt_span_kind kind)
{
    return kind == DT_SPAN_FORWARD || kind == DT_SPAN_LOSS || kind == DT_SPAN_RECOMPUTE ||
           kind == DT_SPAN_BACKWARD;
}

/* ---- reading */

static enum dt_status no_memory(void)
{
    return dt_error(DT_NO_MEMORY, "no memory for the spans of a trace");
}

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

static bool read_span(const cJSON *event, struct dt_trace_span *out)
{
    const double ts = number_of(event, "ts"), dur = number_of(event, "dur"),
                 rank = number_of(event, "pid");
    const double step = number_of(cJSON_GetObjectItemCaseSensitive(event, "args"), "step");
    const int kind = kind_of(dt_record_text(event, "cat"));
    if (strcmp(dt_record_text(event, "ph"), "X") != 0 || kind < 0 || !(ts >= 0) || !(dur >= 0) ||
        !(rank >= 0 && rank < DT_TRACE_MAX_RANKS) || !(step >= 1 && step < 1e9)) {
        return false;
    }
    *out = (struct dt_trace_span){.kind = kind,
                                  .rank = (int)rank,
                                  .step = (int)step,
                                  .bucket = -1,
                                  .begin_ms = 1e-3 * ts,
                                  .end_ms = 1e-3 * (ts + dur)};
    snprintf(out->name, sizeof out->name, "%s", dt_record_text(event, "name"));
    return kind != DT_SPAN_BUCKET || (sscanf(out->name, "bucket %2d", &out->bucket) == 1 &&
                                      out->bucket >= 0 && out->bucket < MAX_BUCKETS);
}

static void take_span(struct dt_trace_record *trace, const struct dt_trace_span *span)
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
    const struct dt_trace_span *x = a, *y = b;
    const int ranks = (x->rank > y->rank) - (x->rank < y->rank);
    return ranks != 0 ? ranks : (x->begin_ms > y->begin_ms) - (x->begin_ms < y->begin_ms);
}

static void read_clocks(const cJSON *root, struct dt_trace_record *trace)
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

static enum dt_status read_tree(const cJSON *root, struct dt_trace_record *out)
{
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(root, "traceEvents"), *event;
    const int n = cJSON_GetArraySize(events);
    out->spans = calloc((size_t)n + 1, sizeof *out->spans);
    if (out->spans == NULL) {
        return no_memory();
    }
    cJSON_ArrayForEach(event, events)
    {
        struct dt_trace_span span;
        if (read_span(event, &span)) {
            take_span(out, &span);
        }
    }
    qsort(out->spans, (size_t)out->n, sizeof *out->spans, by_rank_and_begin);
    read_clocks(root, out);
    return DT_OK;
}

static enum dt_status read_spans(const char *folder, struct dt_trace_record *out)
{
    cJSON *root;
    DT_TRY(dt_record_read(folder, "trace.json", &root));
    const enum dt_status s = read_tree(root, out);
    cJSON_Delete(root);
    return s;
}

/* ---- what it says */

static struct dt_trace_step *step_of(struct dt_trace_record *trace, const struct dt_trace_span *s)
{
    return &trace->steps[(size_t)s->rank * (size_t)trace->n_steps +
                         (size_t)(s->step - trace->first_step)];
}

static void extend(struct dt_trace_step *step, const struct dt_trace_span *s)
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
static double computed_until(struct computed *c, const struct dt_trace_span *spans, double until_ms)
{
    for (; c->next < c->last && spans[c->next].begin_ms < until_ms; c->next++) {
        const struct dt_trace_span *s = &spans[c->next];
        if (span_computes(s->kind) && s->end_ms > c->end_ms) {
            c->sum_ms += s->end_ms - fmax(s->begin_ms, c->end_ms);
            c->end_ms = s->end_ms;
        }
    }
    return c->sum_ms - fmax(0, c->end_ms - until_ms);
}

/* Spans [first, last) are those of a rank. A time in which several buckets travel counts once. */
static void measure_rank(struct dt_trace_record *trace, int first, int last)
{
    double covered_ms = -INFINITY;
    struct computed computed = {.next = first, .last = last, .end_ms = -INFINITY};
    for (int i = first; i < last; i++) {
        const struct dt_trace_span *s = &trace->spans[i];
        struct dt_trace_step *step = step_of(trace, s);
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

static void measure(struct dt_trace_record *trace)
{
    const size_t n = (size_t)trace->n_ranks * (size_t)trace->n_steps;
    for (size_t i = 0; i < n; i++) {
        trace->steps[i] = (struct dt_trace_step){
            .begin_ms = (double)NAN, .end_ms = (double)NAN, .compute_end_ms = (double)NAN};
    }
    for (int first = 0, last = 0; first < trace->n; first = last) {
        while (last < trace->n && trace->spans[last].rank == trace->spans[first].rank) {
            last++;
        }
        measure_rank(trace, first, last);
    }
}

static enum dt_status read_steps(struct dt_trace_record *out)
{
    const double n_steps = out->n > 0 ? (double)out->last_step - out->first_step + 1 : 0;
    if (n_steps * out->n_ranks > MAX_STEPS) {
        dt_trace_close(out);
        return DT_OK;
    }
    out->n_steps = (int)n_steps;
    out->steps = calloc((size_t)out->n_ranks * (size_t)out->n_steps + 1, sizeof *out->steps);
    if (out->steps == NULL) {
        return no_memory();
    }
    measure(out);
    return DT_OK;
}

enum dt_status dt_trace_open(const char *folder, struct dt_trace_record *out)
{
    *out = (struct dt_trace_record){0};
    enum dt_status s = read_spans(folder, out);
    s = s == DT_OK ? read_steps(out) : s;
    if (s != DT_OK) {
        dt_trace_close(out);
    }
    return s;
}

void dt_trace_close(struct dt_trace_record *trace)
{
    free(trace->spans);
    free(trace->steps);
    *trace = (struct dt_trace_record){0};
}

struct dt_trace_step dt_trace_step(const struct dt_trace_record *trace, int rank, int step)
{
    return trace->steps[(size_t)rank * (size_t)trace->n_steps + (size_t)(step - trace->first_step)];
}
