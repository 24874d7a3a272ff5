/* trace.json: what every rank did when (train/hooks/timeline_hook.h), in the Trace Event Format
 * that Chrome, Perfetto and others read. A process is a rank, a thread a lane: data, compute,
 * update, wait, and one for each bucket of gradients, which travel beside all else. Times are in
 * microseconds since the first span, on rank 0's clock; otherData says by how much each rank's was
 * moved, and how wrong that may be. */
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "cli/output.h"
#include "cli/sinks/sinks.h"
#include "dist/strategy/grad_sync.h"
#include "train/hooks/timeline_hook.h"

/* X(constant, name): the lanes from the top; buckets come after them, so many as there are. */
#define LANE_LIST(X)           \
    X(LANE_DATA, "data")       \
    X(LANE_COMPUTE, "compute") \
    X(LANE_UPDATE, "update")   \
    X(LANE_WAIT, "wait")       \
    X(LANE_GPU, "gpu")         \
    X(LANE_BUCKETS, "bucket")
enum lane { LANE_LIST(DT_NAMED_ENUM) };

static const char *const lane_names[] = {LANE_LIST(DT_ENUM_NAME)};
static const char *const kind_names[] = {DT_SPAN_LIST(DT_ENUM_NAME)};

static int lane_of(const struct dt_timeline_span *span)
{
    switch ((enum dt_span_kind)span->kind) {
    case DT_SPAN_GATHER:
        return LANE_DATA;
    case DT_SPAN_FORWARD:
    case DT_SPAN_LOSS:
    case DT_SPAN_RECOMPUTE:
    case DT_SPAN_BACKWARD:
        return LANE_COMPUTE;
    case DT_SPAN_UPDATE:
        return LANE_UPDATE;
    case DT_SPAN_WAIT:
        return LANE_WAIT;
    case DT_SPAN_GPU:
        return LANE_GPU;
    case DT_SPAN_BUCKET:
    case DT_N_SPANS:
        break;
    }
    return LANE_BUCKETS + span->block;
}

/* "conv1 forward", "bucket 2", "wait" */
static void name_span(const struct dt_timeline_event *e, const struct dt_timeline_span *span,
                      char *text, size_t size)
{
    const enum dt_span_kind kind = (enum dt_span_kind)span->kind;
    if (kind == DT_SPAN_FORWARD || kind == DT_SPAN_BACKWARD || kind == DT_SPAN_RECOMPUTE) {
        snprintf(text, size, "%s %s", e->model->blocks[span->block].name, kind_names[kind]);
    } else if (kind == DT_SPAN_BUCKET) {
        snprintf(text, size, "%s %d", kind_names[kind], span->block);
    } else {
        snprintf(text, size, "%s", kind_names[kind]);
    }
}

static void put_meta(FILE *out, int rank, int lane, const char *what, const char *name)
{
    fprintf(out,
            "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
            what, rank, lane, name);
    if (lane >= 0) {
        fprintf(out,
                "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
                "\"sort_index\":%d}},\n",
                rank, lane, lane);
    }
}

static void name_lane(int lane, char *text, size_t size)
{
    if (lane < LANE_BUCKETS) {
        snprintf(text, size, "%s", lane_names[lane]);
    } else {
        snprintf(text, size, "%s %d", lane_names[LANE_BUCKETS], lane - LANE_BUCKETS);
    }
}

static void put_names(FILE *out, const struct dt_timeline_event *e)
{
    char name[32];
    for (int r = 0; r < e->n_ranks; r++) {
        bool used[LANE_BUCKETS + DT_MAX_BUCKETS] = {false};
        snprintf(name, sizeof name, "rank %d", r);
        put_meta(out, r, -1, "process_name", name);
        for (int i = 0; i < e->ranks[r].n_spans; i++) {
            const int lane = lane_of(&e->ranks[r].spans[i]);
            name_lane(lane, name, sizeof name);
            if (!used[lane]) {
                put_meta(out, r, lane, "thread_name", name);
            }
            used[lane] = true;
        }
    }
}

static double first_s(const struct dt_timeline_event *e)
{
    double first = INFINITY;
    for (int r = 0; r < e->n_ranks; r++) {
        for (int i = 0; i < e->ranks[r].n_spans; i++) {
            first = fmin(first, e->ranks[r].spans[i].begin_s);
        }
    }
    return first;
}

static void put_span(FILE *out, const struct dt_timeline_event *e, int rank, double origin_s,
                     const struct dt_timeline_span *span)
{
    char name[64];
    name_span(e, span, name, sizeof name);
    fprintf(out,
            "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid"
            "\":%d,\"args\":{\"step\":%u,\"samples\":%d}}",
            name, kind_names[span->kind], 1e6 * (span->begin_s - origin_s),
            1e6 * (double)span->seconds, rank, lane_of(span), span->step, span->n_samples);
}

static void put_spans(FILE *out, const struct dt_timeline_event *e)
{
    const double origin_s = first_s(e);
    const char *separator = "";
    for (int r = 0; r < e->n_ranks; r++) {
        for (int i = 0; i < e->ranks[r].n_spans; i++) {
            fputs(separator, out);
            put_span(out, e, r, origin_s, &e->ranks[r].spans[i]);
            separator = ",\n";
        }
    }
}

static void put_clocks(FILE *out, const struct dt_timeline_event *e)
{
    for (int r = 0; r < e->n_ranks; r++) {
        const struct dt_timeline_rank *rank = &e->ranks[r];
        fprintf(out,
                "%s\n{\"rank\":%d,\"offset_us\":%.3f,\"error_us\":%.3f,\"spans\":%d,\"lost_spans\":"
                "%llu}",
                r == 0 ? "" : ",", r, 1e6 * rank->clock.offset_s, 1e6 * rank->clock.error_s,
                rank->n_spans, (unsigned long long)rank->n_lost);
    }
}

/* A dt_file_put_fn. */
static void put_all(FILE *out, const void *context)
{
    const struct dt_timeline_event *e = context;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", out);
    put_names(out, e);
    put_spans(out, e);
    fprintf(out,
            "],\n\"otherData\":{\"version\":\"dtrain "
            "%s\",\"first_step\":%llu,\"last_step\":%llu,\"ranks\":[",
            dt_version, (unsigned long long)e->first, (unsigned long long)e->last);
    put_clocks(out, e);
    fputs("]}}\n", out);
}

enum dt_status dt_timeline_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    enum dt_status s = DT_OK;
    if (event->kind == DT_EVENT_TIMELINE) {
        s = dt_output_write(sinks->folder.dir, "trace.json", put_all, event->timeline);
        sinks->timeline_failed = s != DT_OK;
    } else if (event->kind == DT_EVENT_END && event->status == DT_OK && sinks->timeline_failed) {
        s = dt_error(
            DT_IO,
            "%s: trace.json could not be written, as the warning above says (the result is whole)",
            sinks->folder.dir->path);
    }
    return s;
}
