#include "train/hooks/timeline_hook.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "dist/strategy/grad_sync.h"
#include "train/trainer.h"

struct timeline {
    struct dt_hook hook; /* first */
    struct dt_trace trace;
    const struct dt_emitter *emitter;
    uint64_t first, last; /* steps of the window, from 1 */
    uint64_t step;        /* under way */
    bool reported;
    int n, capacity;
    uint64_t n_lost;
    struct dt_timeline_span *spans;
    double begin_s[DT_N_SPANS], bucket_begin_s[DT_MAX_BUCKETS];
};

/* ---- taking notes */

/* Marks a bucket that began before the timeline did. */
static const double not_begun = (double)NAN;

static struct timeline *timeline_of(struct dt_trace *trace)
{
    return (struct timeline *)((char *)trace - offsetof(struct timeline, trace));
}

static double *begin_of(struct timeline *timeline, const struct dt_span *span)
{
    DT_ASSERT(span->kind < DT_N_SPANS && span->block >= 0 && span->block < DT_MAX_BUCKETS);
    return span->kind == DT_SPAN_BUCKET ? &timeline->bucket_begin_s[span->block]
                                        : &timeline->begin_s[span->kind];
}

static void note(struct timeline *timeline, const struct dt_span *span, double begin_s,
                 double end_s)
{
    DT_ASSERT(begin_s <= end_s && timeline->n <= timeline->capacity);
    if (timeline->n == timeline->capacity) {
        timeline->n_lost++;
        return;
    }
    timeline->spans[timeline->n++] = (struct dt_timeline_span){.begin_s = begin_s,
                                                               .seconds = (float)(end_s - begin_s),
                                                               .step = (uint32_t)timeline->step,
                                                               .n_samples = span->n_samples,
                                                               .block = (int16_t)span->block,
                                                               .kind = (uint8_t)span->kind};
}

static enum dt_status begin_span(struct dt_trace *trace, const struct dt_span *span)
{
    *begin_of(timeline_of(trace), span) = dt_clock_s();
    return DT_OK;
}

static enum dt_status end_span(struct dt_trace *trace, const struct dt_span *span)
{
    struct timeline *timeline = timeline_of(trace);
    double *begin_s = begin_of(timeline, span);
    if (!isnan(*begin_s)) {
        note(timeline, span, *begin_s, dt_clock_s());
    }
    *begin_s = not_begun;
    return DT_OK;
}

static enum dt_status begin_steps(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                                  uint64_t last)
{
    struct timeline *timeline = (struct timeline *)hook;
    timeline->step = last;
    dt_trainer_trace(t,
                     last >= timeline->first && first <= timeline->last ? &timeline->trace : NULL);
    return DT_OK;
}

/* ---- telling */

/* A rank's clock and number of spans, known to all ranks. */
struct holding {
    struct dt_clock_offset clock;
    uint64_t n_lost;
    int n;
};

static void tell(struct timeline *timeline, const struct dt_trainer *t,
                 const struct dt_timeline_rank *ranks, int n_ranks, enum dt_status status)
{
    const struct dt_timeline_event event = {.first = timeline->first,
                                            .last = timeline->last,
                                            .model = &t->model,
                                            .n_ranks = n_ranks,
                                            .ranks = ranks};
    timeline->reported = true;
    if (t->world->rank == 0) {
        timeline->emitter->emit(
            timeline->emitter->context,
            &(struct dt_event){.kind = DT_EVENT_TIMELINE, .status = status, .timeline = &event});
    }
}

static int most_of(const struct holding *all, int n_ranks)
{
    int most = 0;
    for (int r = 0; r < n_ranks; r++) {
        most = all[r].n > most ? all[r].n : most;
    }
    return most;
}

/* Rank r's spans are spans[r * stride] and those behind it; on rank 0's clock. */
static void gather_ranks(const struct holding *all, int n_ranks, struct dt_timeline_span *spans,
                         int stride, struct dt_timeline_rank *out)
{
    for (int r = 0; r < n_ranks; r++) {
        struct dt_timeline_span *mine = spans + (size_t)r * (size_t)stride;
        DT_ASSERT(all[r].n >= 0 && all[r].n <= stride);
        out[r] = (struct dt_timeline_rank){
            .clock = all[r].clock, .n_lost = all[r].n_lost, .n_spans = all[r].n, .spans = mine};
        for (int i = 0; i < all[r].n; i++) {
            mine[i].begin_s += all[r].clock.offset_s;
        }
    }
}

