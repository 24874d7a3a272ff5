/* What every rank did when, in a window of steps: their spans (model/trace.h), on rank 0's clock.
 *
 * Each rank notes its own, in room that is there from the start: nothing is sent or allocated while
 * the window lasts. When its last step is done the ranks compare their clocks
 * (dist/ranks/liveness/clocks.h), and rank 0 gathers and tells all of it, so that a run which ends
 * badly later has it too. Of one that fails within the window rank 0 tells what it has itself. */
#ifndef DT_TRAIN_WATCH_TIMELINE_H
#define DT_TRAIN_WATCH_TIMELINE_H

#include "dist/ranks/liveness/clocks.h"
#include "dist/ranks/world.h"
#include "dist/strategy/grad_sync.h"
#include "model/trace.h"

struct dt_timeline_span {
    double begin_s;
    float seconds;
    uint32_t step;
    int32_t n_samples;
    int16_t block; /* or bucket */
    uint8_t kind;  /* enum dt_span_kind */
};

/* Spans that all ranks have room for together, and one at most. What comes later is not noted, but
 * counted. */
#define DT_TIMELINE_MAX_SPANS (1 << 18)
#define DT_TIMELINE_MAX_RANK_SPANS (1 << 16)

struct dt_timeline {
    struct dt_trace trace; /* first: what its functions get is this */
    uint64_t first, last;  /* steps of the window, from 1; 0: there is none */
    uint64_t step;         /* under way */
    bool told;
    int n, capacity;
    uint64_t n_lost;
    struct dt_timeline_span *spans;
    double begin_s[DT_N_SPANS], bucket_begin_s[DT_MAX_BUCKETS];
};

struct dt_trainer;
struct dt_emitter;

/* Zeroed without a window. Every rank calls it; agreed. */
enum dt_status dt_timeline_open(struct dt_world *world, uint64_t first, uint64_t last,
                                struct dt_timeline *out);
void dt_timeline_close(struct dt_timeline *timeline);

/* This step is next: who watches it, or NULL outside the window. */
struct dt_trace *dt_timeline_step(struct dt_timeline *timeline, uint64_t step);
/* Steps that a GPU took on its own, up to this one. */
void dt_timeline_gpu_steps(struct dt_timeline *timeline, uint64_t last_step, int n_steps,
                           double begin_s, double end_s);

/* Tells of the window, once, if it is over, or has begun and the run ends here. Every rank calls it
 * between steps. */
enum dt_status dt_timeline_tell(struct dt_trainer *trainer, bool at_end,
                                const struct dt_emitter *emitter);
/* The run has failed with this: rank 0 tells what it has itself. */
void dt_timeline_tell_own(struct dt_trainer *trainer, enum dt_status status,
                          const struct dt_emitter *emitter);

#endif
