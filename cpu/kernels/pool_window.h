/* Fused steps after a convolution with ReLU, for one window of a 2 x 2 max pool at a time, while
 * its outputs are in registers: the pool, dropout, and the nonzeros (struct dt_conv_outputs). */
#ifndef DT_CPU_KERNELS_POOL_WINDOW_H
#define DT_CPU_KERNELS_POOL_WINDOW_H

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

/* Destination of a first window. */
struct pool_target {
    float *y;
    const uint8_t *mask;
    float scale;
    uint8_t *bitmask; /* of the window's first output */
    size_t bitmask_row,
        bitmask_pixel; /* distance in bytes from an output's bits to those below and beside it */
};

/* For pooled pixel `at` of an image with k filters and rows of out_w outputs; its bitmask begins at
 * `bitmask_at`. */
static inline struct pool_target pool_target(const struct dt_conv_outputs *out, int k, int out_w,
                                             size_t at, size_t bitmask_at)
{
    const size_t bitmask_pixel = dt_nonzero_words(k) * sizeof(uint64_t);
    return (struct pool_target){
        .y = out->y + at,
        .mask = out->mask != NULL ? out->mask + at : NULL,
        .scale = out->mask != NULL ? out->scale : 1,
        .bitmask = out->bitmask != NULL ? (uint8_t *)(out->bitmask + bitmask_at) : NULL,
        .bitmask_row = (size_t)out_w * bitmask_pixel,
        .bitmask_pixel = bitmask_pixel};
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "put_bits writes a bitmask byte by byte");

/* Writes the bits of VL filters from k on: two bytes, one, or half of one; the first half is
 * written first. */
ALWAYS_INLINE void put_bits(uint8_t *bitmask, size_t k, uint32_t bits)
{
    bitmask += k / 8;
#if VL == 4
    *bitmask = (uint8_t)(k % 8 == 0 ? bits : *bitmask | bits << 4);
#else
    memcpy(bitmask, &bits, VL / 8);
#endif
}

/* Scales the outputs that ReLU and dropout keep, and writes zero for the rest. Records each
 * nonzero's place in its window. A later output wins by being larger, so the first of equal ones
 * wins. */
ALWAYS_INLINE void put_window(const int n_filters, const struct pool_target *t, size_t k, vf best,
                              uint32_t in_lower, uint32_t top_right, uint32_t bottom_right,
                              size_t at, size_t bitmask_at)
{
    vm alive = greater(best, (vf){0});
    if (t->mask != NULL) {
        alive &= lanes_of_bytes(t->mask + at + k);
    }
    store_lanes(t->y + at + k, only(alive, best * t->scale), n_filters);
    if (t->bitmask != NULL) {
        const uint32_t there = n_filters == VL ? UINT32_MAX : (1u << n_filters) - 1,
                       bits = lane_bits(alive) & there, upper = bits & ~in_lower,
                       lower = bits & in_lower;
        uint8_t *bitmask = t->bitmask + bitmask_at;
        put_bits(bitmask, k, upper & ~top_right);
        put_bits(bitmask + t->bitmask_pixel, k, upper & top_right);
        put_bits(bitmask + t->bitmask_row, k, lower & ~bottom_right);
        put_bits(bitmask + t->bitmask_row + t->bitmask_pixel, k, lower & bottom_right);
    }
}

/* One window, of filters from k on. */
ALWAYS_INLINE void pool_window(const int n_filters, const struct pool_target *t, size_t k,
                               const vf top[2], const vf bottom[2], size_t at, size_t bitmask_at)
{
    const vf upper = larger(top[0], top[1]), lower = larger(bottom[0], bottom[1]);
    put_window(n_filters, t, k, larger(upper, lower), lane_bits(greater(lower, upper)),
               lane_bits(greater(top[1], top[0])), lane_bits(greater(bottom[1], bottom[0])), at,
               bitmask_at);
}

#endif
