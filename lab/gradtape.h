/* `dtrain lab gradtape`: its numbers, text and page. */
#ifndef DT_LAB_GRADTAPE_H
#define DT_LAB_GRADTAPE_H

#include "dist/ranks/world.h"
#include "lab/golden.h"

#define DT_TAPE_RANKS 2
#define DT_TAPE_SAMPLES 4
#define DT_TAPE_INPUTS 2
#define DT_TAPE_UNITS 3

/* The numbers common to all units of the layer: a weight, or a gradient, for each input, and a
 * bias. */
struct dt_tape_layer {
    float weight[DT_TAPE_INPUTS], bias;
};

/* A rank's numbers, in the order of computation. */
struct dt_tape {
    float x[DT_TAPE_SAMPLES * DT_TAPE_INPUTS];
    float first; /* of all weights and biases */
    float loss;
    struct dt_tape_layer own, mean;     /* gradients */
    struct dt_tape_layer stepped, sent; /* weights after the step, and after the broadcast */
    bool units_alike;
};

/* Computes it, on any number of ranks: even ranks act as rank 0 of the example, the others as rank
 * 1, but mean, step and broadcast use only the first two ranks' gradients. Every rank calls it;
 * agreed. */
enum dt_status dt_tape_run(struct dt_world *world, struct dt_tape *out);
/* Checks the numbers of `rank`, one of n_ranks, against the example. A single rank has no mean. */
void dt_tape_check(const struct dt_tape *tape, int rank, int n_ranks, struct dt_golden *golden);

/* ---- Matsumoto and Nishimura's generator (mt19937ar: init_genrand, genrand_int32, genrand_res53),
 * which NumPy and many tutorials draw from: for their numbers alone. What dtrain itself draws has
 * no state (base/rng.h). */

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
