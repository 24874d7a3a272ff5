/* A random permutation of 0..n-1 that can be asked at any index, without a table.
 *
 * A six-round Feistel network over an even number of bits, at least 8, that holds n, with Philox as
 * its round function; results outside 0..n-1 are encrypted again until they fall inside ("cycle
 * walking": Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). Four walks
 * are expected at most from 64 samples on, where the domain is below 4 n. With four rounds
 * neighbours stay neighbours up to 1.4 times as often as by chance. Header only; nvcc compiles it
 * too. */
#ifndef DT_BASE_PERMUTATION_H
#define DT_BASE_PERMUTATION_H

#include "base/rng.h"

/* Decides which permutation it is: a run that another number began cannot go on inside an epoch. */
#define DT_PERMUTATION_ROUNDS 6

struct dt_permutation {
    uint64_t seed;
    uint32_t stream; /* which of several permutations with this seed: the rank, where ranks shuffle
                        apart */
    uint32_t epoch;
    uint32_t n; /* 1 .. 2^31 */
    uint32_t half_bits;
};

static inline DT_HOST_DEVICE struct dt_permutation
dt_permutation_make(uint64_t seed, uint32_t stream, uint32_t epoch, uint32_t n)
{
    struct dt_permutation p = {seed, stream, epoch, n,
                               4}; /* fewer bits would mix small sets unevenly */
    while (p.half_bits < 16 && ((uint64_t)1 << (2 * p.half_bits)) < n) {
        p.half_bits++;
    }
    return p;
}

static inline DT_HOST_DEVICE uint32_t dt_permutation_at(const struct dt_permutation *p,
                                                        uint32_t index)
{
    const uint32_t mask = ((uint32_t)1 << p->half_bits) - 1;
    uint32_t x = index;
    do {
        uint32_t left = x >> p->half_bits;
        uint32_t right = x & mask;
        for (uint32_t round = 0; round < DT_PERMUTATION_ROUNDS; round++) {
            const struct dt_rng4 f =
                dt_rng_words(p->seed, DT_RNG_SHUFFLE, p->stream, p->epoch, right, round);
            const uint32_t next = (left ^ f.v[0]) & mask;
            left = right;
            right = next;
        }
        x = left << p->half_bits | right;
    } while (x >= p->n);
    return x;
}

#endif
