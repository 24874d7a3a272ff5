/* Fused steps after a convolution with ReLU, for one window of a 2 x 2 max pool at a time, while
 * its outputs are in registers: the pool, dropout, and the survivors (struct dt_conv_outputs). */
#ifndef DT_CPU_KERNELS_POOL_WINDOW_H
#define DT_CPU_KERNELS_POOL_WINDOW_H

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

/* Destination of VL filters of a first window. */
struct pool_target {
    float *y;
    const uint8_t *keep;
    float scale;
    uint8_t *word; /* these filters' bits of the first output's words */
    size_t word_row,
        word_pixel; /* distance in bytes from an output's words to those below and beside it */
    int first_bit;
};

/* For an image with k filters and rows of out_w outputs. */
static inline struct pool_target pool_target(const struct dt_conv_outputs *out, int k, int out_w)
{
    const size_t word_pixel = dt_survivor_words(k) * sizeof(uint64_t);
    return (struct pool_target){.scale = out->keep != NULL ? out->scale : 1,
                                .word_row = (size_t)out_w * word_pixel,
                                .word_pixel = word_pixel};
}

/* Points to filter k of pooled pixel `at`, whose words begin at `word_at`. */
static inline void aim(struct pool_target *t, const struct dt_conv_outputs *out, size_t at,
                       size_t word_at, size_t k)
{
    t->y = out->y + at + k;
    t->keep = out->keep != NULL ? out->keep + at + k : NULL;
    t->word = out->word != NULL ? (uint8_t *)(out->word + word_at) + k / 8 : NULL;
    t->first_bit = k % 8;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "put_bits writes a word byte by byte");

/* Writes the bits of VL filters: two bytes, one, or half of one; the first half is written
 * first. */
ALWAYS_INLINE void put_bits(uint8_t *word, int first_bit, uint32_t bits)
{
#if VL == 4
    *word = (uint8_t)(first_bit == 0 ? bits : *word | bits << 4);
#else
    (void)first_bit;
    memcpy(word, &bits, VL / 8);
#endif
}

/* Records each survivor's place in its window. A later output wins by being larger, so the first of
 * equal ones wins. */
ALWAYS_INLINE void put_survivors(const struct pool_target *t, uint8_t *word, uint32_t alive,
                                 uint32_t in_lower, uint32_t top_right, uint32_t bottom_right)
{
    const uint32_t upper = alive & ~in_lower, lower = alive & in_lower;
    put_bits(word, t->first_bit, upper & ~top_right);
    put_bits(word + t->word_pixel, t->first_bit, upper & top_right);
    put_bits(word + t->word_row, t->first_bit, lower & ~bottom_right);
    put_bits(word + t->word_row + t->word_pixel, t->first_bit, lower & bottom_right);
}

/* One window. Scales the outputs that ReLU and dropout keep, and writes zero for the rest. */
ALWAYS_INLINE void pool_window(const int n_filters, const struct pool_target *t, const vf top[2],
                               const vf bottom[2], size_t at, size_t word_at)
{
    const vf upper = larger(top[0], top[1]), lower = larger(bottom[0], bottom[1]),
             best = larger(upper, lower);
    vm alive = greater(best, (vf){0});
    if (t->keep != NULL) {
        alive &= lanes_of_bytes(t->keep + at);
    }
    store_lanes(t->y + at, only(alive, best * t->scale), n_filters);
    if (t->word != NULL) {
        const uint32_t there = n_filters == VL ? UINT32_MAX : (1u << n_filters) - 1;
        put_survivors(t, t->word + word_at, lane_bits(alive) & there,
                      lane_bits(greater(lower, upper)), lane_bits(greater(top[1], top[0])),
                      lane_bits(greater(bottom[1], bottom[0])));
    }
}

#endif
