/* What is done to the pixels of a sample on their way to a network: each channel is normalized, and
 * images of a training are moved and mirrored at random. Backends do it while they gather a batch.
 *
 * The randomness is a pure function of (seed, epoch, sample), so it is the same on every backend
 * and at every number of ranks, and when a run is resumed. Header only, plain C; nvcc compiles it
 * too.
 */
#ifndef DT_BASE_TRANSFORM_H
#define DT_BASE_TRANSFORM_H

#include <math.h>
#include <stdbool.h>

#include "base/rng.h"
#include "base/samples.h"

#define DT_TRANSFORM_MOST_CHANNELS 16
#define DT_TRANSFORM_MOST_STEPS 8

/* One change of an image: it is moved by -n to n pixels down and right, each as likely as the
 * others; mirrored left to right by half of the chances; rotated by -n to n degrees, each pixel
 * being the nearest one; or loses a square of n pixels a side around one of its pixels (DeVries and
 * Taylor 2017, arXiv 1708.04552). GPUs do the first two only. */
enum { DT_TRANSFORM_MOVE, DT_TRANSFORM_MIRROR, DT_TRANSFORM_ROTATE, DT_TRANSFORM_CUT };
struct dt_transform_step {
    int kind;
    int n;
};

struct dt_pixel_transform {
    struct dt_transform base;
    struct dt_shape shape;
    int n_scaled; /* channels with a scale of their own; 0: all have the first */
    float scale[DT_TRANSFORM_MOST_CHANNELS], offset[DT_TRANSFORM_MOST_CHANNELS];
    uint64_t seed;
    int n_steps;
    struct dt_transform_step steps[DT_TRANSFORM_MOST_STEPS];
    bool by_pixel;      /* a step rotates or cuts: no pose says what all do */
    uint8_t background; /* what a cut leaves */
};

/* Where the pixels of a transformed image come from: row y from row y + down, column x from column
 * x + right, or from right - x in a mirrored one. That holds for rows top <= y < bottom and columns
 * left <= x < end; all else is black, a pixel of 0. */
struct dt_pose {
    int down, top, bottom;
    int right, left, end;
    int mirrored;
};

static inline DT_HOST_DEVICE int dt_pose_max(int a, int b)
{
    return a > b ? a : b;
}

static inline DT_HOST_DEVICE int dt_pose_min(int a, int b)
{
    return a < b ? a : b;
}

/* What was at (y + down, x + right) comes to (y, x); what comes from outside is black. */
static inline DT_HOST_DEVICE struct dt_pose dt_pose_move(struct dt_pose p, struct dt_shape s,
                                                         int down, int right)
{
    const struct dt_pose moved = {p.down + down,
                                  dt_pose_max(0, p.top - down),
                                  dt_pose_min(s.h, p.bottom - down),
                                  p.mirrored ? p.right - right : p.right + right,
                                  dt_pose_max(0, p.left - right),
                                  dt_pose_min(s.w, p.end - right),
                                  p.mirrored};
    return moved;
}

/* What was at column w - 1 - x comes to x. */
static inline DT_HOST_DEVICE struct dt_pose dt_pose_mirror(struct dt_pose p, struct dt_shape s)
{
    const struct dt_pose mirrored = {
        p.down,      p.top,
        p.bottom,    p.mirrored ? p.right - (s.w - 1) : p.right + (s.w - 1),
        s.w - p.end, s.w - p.left,
        !p.mirrored};
    return mirrored;
}

/* A number of -n .. n. */
static inline DT_HOST_DEVICE int dt_pose_draw(uint32_t word, int n)
{
    return (int)((uint64_t)word * (uint32_t)(2 * n + 1) >> 32) - n;
}

/* The steps one after the other. `id`: the sample's number in the whole data set. */
static inline DT_HOST_DEVICE struct dt_pose dt_transform_pose(const struct dt_pixel_transform *t,
                                                              uint32_t epoch, uint32_t id)
{
    DT_ASSERT(t->n_steps >= 0 && t->n_steps <= DT_TRANSFORM_MOST_STEPS);
    struct dt_pose pose = {0, 0, t->shape.h, 0, 0, t->shape.w, 0};
    for (int i = 0; i < t->n_steps; i++) {
        const struct dt_rng4 words =
            dt_rng_words(t->seed, DT_RNG_AUGMENT, (uint32_t)i, epoch, id, 0);
        const int n = t->steps[i].n;
        pose = t->steps[i].kind == DT_TRANSFORM_MOVE
                   ? dt_pose_move(pose, t->shape, dt_pose_draw(words.v[0], n),
                                  dt_pose_draw(words.v[1], n))
               : words.v[0] >> 31 ? dt_pose_mirror(pose, t->shape)
                                  : pose;
    }
    DT_ASSERT(pose.top >= 0 && pose.bottom <= t->shape.h && pose.left >= 0 &&
              pose.end <= t->shape.w);
    return pose;
}

/* The channel's place in scale and offset. */
static inline DT_HOST_DEVICE int dt_transform_channel(const struct dt_pixel_transform *t, int c)
{
    DT_ASSERT(c >= 0 && t->n_scaled <= DT_TRANSFORM_MOST_CHANNELS);
    return c < t->n_scaled ? c : 0;
}

