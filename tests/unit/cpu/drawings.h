/* Images with blank parts whose sums no rounding turns, for a backend whose sums are not exact
 * (Winograd's method) against the reference: the only ties are those of zeros. */
#ifndef DT_TESTS_DRAWINGS_H
#define DT_TESTS_DRAWINGS_H

#include "tests/lib/block_run.h"

#include "cpu/block_state.h"

#define CAPACITY 20 /* more than a convolution's slices */

#define NEAR 1e-4f

static inline bool uses_winograd(const struct dt_block *b)
{
    bool used = false;
    const bool may = b->kernel >= 3 && b->kernel <= 5 && b->stride == 1;
    for (int vector = 4; vector <= DT_MAX_VECTOR && may && b->linear == DT_LINEAR_CONV;
         vector *= 2) {
        struct dt_winograd w = {.c = b->in.c,
                                .h = b->in.h,
                                .w = b->in.w,
                                .k = b->linear_out.c,
                                .out_h = b->linear_out.h,
                                .out_w = b->linear_out.w,
                                .wider = b->kernel - 3};
        dt_winograd_plan(&w, vector);
        used = used || w.used;
    }
    return used;
}

/* The reference's convolution before activation and pool. */
static inline struct buffer linear_of(const struct block_case *setup)
{
    static struct dt_model bare;
    bare = *setup->model;
    struct dt_block *b = &bare.blocks[setup->block];
    b->activation = DT_ACTIVATION_NONE;
    b->pool = DT_POOL_NONE;
    b->dropout_rate = 0;
    b->flatten = false;
    b->out = b->pool_out = b->linear_out;
    struct block_case forward = *setup;
    forward.model = &bare;
    forward.passes = BLOCK_FORWARD;
    struct block_results out = block_on_ref(&forward);
    struct buffer z = copy_of(&out.y);
    block_results_close(&out);
    return z;
}

static inline size_t pixel_at(const struct dt_block *b, size_t sample, int c, int h, int w)
{
    return ((sample * (size_t)b->in.c + (size_t)c) * (size_t)b->in.h + (size_t)h) *
               (size_t)b->in.w +
           (size_t)w;
}

/* True if output (p, q) before the pool sees a pixel that is not zero. */
static inline bool sees_ink(const struct block_case *setup, size_t sample, int p, int q)
{
    const struct dt_block *b = &setup->model->blocks[setup->block];
    for (int i = 0; i < b->kernel * b->kernel * b->in.c; i++) {
        const int tap = i / b->in.c, h = p * b->stride + tap / b->kernel - b->pad_before_h,
                  w = q * b->stride + tap % b->kernel - b->pad_before_w;
        if (h >= 0 && h < b->in.h && w >= 0 && w < b->in.w &&
            setup->x.data[pixel_at(b, sample, i % b->in.c, h, w)] != 0) {
            return true;
        }
    }
    return false;
}

/* The dependence of output (p, q) of a channel, whose sums are z. */
struct choice {
    const float *z;
    size_t sample;
    int p, q;
};

/* True if it depends on which of two numbers is larger, one of them 0 or a sum, and they are nearly
 * equal. Sums of nothing but zeros are their bias on every backend: which of those is larger is no
 * question. Leaves a sum that is in *row and *column. */
