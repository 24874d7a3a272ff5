/* The one clock: monotonic, so that a stepped wall clock can neither fire nor delay a deadline. */
#ifndef DT_BASE_CLOCK_H
#define DT_BASE_CLOCK_H

#include <stdint.h>

uint64_t dt_clock_ns(void); /* since an arbitrary start; never goes back */
double dt_clock_s(void);    /* the same in seconds */
void dt_sleep_ms(unsigned n_ms);

#endif