/* Element (c, y, x) of the sample as a network sees it; `pixels`: C H W. */
static inline DT_HOST_DEVICE float dt_transform_at(const struct dt_pixel_transform *t,
                                                   const struct dt_pose *p, const uint8_t *pixels,
                                                   int c, int y, int x)
{
    const int k = dt_transform_channel(t, c), w = t->shape.w;
    const int column = p->mirrored ? p->right - x : p->right + x;
    const bool inside = y >= p->top && y < p->bottom && x >= p->left && x < p->end;
    DT_ASSERT(!inside ||
              (column >= 0 && column < w && y + p->down >= 0 && y + p->down < t->shape.h));
    const uint8_t pixel =
        inside ? pixels[((size_t)c * (size_t)t->shape.h + (size_t)(y + p->down)) * (size_t)w +
                        (size_t)column]
               : 0;
    return (float)pixel * t->scale[k] + t->offset[k];
}

/* ---- on the host: for each pixel, step by step, from where it comes; no pose says that of rotate
 * and cut */

/* What was drawn for a step: (y, x), as seen from the middle, comes from (yy y - sine x, xx x +
 * sine y) / 2^16, and from further down and right; or the first row and column of a square. */
struct dt_transform_draw {
    int yy, xx, sine, down, right;
};

static inline struct dt_transform_draw dt_transform_draw(const struct dt_pixel_transform *t, int i,
                                                         uint32_t epoch, uint32_t id)
{
    const struct dt_rng4 words = dt_rng_words(t->seed, DT_RNG_AUGMENT, (uint32_t)i, epoch, id, 0);
    const int n = t->steps[i].n, kind = t->steps[i].kind;
    const double share = 2.0 * words.v[0] / UINT32_MAX - 1,
                 angle = kind == DT_TRANSFORM_ROTATE ? share * n / 180 * 3.14159265358979324 : 0;
    const int cosine = (int)lrint(cos(angle) * 65536);
    const bool mirrors = kind == DT_TRANSFORM_MIRROR && words.v[0] >> 31;
    struct dt_transform_draw draw = {cosine, mirrors ? -cosine : cosine,
                                     (int)lrint(sin(angle) * 65536), 0, 0};
    if (kind == DT_TRANSFORM_MOVE) {
        draw.down = dt_pose_draw(words.v[0], n);
        draw.right = dt_pose_draw(words.v[1], n);
    } else if (kind == DT_TRANSFORM_CUT) {
        draw.down = (int)((uint64_t)words.v[0] * (uint32_t)t->shape.h >> 32) - n / 2;
        draw.right = (int)((uint64_t)words.v[1] * (uint32_t)t->shape.w >> 32) - n / 2;
    }
    return draw;
}

/* The pixel (of a channel) that comes to (y, x); -1: black; -2: the background. */
static inline int64_t dt_transform_from(const struct dt_pixel_transform *t,
                                        const struct dt_transform_draw *draws, int64_t y, int64_t x)
{
    const int64_t h = t->shape.h, w = t->shape.w;
    for (int i = t->n_steps - 1; i >= 0; i--) {
        const struct dt_transform_draw d = draws[i];
        const int64_t down = 2 * y - h + 1, right = 2 * x - w + 1, n = t->steps[i].n;
        if (t->steps[i].kind != DT_TRANSFORM_CUT) { /* rounded to the nearest */
            y = (d.yy * down - d.sine * right + (h + 2 * d.down) * 65536) >> 17;
            x = (d.xx * right + d.sine * down + (w + 2 * d.right) * 65536) >> 17;
        } else if (y >= d.down && y < d.down + n && x >= d.right && x < d.right + n) {
            return -2;
        }
        if (y < 0 || y >= h || x < 0 || x >= w) {
            return -1;
        }
    }
    return y * w + x;
}

/* The image as a network sees it: pixel i of channel c goes to x[c * of_channel + i * of_pixel]. */
static inline void dt_transform_pixels(const struct dt_pixel_transform *t, const uint8_t *pixels,
                                       uint32_t epoch, uint32_t id, size_t of_channel,
                                       size_t of_pixel, float *x)
{
    struct dt_transform_draw draws[DT_TRANSFORM_MOST_STEPS];
    const size_t w = (size_t)t->shape.w, n_hw = (size_t)t->shape.h * w;
    for (int i = 0; i < t->n_steps; i++) {
        draws[i] = dt_transform_draw(t, i, epoch, id);
    }
    for (size_t i = 0; i < n_hw; i++) {
        const int64_t from = dt_transform_from(t, draws, (int64_t)(i / w), (int64_t)(i % w));
        for (size_t c = 0; c < (size_t)t->shape.c; c++) {
            const int k = dt_transform_channel(t, (int)c), none = from == -2 ? t->background : 0;
            const float pixel = (float)(from >= 0 ? pixels[c * n_hw + (size_t)from] : none);
            x[c * of_channel + i * of_pixel] = pixel * t->scale[k] + t->offset[k];
        }
    }
}

#endif