static enum dt_status tell_all(struct timeline *timeline, const struct dt_trainer *t,
                               const struct holding *all)
{
    struct dt_world *world = t->world;
    const size_t n_ranks = (size_t)world->size, stride = (size_t)most_of(all, world->size);
    struct dt_timeline_span *spans = NULL;
    struct dt_timeline_rank *ranks = NULL;
    enum dt_status s;
    DT_TRY_GOTO(s,
                dt_world_alloc(world, n_ranks * stride, sizeof *spans, "the ranks' timelines",
                               (void **)&spans),
                done);
    DT_TRY_GOTO(
        s, dt_world_alloc(world, n_ranks, sizeof *ranks, "the ranks' timelines", (void **)&ranks),
        done);
    DT_TRY_GOTO(s,
                dt_comm_allgather(world->comm, timeline->spans, spans, stride * sizeof *spans,
                                  "gathering of the timelines"),
                done);
    gather_ranks(all, world->size, spans, (int)stride, ranks);
    tell(timeline, t, ranks, world->size, DT_OK);
done:
    free(ranks);
    free(spans);
    return s;
}

/* Every rank calls it, between steps. */
static enum dt_status gather_and_tell(struct timeline *timeline, struct dt_trainer *t)
{
    DT_TRY(dt_strategy_share_weights(t->strategy)); /* steps under way end */
    struct holding mine, *all;
    memset(&mine, 0, sizeof mine); /* padding too: it travels */
    mine.n = timeline->n;
    mine.n_lost = timeline->n_lost;
    DT_TRY(dt_clocks_compare(t->world->comm, &mine.clock));
    DT_TRY(dt_world_alloc(t->world, (size_t)t->world->size, sizeof *all, "the ranks' timelines",
                          (void **)&all));
    enum dt_status s =
        dt_comm_allgather(t->world->comm, &mine, all, sizeof mine, "lengths of the timelines");
    s = s == DT_OK ? tell_all(timeline, t, all) : s;
    free(all);
    return s;
}

static enum dt_status end_steps(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                                uint64_t last)
{
    struct timeline *timeline = (struct timeline *)hook;
    (void)first;
    return last >= timeline->last && !timeline->reported ? gather_and_tell(timeline, t) : DT_OK;
}

static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *end)
{
    struct timeline *timeline = (struct timeline *)hook;
    const struct dt_timeline_rank mine = {
        .n_lost = timeline->n_lost, .n_spans = timeline->n, .spans = timeline->spans};
    (void)end;
    if (timeline->reported) {
        return DT_OK;
    }
    if (status == DT_OK || status == DT_STOPPED) {
        return t->state.step >= timeline->first ? gather_and_tell(timeline, t) : DT_OK;
    }
    if (timeline->n > 0) {
        tell(timeline, t, &mine, 1, status);
    }
    return DT_OK;
}

/* ---- open and close */

static void close_timeline(struct dt_hook *hook)
{
    free(((struct timeline *)hook)->spans);
    free(hook);
}

static const struct dt_hook_ops timeline_ops = {
    .step_begin = begin_steps, .step_end = end_steps, .run_end = end_run, .close = close_timeline};

enum dt_status dt_timeline_open(struct dt_trainer *t, const struct dt_emitter *emitter)
{
    struct timeline *timeline;
    if (t->config.trace_first == 0) {
        return DT_OK;
    }
    DT_TRY(dt_hook_open(t, &timeline_ops, sizeof *timeline, "the timeline", (void **)&timeline));
    timeline->trace = (struct dt_trace){begin_span, end_span};
    timeline->emitter = emitter;
    timeline->first = t->config.trace_first;
    timeline->last = t->config.trace_last;
    timeline->capacity = dt_min(DT_TIMELINE_MAX_SPANS / t->world->size, DT_TIMELINE_MAX_RANK_SPANS);
    for (int i = 0; i < DT_MAX_BUCKETS; i++) {
        timeline->bucket_begin_s[i] = not_begun;
    }
    return dt_world_alloc(t->world, (size_t)timeline->capacity, sizeof *timeline->spans,
                          "the timeline", (void **)&timeline->spans);
}
