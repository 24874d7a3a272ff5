/* The one place that counts the time of a rank's steps, by phase. */
#ifndef DT_TRAIN_STEP_CLOCK_H
#define DT_TRAIN_STEP_CLOCK_H

#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"

/* X(constant, name) */
#define DT_PHASE_LIST(X)                       \
    X(DT_PHASE_DATA, "data")                   \
    X(DT_PHASE_FORWARD, "forward")             \
    X(DT_PHASE_BACKWARD, "backward")           \
    X(DT_PHASE_COMMUNICATION, "communication") \
    X(DT_PHASE_UPDATE, "update")               \
    X(DT_PHASE_ON_GPU, "gpu") /* the whole of steps that a GPU takes on its own */
enum dt_phase { DT_PHASE_LIST(DT_NAMED_ENUM) DT_N_PHASES };

/* In seconds. */
struct dt_phase_times {
    double s[DT_N_PHASES];
};

struct dt_step_clock {
    struct dt_phase_times times; /* since the start of the process */
    uint64_t n_steps;
    double last; /* the lap under way began then */
};

static inline void dt_step_clock_start(struct dt_step_clock *clock)
{
    clock->last = dt_clock_s();
}

/* Ends the lap, whose time goes to `phase`, and begins the next. */
static inline void dt_step_clock_lap(struct dt_step_clock *clock, enum dt_phase phase)
{
    const double now = dt_clock_s();
    clock->times.s[phase] += now - clock->last;
    clock->last = now;
}

/* So many seconds of the lap under way go to `phase`. */
static inline void dt_step_clock_move(struct dt_step_clock *clock, enum dt_phase phase,
                                      double seconds)
{
    DT_ASSERT(seconds >= 0);
    clock->times.s[phase] += seconds;
    clock->last += seconds;
}

#endif
