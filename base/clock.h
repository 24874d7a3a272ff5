/* The one clock: monotonic, so that a stepped wall clock can neither fire nor delay a deadline. */
#ifndef DT_BASE_CLOCK_H
#define DT_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

uint64_t dt_clock_ns(void); /* since an arbitrary start; never goes back */
double dt_clock_s(void);    /* the same in seconds */
void dt_sleep_ms(unsigned n_ms);

/* How long somebody has been waiting, as far as this process ran meanwhile: a gap of seconds
 * between two looks at the clock means that it was stopped, perhaps with the whole job, and counts
 * as one second. */
struct dt_patience {
    uint64_t last_ns;
    double waited_s;
};
struct dt_patience dt_patience_begin(void);
double dt_patience_look(struct dt_patience *patience); /* waited_s, brought up to now */

/* A sign of life, which long work gives between its pieces to the ranks that wait for it. */
struct dt_alive {
    void (*show)(void *context); /* takes microseconds, never blocks; NULL: none is needed */
    void *context;
};

static inline void dt_alive_show(const struct dt_alive *alive)
{
    if (alive->show != NULL) {
        alive->show(alive->context);
    }
}

#endif
