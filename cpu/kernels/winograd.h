/* Convolution 3 x 3 of stride 1 by Winograd's minimal filtering F(4 x 4, 3 x 3): what the kernels
 * in winograd.c are told. */
#ifndef DT_CPU_KERNELS_WINOGRAD_H
#define DT_CPU_KERNELS_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_WINOGRAD_TILE 4 /* outputs, in both directions */
#define DT_WINOGRAD_SIDE 6 /* inputs they depend on */
#define DT_WINOGRAD_MAX_GROUP 64
#define DT_WINOGRAD_MAX_IMAGES 32 /* in one call */
#define DT_WINOGRAD_FREQS (DT_WINOGRAD_SIDE * DT_WINOGRAD_SIDE)

/* The shape, and how it is cut: outputs in tiles of 4 x 4, tiles in groups whose transforms stay in
 * a core's own cache. */
struct dt_winograd {
    int c, h, w;   /* the input image, without padding */
    int top, left; /* zeros above and to the left of it; below and to the right there are as many as
                      needed */
    int k, out_h, out_w;
    bool used;         /* false: the direct kernel is faster */
    int rows, columns; /* of tiles, in an image that needs all */
    int images;        /* that are worth taking at a time */
    int group;         /* tiles at a time, 2 to DT_WINOGRAD_MAX_GROUP */
    bool skips_blank;  /* outputs that see but one pixel over and over are made only once */
    size_t u_freq; /* transformed weights: [frequency][panel of filters][channel][filter]; floats
                      from one frequency to the next */
    size_t v_freq, v_tile;  /* transformed inputs: [tile][frequency][channel] */
    size_t m_block, m_tile; /* their products: [tile][filter / vector][frequency][vector] */
    size_t ground;          /* filters in whole vectors */
};

/* Decides by the shape alone whether and how; w holds it: c .. out_w. vector: floats in one. */
void dt_winograd_plan(struct dt_winograd *w, int vector);

static inline size_t dt_winograd_packed_elems(const struct dt_winograd *w)
{
    return (size_t)DT_WINOGRAD_FREQS * w->u_freq;
}

/* Part of an image's outputs, from row `top` to the one before `bottom`. A tile is an area; one at
 * the end may be a smaller one. Of a tile, bit 4 i + j of `ground` says that output (i, j) sees
 * nothing but the ground; of `zeros` that it sees nothing but zeros where the ground is another;
 * and of `quiet` that all it sees is far smaller than what the tile has elsewhere. */
struct dt_winograd_area {
    int image, top, left, bottom, right;
    uint16_t ground, zeros, quiet;
};

/* A bit for each pixel of a row. */
static inline size_t dt_winograd_row_words(const struct dt_winograd *w)
{
    return ((size_t)w->w + 63) / 64;
}

/* What an image's pixels are like: those bits, and a byte for each. */
static inline size_t dt_winograd_pixel_words(const struct dt_winograd *w)
{
    return (size_t)w->h * dt_winograd_row_words(w) + ((size_t)w->h * (size_t)w->w + 7) / 8;
}

/* A group of transformed inputs and products, one more, what images' grounds give, what an image's
 * pixels are like, its tiles, and the inputs of one at the edge. */
static inline size_t dt_winograd_scratch_elems(const struct dt_winograd *w)
{
    const size_t n_bytes = dt_winograd_pixel_words(w) * sizeof(uint64_t) +
                           (size_t)(w->rows * w->columns) * sizeof(struct dt_winograd_area);
    return ((size_t)w->group + 1) * (w->v_tile + w->m_tile) + DT_WINOGRAD_MAX_IMAGES * w->ground +
           n_bytes / sizeof(float) + (size_t)DT_WINOGRAD_FREQS * (size_t)w->c;
}

#endif
