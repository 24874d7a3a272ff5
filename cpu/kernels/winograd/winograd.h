/* Convolution 3 x 3 to 5 x 5 of stride 1 by Winograd's minimal filtering F(4 x 4, 3 x 3): the
 * parameters of the kernels in this folder. */
#ifndef DT_CPU_KERNELS_WINOGRAD_H
#define DT_CPU_KERNELS_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_WINOGRAD_TILE 4 /* outputs, in both directions */
#define DT_WINOGRAD_SIDE 6 /* inputs they depend on */
#define DT_WINOGRAD_MAX_KERNEL 5
#define DT_WINOGRAD_MAX_GROUP 64
#define DT_WINOGRAD_MAX_IMAGES 32 /* in one call */
#define DT_WINOGRAD_FREQS (DT_WINOGRAD_SIDE * DT_WINOGRAD_SIDE)

/* The shape, and its division: outputs in tiles of 4 x 4, tiles in groups whose transforms stay in
 * a core's private cache. */
struct dt_winograd {
    int c, h, w;   /* the input image, without padding */
    int top, left; /* zeros above and to the left of it; as many as needed below and to the right */
    int k, out_h, out_w;
    int wider;          /* than 3 x 3: 0 to 2 rows and columns */
    bool used;          /* false: the direct kernel is faster */
    int rows, columns;  /* of tiles, in an image that needs all */
    int images;         /* to process at a time */
    int group;          /* tiles at a time, 2 to DT_WINOGRAD_MAX_GROUP */
    bool skips_uniform; /* equal outputs over the background are computed only once */
    bool plain;    /* no ReLU and no pool reads the outputs: rounding errors may decide signs */
    size_t u_freq; /* transformed weights: [frequency][panel of filters][channel][filter]; floats
                      between frequencies */
    size_t v_freq, v_tile;  /* transformed inputs: [tile][frequency][channel] */
    size_t m_block, m_tile; /* their products: [tile][filter / vector][frequency][vector] */
    size_t background;      /* filters in whole vectors */
};

/* Decides by the shape alone whether to use it, and its division; w holds the shape: c .. out_w.
 * vector: floats per vector. */
void dt_winograd_plan(struct dt_winograd *w, int vector);

static inline size_t dt_winograd_image_elems(const struct dt_winograd *w)
{
    return (size_t)w->h * (size_t)w->w * (size_t)w->c;
}

static inline size_t dt_winograd_packed_elems(const struct dt_winograd *w)
{
    return (size_t)DT_WINOGRAD_FREQS * w->u_freq;
}

/* Part of an image's outputs: rows [top, bottom). A tile is an area; one at the end may be smaller.
 * In a tile, bit 4 i + j of `background` says that output (i, j) sees only the background; of
 * `zeros` that it sees only zeros, if the background is not zero; and of `faint` that everything it
 * sees is far smaller than the tile's other pixels. */
struct dt_winograd_area {
    int image, top, left, bottom, right;
    uint16_t background, zeros, faint;
};

/* Rows and columns of pixels that an output sees, and a tile of outputs. */
static inline int dt_winograd_kernel(const struct dt_winograd *w)
{
    return 3 + w->wider;
}

static inline int dt_winograd_seen(const struct dt_winograd *w)
{
    return DT_WINOGRAD_SIDE + w->wider;
}

/* Kernels of 3 x 3 that make a wider one; part i begins at row i / 2 and column i % 2, times
 * `wider`. */
static inline int dt_winograd_parts(const struct dt_winograd *w)
{
    return w->wider > 0 ? 4 : 1;
}

/* Channels of transformed inputs: of each part those of x. */
static inline int dt_winograd_depth(const struct dt_winograd *w)
{
    return dt_winograd_parts(w) * w->c;
}

/* A bit for each pixel of a row. */
static inline size_t dt_winograd_row_words(const struct dt_winograd *w)
{
    return ((size_t)w->w + 63) / 64;
}

/* The classes of an image's pixels: those bits, and a byte for each. */
static inline size_t dt_winograd_pixel_words(const struct dt_winograd *w)
{
    return (size_t)w->h * dt_winograd_row_words(w) + ((size_t)w->h * (size_t)w->w + 7) / 8;
}

/* A group of transformed inputs and products, one more, images' background outputs, the classes of
 * an image's pixels, its tiles, and the inputs of one tile at the edge. */
static inline size_t dt_winograd_scratch_elems(const struct dt_winograd *w)
{
    const size_t n_bytes = dt_winograd_pixel_words(w) * sizeof(uint64_t) +
                           (size_t)(w->rows * w->columns) * sizeof(struct dt_winograd_area);
    return ((size_t)w->group + 1) * (w->v_tile + w->m_tile) +
           DT_WINOGRAD_MAX_IMAGES * w->background + n_bytes / sizeof(float) +
           (size_t)(dt_winograd_seen(w) * dt_winograd_seen(w)) * (size_t)w->c;
}

/* The gradient of the weights from that of the outputs, by the same transforms: its division. */
struct dt_winograd_gradient {
    struct dt_winograd w;  /* the shape; v_freq, v_tile: inputs [frequency][tile][channel] */
    int group;             /* tiles at a time */
    double work;           /* vector operations of an image */
    size_t g_freq, g_tile; /* transformed gradients: [frequency][tile][filter] */
    size_t u_freq;         /* sums of their products: [frequency][channel][filter] */
};

/* As dt_winograd_plan; n_images: neighbouring samples in one call. */
void dt_winograd_plan_gradient(struct dt_winograd_gradient *g, int n_images, int vector);

/* A group of both transforms, the sums, and the gradients of one tile at the edge. */
static inline size_t dt_winograd_gradient_scratch_elems(const struct dt_winograd_gradient *g)
{
    return DT_WINOGRAD_FREQS * (g->w.v_freq + g->g_freq + g->u_freq) +
           (size_t)(DT_WINOGRAD_TILE * DT_WINOGRAD_TILE) * (size_t)g->w.k;
}

#endif
