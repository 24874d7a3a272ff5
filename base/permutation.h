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

#include <stdbool.h>

#include "base/rng.h"

/* Decides which permutation it is: another number cannot resume a run inside an epoch. */
#define DT_PERMUTATION_ROUNDS 6

struct dt_permutation {
    uint64_t seed;
    uint32_t stream; /* which of several permutations with this seed: the rank, where ranks shuffle
                        apart */
    uint32_t epoch;
    uint32_t n; /* 0 .. 2^31; with 0 there is no index to ask for */
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
    DT_ASSERT(((uint64_t)1 << (2 * p.half_bits)) >= n);
    return p;
}

static inline DT_HOST_DEVICE uint32_t dt_permutation_at(const struct dt_permutation *p,
                                                        uint32_t index)
{
    DT_ASSERT(index < p->n);
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

/* Which samples a batch consists of, in so few numbers that a GPU can be handed them and draw for
 * itself: data/shard.c makes them from (mode, seed, epoch, step, rank, size). */
struct dt_draw {
    struct dt_permutation
        order; /* in which the rank goes through its rows in this epoch, if it shuffles */
    bool shuffle;
    uint32_t begin;     /* of the batch, in that order */
    uint32_t n;         /* samples of the batch; may be 0 */
    uint32_t like_step; /* the first step in which every rank has as many as in this one: the same
                           number on all ranks; dt_shard_device_draw sets it */
    uint32_t first_id,
        id_stride; /* row i is sample first_id + i * id_stride of the whole data set */
};

/* The row of sample i < n of the batch. */
static inline DT_HOST_DEVICE uint32_t dt_draw_row(const struct dt_draw *draw, uint32_t i)
{
    DT_ASSERT(i < draw->n);
    return draw->shuffle ? dt_permutation_at(&draw->order, draw->begin + i) : draw->begin + i;
}

static inline DT_HOST_DEVICE uint32_t dt_draw_id(const struct dt_draw *draw, uint32_t row)
{
    return draw->first_id + row * draw->id_stride;
}

#endif
