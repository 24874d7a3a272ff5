/* A convolution 5 x 5 or 6 x 6 of stride 2 as one of 3 x 3 and stride 1, so that Winograd's method
 * applies: over an image of half the height and width, whose pixels hold the four of a square, one
 * of each phase, as channels. Tap (r, s) of a window meets phase (r % 2, s % 2). A kernel of 5 gets
 * a sixth row and column of zeros. */
#include "cpu/block_state.h"

#include <string.h>

struct dt_winograd dt_cpu_phases_shape(const struct dt_conv *conv)
{
    return (struct dt_winograd){.c = 4 * conv->c,
                                .h = (conv->h + 1) / 2,
                                .w = (conv->w + 1) / 2,
                                .k = conv->k,
                                .out_h = conv->out_h,
                                .out_w = conv->out_w};
}

void dt_cpu_plan_phases(struct dt_cpu_conv *conv, int vector)
{
    struct dt_winograd *w = &conv->winograd_gradient.w;
    conv->winograd_data = dt_winograd_plan_data(w, vector);
    dt_winograd_plan_gradient(&conv->winograd_gradient, conv->slice, vector);
    w->used = conv->winograd_data.used = w->used && conv->winograd_data.used;
    if (w->used) {
        conv->dense = (struct dt_conv){.c = w->c,
                                       .h = w->h,
                                       .w = w->w,
                                       .k = w->k,
                                       .out_h = w->out_h,
                                       .out_w = w->out_w,
                                       .kernel = 3,
                                       .stride = 1};
    }
}

/* Repeats a statement for each pixel x of the images (n_c channels) and its phase. */
#define EACH_PIXEL(statement)                                                              \
    const struct dt_winograd *w = &state->conv.winograd;                                   \
    const struct dt_block *b = &state->block;                                              \
    const size_t n_c = (size_t)b->in.c, n_bytes = n_c * sizeof(float);                     \
    for (int i = 0, n_h = b->in.h, n_w = b->in.w; i < n_images * n_h; i++) {               \
        const int r = i % n_h + b->pad_before_h, row = (i / n_h * w->h + r / 2) * w->w;    \
        for (int j = 0, s = b->pad_before_w; j < n_w; j++, s++, x += n_c) {                \
            float *phase = phases + (size_t)((row + s / 2) * 4 + r % 2 * 2 + s % 2) * n_c; \
            statement;                                                                     \
        }                                                                                  \
    }

/* The zeros of the phases' frame stay. */
const float *dt_cpu_winograd_images(const struct dt_block_state *state, const float *x,
                                    int n_images, struct dt_cpu_scratch *scratch)
{
    float *phases = scratch->phases;
    if (!state->conv.splits) {
        return x;
    }
    EACH_PIXEL(memcpy(phase, x, n_bytes))
    return phases;
}

void dt_cpu_merge_phases(const struct dt_block_state *state, float *phases, int n_images, float *x)
{
    EACH_PIXEL(memcpy(x, phase, n_bytes))
}

/* Repeats a statement for taps 0 .. 8 of each filter's channels of the phases; `inside` tells
 * whether it is weight `at` of the filter, or one of the zeros. */
#define EACH_TAP(statement)                                                                  \
    for (int i = 0; i < 4 * conv->c; i++) {                                                  \
        const int n = conv->kernel, top = i / conv->c / 2, left = i / conv->c % 2,           \
                  first = i % conv->c * n * n;                                               \
        for (int tap = 0; tap < 9; tap++) {                                                  \
            const int r = tap / 3 * 2 + top, s = tap % 3 * 2 + left, at = first + r * n + s; \
            const bool inside = r < n && s < n;                                              \
            statement;                                                                       \
        }                                                                                    \
    }

static size_t filter_elems(const struct dt_conv *conv)
{
    return (size_t)conv->c * (size_t)conv->kernel * (size_t)conv->kernel;
}

void dt_cpu_phase_weights(const struct dt_conv *conv, const float *weight, float *to)
{
    for (int k = 0; k < conv->k; k++, weight += filter_elems(conv)) {
        EACH_TAP(*to++ = inside ? weight[at] : 0.0f)
    }
}

void dt_cpu_phase_gradient(const struct dt_conv *conv, const float *from, float *grads)
{
    for (int k = 0; k < conv->k; k++, grads += filter_elems(conv)) {
        EACH_TAP(if (inside) { grads[at] += *from; } from++)
    }
}
