/* The timeline: each rank's work in a window of steps, as spans (model/backend.h), on rank 0's
 * clock.
 *
 * Each rank notes its own, in room that is there from the start: nothing is sent or allocated while
 * the window lasts. When its last step is done the ranks compare their clocks
 * (dist/liveness/clocks.h), and rank 0 gathers and tells all of it, so that a run which ends
 * badly later has it too. Of one that fails within the window rank 0 tells what it has itself. */
#ifndef DT_TRAIN_HOOKS_TIMELINE_HOOK_H
#define DT_TRAIN_HOOKS_TIMELINE_HOOK_H

#include "dist/liveness/clocks.h"
#include "train/events.h"

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

/* One rank's spans and clock. */
struct dt_timeline_rank {
    struct dt_clock_offset clock;
    uint64_t n_lost; /* spans for which there was no room: the last ones */
    int n_spans;
    const struct dt_timeline_span *spans; /* as they ended, on rank 0's clock */
};

/* The timeline of all ranks; of a run that failed meanwhile, of rank 0 alone. */
struct dt_timeline_event {
    uint64_t first, last; /* steps that were asked for */
    const struct dt_model *model;
    int n_ranks;
    const struct dt_timeline_rank *ranks;
};

struct dt_trainer;

/* A hook, where the configuration has a window of steps (trace_first). `emitter` gets it
 * once: when it is over, when the run ends within it, or when the run fails. Every rank calls it;
 * agreed. */
enum dt_status dt_timeline_open(struct dt_trainer *trainer, const struct dt_emitter *emitter);

#endif
