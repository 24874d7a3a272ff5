/* The timeline of a run, read back from trace.json: lanes of two steps, and the share of
 * communication that overlapped with computation. The file may be anybody's; an event that is no
 * span of ours is left out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "model/backend.h"
#include "report/run.h"

#define MAX_BUCKETS 64
#define SHOWN_RANKS 16
#define SHOWN_BOXES 5000

/* Spans have the colour of their phase; the loss has a colour of its own. */
static const struct {
    const char *span, *name;
    int color;
} kinds[DT_N_SPANS] = {[DT_SPAN_GATHER] = {"gather", "data", DT_PHASE_DATA},
                       [DT_SPAN_FORWARD] = {"forward", "forward", DT_PHASE_FORWARD},
                       [DT_SPAN_LOSS] = {"loss", "loss", DT_N_PHASES},
                       [DT_SPAN_RECOMPUTE] = {"recompute", "forward", DT_PHASE_FORWARD},
                       [DT_SPAN_BACKWARD] = {"backward", "backward", DT_PHASE_BACKWARD},
                       [DT_SPAN_UPDATE] = {"update", "update", DT_PHASE_UPDATE},
                       [DT_SPAN_BUCKET] = {"bucket", "communication", DT_PHASE_COMMUNICATION},
                       [DT_SPAN_WAIT] = {"wait", "communication", DT_PHASE_COMMUNICATION},
                       [DT_SPAN_GPU] = {"gpu", "gpu", DT_PHASE_ON_GPU}};

struct span {
    int kind, rank, step, bucket;
    double begin_ms, end_ms; /* since the first span, on rank 0's clock */
    const char *name;
};

static bool read_span(const cJSON *event, struct span *out)
{
    const double begin = dt_record_number(event, "ts"), length = dt_record_number(event, "dur"),
                 rank = dt_record_number(event, "pid"),
                 step = dt_record_number(cJSON_GetObjectItem(event, "args"), "step");
    const char *name = dt_record_text(event, "name"), *kind = dt_record_text(event, "cat");
    *out = (struct span){
        .bucket = -1, .begin_ms = 1e-3 * begin, .end_ms = 1e-3 * (begin + length), .name = name};
    while (out->kind < DT_N_SPANS && strcmp(kinds[out->kind].span, kind) != 0) {
        out->kind++;
    }
    if (strcmp(dt_record_text(event, "ph"), "X") != 0 || out->kind == DT_N_SPANS ||
        !(begin >= 0 && length >= 0 && rank >= 0 && rank < 1e6 && step >= 1 && step < 1e9)) {
        return false;
    }
    out->rank = (int)rank;
    out->step = (int)step;
    return out->kind != DT_SPAN_BUCKET || (sscanf(name, "bucket %2d", &out->bucket) == 1 &&
                                           out->bucket >= 0 && out->bucket < MAX_BUCKETS);
}

/* For qsort: by rank, and then by their begin. */
static int compare(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->rank != y->rank ? x->rank - y->rank
                              : (x->begin_ms > y->begin_ms) - (x->begin_ms < y->begin_ms);
}

/* Of the time in which a rank sends gradients, the share in which it computes, too. NaN: no rank
 * sends. */
static double overlap_of(const struct span *spans, size_t n)
{
    double sent_ms = 0, both_ms = 0, sends_until = 0, computes_until = 0;
    for (size_t i = 0; i < n; i++) {
        const struct span *s = &spans[i];
        const bool last = i + 1 == n || spans[i + 1].rank != s->rank;
        const double next_ms = last ? (double)INFINITY : spans[i + 1].begin_ms;
        if (s->kind == DT_SPAN_BUCKET) {
            sends_until = fmax(sends_until, s->end_ms);
        } else if (s->kind >= DT_SPAN_FORWARD && s->kind <= DT_SPAN_BACKWARD) {
            computes_until = fmax(computes_until, s->end_ms);
        }
        sent_ms += fmax(0, fmin(sends_until, next_ms) - s->begin_ms);
        both_ms += fmax(0, fmin(fmin(sends_until, computes_until), next_ms) - s->begin_ms);
        sends_until = last ? 0 : sends_until;
        computes_until = last ? 0 : computes_until;
    }
    return both_ms / sent_ms;
}

/* Two steps from the middle: the first and the last ones are less like the others. */
static void add_lanes(struct dt_doc *doc, const struct span *spans, size_t n)
{
    struct dt_part *lanes = dt_doc_lanes(doc, "Timeline of some steps", "time, ms");
    const int n_all = spans[n - 1].rank + 1, n_ranks = dt_min(n_all, SHOWN_RANKS);
    const int step = spans[n / (2 * (size_t)n_all)].step;
    int n_buckets = 0, n_boxes = 0, last = step;
    double begin_ms = INFINITY;
    for (const struct span *s = spans; s < spans + n; s++) {
        begin_ms = s->step == step ? fmin(begin_ms, s->begin_ms) : begin_ms;
        n_buckets = dt_max(n_buckets, s->bucket + 1);
        last = s->step == step + 1 ? s->step : last;
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        dt_doc_lane(lanes, "rank %d", rank);
        dt_doc_lane(lanes, "wait");
        for (int b = 0; b < n_buckets; b++) {
            dt_doc_lane(lanes, "bucket %d", b);
        }
    }
    for (const struct span *s = spans; s < spans + n && s->rank < n_ranks; s++) {
        const int color = kinds[s->kind].color,
                  lane = s->kind == DT_SPAN_BUCKET ? 2 + s->bucket : s->kind == DT_SPAN_WAIT;
        if ((s->step == step || s->step == last) && n_boxes++ < SHOWN_BOXES) {
            dt_doc_kind(lanes, color, kinds[s->kind].name);
            dt_doc_box(lanes, s->rank * (2 + n_buckets) + lane, s->begin_ms - begin_ms,
                       s->end_ms - begin_ms, color, "%s", s->name);
        }
    }
    dt_doc_caption(lanes, "Steps %d to %d%s.%s", step, last,
                   n_ranks < n_all ? ", the first 16 ranks" : "",
                   n_boxes > SHOWN_BOXES
                       ? dt_doc_print(doc, " %d more spans are not shown.", n_boxes - SHOWN_BOXES)
                       : "");
}

enum dt_status dt_run_timeline_add(struct dt_doc *doc, const struct dt_record *record)
{
    cJSON *root = NULL;
    const cJSON *event;
    size_t n = 0;
    DT_TRY(dt_record_read(record->path, "trace.json", DT_RECORD_FILE_BYTES, &root));
    const cJSON *events = cJSON_GetObjectItem(root, "traceEvents");
    struct span *spans = calloc((size_t)cJSON_GetArraySize(events) + 1, sizeof *spans);
    cJSON_ArrayForEach(event, events)
    {
        n += spans != NULL && read_span(event, &spans[n]);
    }
    if (n > 0) {
        dt_doc_section(doc, "Timeline");
        qsort(spans, n, sizeof *spans, compare);
        const double overlap = overlap_of(spans, n);
        add_lanes(doc, spans, n);
        if (isfinite(overlap)) {
            dt_doc_text(doc, "%.0f %% of communication overlapped with computation.",
                        100 * overlap);
        }
    }
    cJSON_Delete(root);
    free(spans);
    return spans != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for the timeline");
}