static inline bool is_undecided(const struct block_case *setup, struct choice c, int *row,
                                int *column)
{
    const struct dt_block *b = &setup->model->blocks[setup->block];
    const bool relu =
                   b->activation == DT_ACTIVATION_RELU || b->activation == DT_ACTIVATION_LEAKY_RELU,
               max = b->pool == DT_POOL_MAX;
    const int width = b->pool == DT_POOL_NONE ? 1 : b->pool_w,
              size = b->pool == DT_POOL_NONE ? 1 : b->pool_h * b->pool_w,
              stride = b->pool == DT_POOL_NONE ? 1 : b->pool_stride;
    float best = max ? -INFINITY : 0;
    int n_near = 0;
    bool inked = false;
    for (int i = 0; i < size && max; i++) {
        best = fmaxf(best,
                     c.z[(c.p * stride + i / width) * b->linear_out.w + c.q * stride + i % width]);
    }
    for (int i = 0; i < size; i++) {
        const int p = c.p * stride + i / width, q = c.q * stride + i % width;
        if (fabsf(c.z[p * b->linear_out.w + q] - best) < NEAR) {
            n_near++;
            if (!inked && sees_ink(setup, c.sample, p, q)) {
                inked = true;
                *row = p;
                *column = q;
            }
        }
    }
    const bool at_zero = relu && fabsf(best) < NEAR,
               among = max && n_near > 1 && !(relu && best < -NEAR);
    return inked && (at_zero || among);
}

/* Changes a pixel that each undecided output sees. Returns how many were, and the largest sum. */
static inline int settle(struct block_case *setup, bool rounds, double *largest)
{
    const struct dt_block *b = &setup->model->blocks[setup->block];
    const size_t n_plane = (size_t)b->linear_out.h * (size_t)b->linear_out.w,
                 n_planes = (size_t)b->linear_out.c;
    for (size_t i = 0; i < setup->x.n && rounds; i++) {
        setup->x.data[i] = from_bf16(to_bf16(setup->x.data[i]));
    }
    struct buffer z = linear_of(setup);
    int n_undecided = 0, row = 0, column = 0;
    for (size_t i = 0;
         i < (size_t)setup->pass.batch->n * n_planes * (size_t)(b->pool_out.h * b->pool_out.w);
         i++) {
        const size_t plane = i / (size_t)(b->pool_out.h * b->pool_out.w),
                     at = i % (size_t)(b->pool_out.h * b->pool_out.w);
        const struct choice choice = {.z = z.data + plane * n_plane,
                                      .sample = plane / n_planes,
                                      .p = (int)at / b->pool_out.w,
                                      .q = (int)at % b->pool_out.w};
        if (is_undecided(setup, choice, &row, &column)) {
            const int h = dt_min(row * b->stride, b->in.h - 1),
                      w = dt_min(column * b->stride, b->in.w - 1);
            setup->x.data[pixel_at(b, choice.sample, (int)draw((uint32_t)b->in.c), h, w)] +=
                draw_eighths(8) + 0.03125f;
            n_undecided++;
        }
    }
    *largest = 1;
    for (size_t i = 0; i < z.n; i++) {
        *largest = fmax(*largest, (double)fabsf(z.data[i]));
    }
    buffer_close(&z, "z");
    return n_undecided;
}

/* Draws images with blank parts, and biases of which half are 0, so that the only ties are those of
 * zeros. Returns the largest sum.
 */
static inline double draw_drawings(struct block_case *setup, bool rounds)
{
    const struct dt_block *b = &setup->model->blocks[setup->block];
    const struct dt_param *bias = &setup->model->params[b->bias];
    double largest;
    for (size_t i = 0; i < bias->n_elems; i += 2) {
        setup->params.data[bias->offset + i] = 0;
    }
    for (size_t i = 0; i < setup->x.n; i++) {
        setup->x.data[i] *= 1 + (float)draw(1 << 16) / (1 << 20);
    }
    for (int sample = 0; sample < setup->pass.batch->n; sample++) {
        const int top = (int)draw((uint32_t)b->in.h), left = (int)draw((uint32_t)b->in.w);
        for (int i = 0; i < b->in.c * (b->in.h - top) * (b->in.w - left); i++) {
            const int w = left + i % (b->in.w - left),
                      h = top + i / (b->in.w - left) % (b->in.h - top);
            setup->x
                .data[pixel_at(b, (size_t)sample, i / (b->in.w - left) / (b->in.h - top), h, w)] =
                0;
        }
    }
    for (int round = 0; settle(setup, rounds, &largest) > 0; round++) {
        CHECK(round < 100);
    }
    return largest;
}

#endif
