/* Matsumoto and Nishimura's generator (mt19937ar: init_genrand, genrand_int32, genrand_res53),
 * which NumPy and many tutorials draw from: for their numbers alone, in lab/. What dtrain itself
 * draws has no state (base/rng.h). */
#ifndef DT_BASE_MT19937_H
#define DT_BASE_MT19937_H

#include <stdint.h>

struct dt_mt19937 {
    uint32_t state[624];
    int next;
};

static inline void dt_mt19937_seed(struct dt_mt19937 *mt, uint32_t seed)
{
    mt->state[0] = seed;
    for (uint32_t i = 1; i < 624; i++) {
        mt->state[i] = 1812433253u * (mt->state[i - 1] ^ mt->state[i - 1] >> 30) + i;
    }
    mt->next = 624;
}

static inline void dt_mt19937_refill(struct dt_mt19937 *mt)
{
    for (int i = 0; i < 624; i++) {
        const uint32_t y = (mt->state[i] & 0x80000000u) | (mt->state[(i + 1) % 624] & 0x7fffffffu);
        mt->state[i] = mt->state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    mt->next = 0;
}

static inline uint32_t dt_mt19937_word(struct dt_mt19937 *mt)
{
    if (mt->next == 624) {
        dt_mt19937_refill(mt);
    }
    uint32_t y = mt->state[mt->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* In [0, 1), 53 bits: NumPy's random.rand. */
static inline double dt_mt19937_uniform(struct dt_mt19937 *mt)
{
    const uint32_t a = dt_mt19937_word(mt) >> 5, b = dt_mt19937_word(mt) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
}

#endif
