/* Fused steps after a convolution with ReLU, for one window of a 2 x 2 max pool at a time, while
 * its outputs are in registers: the pool, dropout, and the survivors (struct dt_conv_outputs). */
#ifndef DT_CPU_KERNELS_POOL_WINDOW_H
#define DT_CPU_KERNELS_POOL_WINDOW_H

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

/* Destination of a first window. */
struct pool_target {
    float *y;
    const uint8_t *keep;
    float scale;
    uint8_t *word; /* of the window's first output */
    size_t word_row,
        word_pixel; /* distance in bytes from an output's words to those below and beside it */
};

/* For pooled pixel `at` of an image with k filters and rows of out_w outputs; its words begin at
 * `word_at`. */
static inline struct pool_target pool_target(const struct dt_conv_outputs *out, int k, int out_w,
                                             size_t at, size_t word_at)
{
    const size_t word_pixel = dt_survivor_words(k) * sizeof(uint64_t);
    return (struct pool_target){.y = out->y + at,
                                .keep = out->keep != NULL ? out->keep + at : NULL,
                                .scale = out->keep != NULL ? out->scale : 1,
                                .word = out->word != NULL ? (uint8_t *)(out->word + word_at) : NULL,
                                .word_row = (size_t)out_w * word_pixel,
                                .word_pixel = word_pixel};
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "put_bits writes a word byte by byte");

/* Writes the bits of VL filters from k on: two bytes, one, or half of one; the first half is
 * written first. */
ALWAYS_INLINE void put_bits(uint8_t *word, size_t k, uint32_t bits)
{
    word += k / 8;
#if VL == 4
    *word = (uint8_t)(k % 8 == 0 ? bits : *word | bits << 4);
#else
    memcpy(word, &bits, VL / 8);
#endif
}

/* Scales the outputs that ReLU and dropout keep, and writes zero for the rest. Records each
 * survivor's place in its window. A later output wins by being larger, so the first of equal ones
 * wins. */
ALWAYS_INLINE void put_window(const int n_filters, const struct pool_target *t, size_t k, vf best,
                              uint32_t in_lower, uint32_t top_right, uint32_t bottom_right,
                              size_t at, size_t word_at)
{
    vm alive = greater(best, (vf){0});
    if (t->keep != NULL) {
        alive &= lanes_of_bytes(t->keep + at + k);
    }
    store_lanes(t->y + at + k, only(alive, best * t->scale), n_filters);
    if (t->word != NULL) {
        const uint32_t there = n_filters == VL ? UINT32_MAX : (1u << n_filters) - 1,
                       bits = lane_bits(alive) & there, upper = bits & ~in_lower,
                       lower = bits & in_lower;
        uint8_t *word = t->word + word_at;
        put_bits(word, k, upper & ~top_right);
        put_bits(word + t->word_pixel, k, upper & top_right);
        put_bits(word + t->word_row, k, lower & ~bottom_right);
        put_bits(word + t->word_row + t->word_pixel, k, lower & bottom_right);
    }
}

/* One window, of filters from k on. */
ALWAYS_INLINE void pool_window(const int n_filters, const struct pool_target *t, size_t k,
                               const vf top[2], const vf bottom[2], size_t at, size_t word_at)
{
    const vf upper = larger(top[0], top[1]), lower = larger(bottom[0], bottom[1]);
    put_window(n_filters, t, k, larger(upper, lower), lane_bits(greater(lower, upper)),
               lane_bits(greater(top[1], top[0])), lane_bits(greater(bottom[1], bottom[0])), at,
               word_at);
}

#endif
