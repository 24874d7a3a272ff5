#include "train/watch/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/trainer.h"

/* ---- taking notes */

/* Of a bucket that has not begun while somebody watched. */
static const double not_begun = (double)NAN;

static struct dt_timeline *timeline_of(struct dt_trace *trace)
{
    return (struct dt_timeline *)trace;
}

static double *begin_of(struct dt_timeline *timeline, const struct dt_span *span)
{
    return span->kind == DT_SPAN_BUCKET ? &timeline->bucket_begin_s[span->block]
                                        : &timeline->begin_s[span->kind];
}

static void note(struct dt_timeline *timeline, const struct dt_span *span, double begin_s,
                 double end_s)
{
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
    struct dt_timeline *timeline = timeline_of(trace);
    double *begin_s = begin_of(timeline, span);
    if (!isnan(*begin_s)) {
        note(timeline, span, *begin_s, dt_clock_s());
    }
    *begin_s = not_begun;
    return DT_OK;
}

static int room_of(int size)
{
    const int share = DT_TIMELINE_MAX_SPANS / size;
    return share < DT_TIMELINE_MAX_RANK_SPANS ? share : DT_TIMELINE_MAX_RANK_SPANS;
}

enum dt_status dt_timeline_open(struct dt_world *world, uint64_t first, uint64_t last,
                                struct dt_timeline *out)
{
    *out = (struct dt_timeline){.trace = {begin_span, end_span}, .first = first, .last = last};
    if (first == 0) {
        return DT_OK;
    }
    for (int i = 0; i < DT_MAX_BUCKETS; i++) {
        out->bucket_begin_s[i] = not_begun;
    }
    out->capacity = room_of(world->size);
    return dt_world_alloc(world, (size_t)out->capacity, sizeof *out->spans, "the timeline",
                          (void **)&out->spans);
}

void dt_timeline_close(struct dt_timeline *timeline)
{
    free(timeline->spans);
    *timeline = (struct dt_timeline){0};
}

struct dt_trace *dt_timeline_step(struct dt_timeline *timeline, uint64_t step)
{
    timeline->step = step;
    return step >= timeline->first && step <= timeline->last ? &timeline->trace : NULL;
}

void dt_timeline_gpu_steps(struct dt_timeline *timeline, uint64_t last_step, int n_steps,
                           double begin_s, double end_s)
{
    const struct dt_span span = {.kind = DT_SPAN_GPU, .n_samples = n_steps};
    if (timeline->first > 0 && last_step >= timeline->first &&
        last_step - (uint64_t)n_steps < timeline->last) {
        timeline->step = last_step;
        note(timeline, &span, begin_s, end_s);
    }
}

/* ---- telling */

/* What a rank has, seen by all. */
struct holding {
    struct dt_clock_offset clock;
    uint64_t n_lost;
    int n;
};

static void tell(struct dt_trainer *t, const struct dt_timeline_rank *ranks, int n_ranks,
                 enum dt_status status, const struct dt_emitter *emitter)
{
    const struct dt_timeline_event event = {.first = t->timeline.first,
                                            .last = t->timeline.last,
                                            .model = &t->model,
                                            .n_ranks = n_ranks,
                                            .ranks = ranks};
    t->timeline.told = true;
    if (t->world->rank == 0) {
        emitter->emit(
            emitter->context,
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
        out[r] = (struct dt_timeline_rank){
            .clock = all[r].clock, .n_lost = all[r].n_lost, .n_spans = all[r].n, .spans = mine};
        for (int i = 0; i < all[r].n; i++) {
            mine[i].begin_s += all[r].clock.offset_s;
        }
    }
}

static enum dt_status tell_all(struct dt_trainer *t, const struct holding *all,
                               const struct dt_emitter *emitter)
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
                dt_comm_allgather(world->comm, t->timeline.spans, spans, stride * sizeof *spans,
                                  "gathering of the timelines"),
                done);
    gather_ranks(all, world->size, spans, (int)stride, ranks);
    tell(t, ranks, world->size, DT_OK, emitter);
done:
    free(ranks);
    free(spans);
    return s;
}

enum dt_status dt_timeline_tell(struct dt_trainer *t, bool at_end, const struct dt_emitter *emitter)
{
    struct dt_timeline *timeline = &t->timeline;
    const bool over = t->state.step >= timeline->last || at_end;
    if (timeline->first == 0 || timeline->told || !over || t->state.step < timeline->first) {
        return DT_OK;
    }
    DT_TRY(dt_strategy_share_weights(t->strategy)); /* what is under way ends */
    struct holding mine, *all;
    memset(&mine, 0, sizeof mine); /* padding too: it travels */
    mine.n = timeline->n;
    mine.n_lost = timeline->n_lost;
    DT_TRY(dt_clocks_compare(t->world->comm, &mine.clock));
    DT_TRY(dt_world_alloc(t->world, (size_t)t->world->size, sizeof *all, "the ranks' timelines",
                          (void **)&all));
    enum dt_status s =
        dt_comm_allgather(t->world->comm, &mine, all, sizeof mine, "lengths of the timelines");
    s = s == DT_OK ? tell_all(t, all, emitter) : s;
    free(all);
    return s;
}

void dt_timeline_tell_own(struct dt_trainer *t, enum dt_status status,
                          const struct dt_emitter *emitter)
{
    struct dt_timeline *timeline = &t->timeline;
    const struct dt_timeline_rank mine = {
        .n_lost = timeline->n_lost, .n_spans = timeline->n, .spans = timeline->spans};
    if (!timeline->told && timeline->n > 0) {
        tell(t, &mine, 1, status, emitter);
    }
}
