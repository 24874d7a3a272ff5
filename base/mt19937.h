/* Matsumoto and Nishimura's generator (mt19937ar: init_genrand, genrand_int32, genrand_res53),
 * which NumPy and many tutorials draw from: for their numbers alone. What dtrain itself draws has
 * no state (base/rng.h). */
#ifndef DT_BASE_MT19937_H
#define DT_BASE_MT19937_H

#include <stdint.h>

struct dt_mt19937 {
    uint32_t state[624];
    int next;
};

void dt_mt19937_seed(struct dt_mt19937 *mt, uint32_t seed);
double dt_mt19937_uniform(struct dt_mt19937 *mt); /* in [0, 1), 53 bits: NumPy's random.rand */

#endif
