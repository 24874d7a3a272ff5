#include "base/clock.h"

#include <time.h>

#include "base/assert.h"

uint64_t dt_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double dt_clock_s(void)
{
    return (double)dt_clock_ns() * 1e-9;
}

void dt_sleep_ms(unsigned n_ms)
{
    const struct timespec pause = {.tv_sec = n_ms / 1000,
                                   .tv_nsec = (long)(n_ms % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

struct dt_patience dt_patience_begin(void)
{
    return (struct dt_patience){.last_ns = dt_clock_ns()};
}

double dt_patience_look(struct dt_patience *patience)
{
    const uint64_t now_ns = dt_clock_ns();
    DT_ASSERT(now_ns >= patience->last_ns);
    const double gap_s = (double)(now_ns - patience->last_ns) * 1e-9;
    patience->waited_s += gap_s < 1 ? gap_s : 1;
    patience->last_ns = now_ns;
    return patience->waited_s;
}
